"""What a head on an encoder predicts for, the whole text or each token, and where a family keeps its parts."""

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
        words: what a model with it is called.
        ending: how the names of its classes end.
        by_token: whether there are logits for each token, [batch, tokens, classes], and not [batch, classes].
    """

    words: str
    ending: str
    by_token: bool

    @cached_property
    def auto(self) -> Any:
        """The class that loads and builds any family with it."""
        # Types of heads are told apart by refusals that come before transformers is loaded, which takes seconds.
        import transformers

        return getattr(transformers, f"AutoModel{self.ending}")

    def classifier(self, family: Family) -> str:
        """The path of the linear layer that gives the logits."""
        return family.token_classifier if self.by_token else family.classifier

    def pooler(self, family: Family) -> str | None:
        """The path of the dense layer before it; a token's state goes to the classifier as it is."""
        return None if self.by_token else family.pooler


SEQUENCE = HeadType(words="classification", ending="ForSequenceClassification", by_token=False)
TOKEN = HeadType(words="token classification", ending="ForTokenClassification", by_token=True)


def head_in(architectures: Sequence[str] | None) -> HeadType | None:
    """The type of the head that a checkpoint was saved with, by what its config.json says; None for any other head."""
    return next((one for one in (SEQUENCE, TOKEN) for name in architectures or () if name.endswith(one.ending)), None)


def head_type(model: PreTrainedModel) -> HeadType:
    """The type of a model's head; a classifier of texts where the model has no head."""
    return head_in([type(model).__name__]) or SEQUENCE
