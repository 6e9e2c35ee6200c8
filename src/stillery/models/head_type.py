"""Types of classification heads on encoders (per text or per token), and the paths of their modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stillery.models.family import Family

__all__ = ["SEQUENCE", "TOKEN", "HeadType", "head_in", "head_type"]


@dataclass(frozen=True, kw_only=True)
class HeadType:
    """A type of head that every encoder family has in transformers.

    Attributes:
        words: the name of its task.
        ending: the suffix of its class names.
        by_token: whether logits are per token, [batch, tokens, classes], instead of [batch, classes].
    """

    words: str
    ending: str
    by_token: bool

    @cached_property
    def auto(self) -> Any:
        """The auto class that loads and builds any family with this head."""
        # Imported lazily: checks of head types run before transformers is loaded, which takes seconds.
        import transformers

        return getattr(transformers, f"AutoModel{self.ending}")

    def classifier(self, family: Family) -> str:
        """Return the path of the linear layer that computes the logits."""
        return family.token_classifier if self.by_token else family.classifier

    def pooler(self, family: Family) -> str | None:
        """Return the path of the dense layer before the classifier; None for token classification."""
        return None if self.by_token else family.pooler


SEQUENCE = HeadType(words="classification", ending="ForSequenceClassification", by_token=False)
TOKEN = HeadType(words="token classification", ending="ForTokenClassification", by_token=True)


def head_in(architectures: Sequence[str] | None) -> HeadType | None:
    """Return the head type that config.json names in its `architectures`; None for any other head."""
    return next((one for one in (SEQUENCE, TOKEN) for name in architectures or () if name.endswith(one.ending)), None)


def head_type(model: PreTrainedModel) -> HeadType:
    """Return the type of a model's head; that of a sequence classifier if the model has no head."""
    return head_in([type(model).__name__]) or SEQUENCE
