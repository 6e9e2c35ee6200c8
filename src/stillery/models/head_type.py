"""Types of heads on encoders (classes per text or per token, embeddings), and the paths of their modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stillery.models.family import Family

__all__ = ["EMBEDDING", "SEQUENCE", "TOKEN", "HeadType", "head_in", "head_type"]


@dataclass(frozen=True, kw_only=True)
class HeadType:
    """A type of head that every encoder family has, in transformers or (embeddings) here.

    Attributes:
        words: the name of its task.
        ending: the suffix of its class names.
        by_token: whether logits are per token, [batch, tokens, classes], instead of [batch, classes].
        reads: the tokens whose last state it reads.
    """

    words: str
    ending: str
    by_token: bool
    reads: Literal["first", "all"] = "first"

    @cached_property
    def auto(self) -> Any:
        """The auto class that loads and builds any family with this head."""
        # Imported lazily: checks of head types run before transformers is loaded, which takes seconds.
        if self is EMBEDDING:
            from stillery.models.embedder import SentenceEmbedder

            return SentenceEmbedder
        import transformers

        return getattr(transformers, f"AutoModel{self.ending}")

    def classifier(self, family: Family) -> str:
        """Return the path of the linear layer that computes the logits; of an embedder its dense modules' path."""
        if self is EMBEDDING:
            return "dense"
        return family.token_classifier if self.by_token else family.classifier

    def pooler(self, family: Family) -> str | None:
        """Return the path of the dense layer before the classifier; None where the classifier is the whole head."""
        return family.pooler if self.reads == "first" else None


SEQUENCE = HeadType(words="classification", ending="ForSequenceClassification", by_token=False)
TOKEN = HeadType(words="token classification", ending="ForTokenClassification", by_token=True, reads="all")
EMBEDDING = HeadType(words="embedding", ending="SentenceEmbedder", by_token=False, reads="all")


def head_in(architectures: Sequence[str] | None) -> HeadType | None:
    """Return the head type that config.json names in its `architectures`; None for any other head."""
    return next(
        (one for one in (SEQUENCE, TOKEN, EMBEDDING) for name in architectures or () if name.endswith(one.ending)), None
    )


def head_type(model: PreTrainedModel) -> HeadType:
    """Return the type of a model's head; that of a sequence classifier if the model has no head."""
    return head_in([type(model).__name__]) or SEQUENCE
