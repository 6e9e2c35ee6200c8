"""Sentence embedders: an encoder, the pooling of its token states, dense modules and a normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

__all__ = ["ACTIVATIONS", "Dense", "Layout", "SentenceEmbedder", "arrange", "embedding_size", "pooled"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
}
"""The activations of a dense module, by the names in its configuration."""

_IDENTITY = "torch.nn.modules.linear.Identity"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What follows the encoder of a sentence embedder, and how it reads texts.

    Attributes:
        pooling: how token states become one vector: cls, max, mean; several are concatenated in this order.
        normalise: whether the embedding has length 1.
        max_length: the maximum text length in tokens that the model was made for; None if unknown.
        prompts: texts to be put before others, by name, and the name of the default one.
        stated: whether the folder says all this; False for a plain encoder, whose pooling is a choice.
    """

    pooling: tuple[str, ...] = ("mean",)
    normalise: bool = False
    max_length: int | None = None
    prompts: tuple[tuple[tuple[str, str], ...], str | None] = ((), None)
    stated: bool = False


class Dense(nn.Module):
    """A linear layer and an activation, the module `Dense` of sentence-transformers."""

    def __init__(self, width: int, size: int, *, bias: bool = True, activation: str = _IDENTITY) -> None:
        super().__init__()
        self.linear = nn.Linear(width, size, bias=bias)
        self.activation, self.activation_name = ACTIVATIONS[activation](), activation

    def forward(self, vectors: Tensor) -> Tensor:
        """Apply both."""
        found: Tensor = self.activation(self.linear(vectors))
        return found


class SentenceEmbedder(PreTrainedModel):
    """An encoder that gives each text one vector, which stands in the place of a classifier's logits."""

    base_model_prefix = "body"
    # The encoder has checked which attention implementations it supports.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, encoder: PreTrainedModel, layout: Layout, dense: tuple[Dense, ...] = ()) -> None:
        super().__init__(encoder.config)
        self.body, self.layout, self.dense = encoder, layout, nn.ModuleList(dense)
        # The pooler is written with the encoder, for those who load it alone; no embedding is computed from it.
        for parameter in _pooler(encoder):
            parameter.requires_grad_(False)

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> SentenceEmbedder:
        """Build an embedder with a new encoder and mean pooling."""
        return cls(AutoModel.from_config(config), Layout())

    def get_input_embeddings(self) -> nn.Module:
        """Return the encoder's token embeddings."""
        found: nn.Module = self.body.get_input_embeddings()
        return found

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> SequenceClassifierOutput:
        """Return the embeddings of a batch, [batch, size], as `logits`."""
        given = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        states = self.body(input_ids=input_ids, attention_mask=attention_mask, **given)[0]
        vectors = torch.cat([pooled(states, attention_mask, mode) for mode in self.layout.pooling], dim=-1)
        for module in self.dense:
            vectors = module(vectors)
        if self.layout.normalise:
            vectors = F.normalize(vectors, dim=-1)
        return SequenceClassifierOutput(logits=vectors)  # type: ignore[arg-type]

    def save_pretrained(self, save_directory: Any, **_: Any) -> None:  # type: ignore[override]
        """Write a folder that sentence-transformers loads, and AutoModel the encoder of."""
        from stillery.models.sentence_folder import write_modules

        self.body.save_pretrained(save_directory)
        write_modules(self, Path(save_directory))


def pooled(states: Tensor, mask: Tensor, mode: str) -> Tensor:
    """Pool token states [batch, tokens, width] over the real tokens, those where the mask [batch, tokens] is 1.

    `cls` is the state of the first token, `mean_sqrt_len_tokens` the sum divided by the root of the number of tokens.
    """
    if mode == "cls":
        return states[:, 0]
    real = mask.unsqueeze(-1).to(states.dtype)
    if mode == "max":
        return states.masked_fill(real == 0, float("-inf")).amax(1)
    count = real.sum(1).clamp_min(1)
    return (states * real).sum(1) / (count.sqrt() if mode == "mean_sqrt_len_tokens" else count)


def embedding_size(model: SentenceEmbedder) -> int:
    """Return the number of dimensions of a model's embeddings."""
    if len(model.dense):
        last: Any = model.dense[-1]
        return int(last.linear.out_features)
    return int(model.config.hidden_size) * len(model.layout.pooling)


@torch.no_grad()
def arrange(student: SentenceEmbedder, teacher: SentenceEmbedder, seed: int) -> str | None:
    """Give a student what follows its teacher's encoder; return a line on its dense modules, None without any.

    At another width a new linear layer, initialised from the seed, takes the student's pooled states to what the
    teacher's first dense module gives or, where there is none, to the teacher's embedding.
    """
    layout = student.layout = teacher.layout
    theirs: list[Any] = list(teacher.dense)
    ours, width = (int(model.config.hidden_size) * len(layout.pooling) for model in (student, teacher))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = [
            Dense(
                one.linear.in_features, one.linear.out_features, bias=one.linear.bias is not None,
                activation=one.activation_name,
            )
            for one in theirs
        ]  # fmt: skip
        for mine, one in zip(made, theirs, strict=True):
            mine.load_state_dict(one.state_dict())
        if ours != width:
            first = theirs[0] if theirs else None
            size = first.linear.out_features if first is not None else width
            activation = first.activation_name if first is not None else _IDENTITY
            made[:1] = [Dense(ours, size, activation=activation)]
    student.dense = nn.ModuleList(made)
    if ours != width:
        return f"new (random): a dense module that takes {ours} dimensions to {made[0].linear.out_features}"
    return "dense modules of the teacher" if made else None


def _pooler(encoder: PreTrainedModel) -> list[nn.Parameter]:
    pooler = getattr(encoder, "pooler", None)
    return list(pooler.parameters()) if isinstance(pooler, nn.Module) else []
