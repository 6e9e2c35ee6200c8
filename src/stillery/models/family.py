"""Where a model family keeps its layers, its pooler and its classifier."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from stillery.faults import Fault

__all__ = ["FAMILIES", "Family", "Sizes", "family_of", "longest_input", "sizes"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """Paths inside a sequence classifier; `encoder` and `layers` start at the base model, the others at the model.

    `pooler` is the dense layer between the first token's state and the classifier, whatever the family calls it.
    `shared` marks a family whose layers are one module applied again and again.
    """

    encoder: str = "encoder"
    layers: str = "encoder.layer"
    embeddings: tuple[str, ...] = ("embeddings",)
    pooler: str = "classifier.dense"
    classifier: str = "classifier.out_proj"
    inner: str = "intermediate_size"
    shared: bool = False

    def encoder_module(self, model: PreTrainedModel) -> nn.Module:
        """The module that runs the layers and returns the last state."""
        return model.base_model.get_submodule(self.encoder)

    def layer_modules(self, model: PreTrainedModel) -> list[nn.Module]:
        """The modules called for layers 1..N; with `shared` the groups that are called again and again."""
        return list(model.base_model.get_submodule(self.layers).children())


_BERT = Family(pooler="bert.pooler.dense", classifier="classifier")
_ROBERTA = Family()

FAMILIES: dict[str, Family] = {
    "albert": Family(
        layers="encoder.albert_layer_groups",
        embeddings=("embeddings", "encoder.embedding_hidden_mapping_in"),
        pooler="albert.pooler",
        classifier="classifier",
        shared=True,
    ),
    "bert": _BERT,
    "camembert": _ROBERTA,
    "deberta-v2": Family(pooler="pooler.dense", classifier="classifier"),
    "distilbert": Family(
        encoder="transformer",
        layers="transformer.layer",
        pooler="pre_classifier",
        classifier="classifier",
        inner="hidden_dim",
    ),
    "electra": Family(embeddings=("embeddings", "embeddings_project")),
    "mpnet": Family(),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}


def family_of(config: PreTrainedConfig, where: str) -> Family:
    """The family of a model's configuration."""
    try:
        return FAMILIES[config.model_type]
    except KeyError:
        known = ", ".join(FAMILIES)
        raise Fault(
            f"{where}: model type {config.model_type!r} is not supported; supported encoder families: {known}"
        ) from None


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Depth, width, attention heads and inner (feed-forward) width of a stack."""

    layers: int
    width: int
    heads: int
    inner: int


def sizes(config: PreTrainedConfig) -> Sizes:
    """The sizes a configuration states."""
    return Sizes(
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        heads=config.num_attention_heads,
        inner=getattr(config, FAMILIES[config.model_type].inner),
    )


def longest_input(config: PreTrainedConfig) -> int:
    """How many tokens a model has positions for; RoBERTa and its relatives leave the first ones unused."""
    positions: int = config.max_position_embeddings
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        return positions - int(config.pad_token_id or 0) - 1
    return positions
