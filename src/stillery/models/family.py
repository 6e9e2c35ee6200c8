"""Where a model family keeps its layers, its pooler and its classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from stillery.faults import Fault

__all__ = ["FAMILIES", "Family", "Sizes", "family_of", "inside", "longest_input", "sizes"]


def inside(name: str, path: str) -> bool:
    """Whether a tensor or module of this name is the one at `path` or a part of it.

    >>> inside("encoder.layer.1.bias", "encoder.layer"), inside("encoder.layers", "encoder.layer")
    (True, False)
    """
    return name == path or name.startswith(f"{path}.")


@dataclass(frozen=True, kw_only=True)
class Family:
    """Paths inside a sequence classifier; `pooler` and `classifier` start at the model, the others at its base model.

    `pooler` is the dense layer between the first token's state and the classifier, whatever the family calls it.
    `projection` takes embeddings of another width to the layers' width. `extras` are the encoder's own weights beside
    its layers, in words. `projections` are a layer's query, key and value maps, from the layer on; `plain_scores` says
    whether its softmax receives QK^T / sqrt(d), plus a bias it is given, and nothing else. `shared` marks a family
    whose layers are one module applied again and again.
    """

    embeddings: str = "embeddings"
    projection: str | None = None
    encoder: str = "encoder"
    layers: str = "encoder.layer"
    extras: Mapping[str, str] = field(default_factory=dict)
    projections: tuple[str, str, str] = ("attention.self.query", "attention.self.key", "attention.self.value")
    plain_scores: bool = True
    pooler: str = "classifier.dense"
    classifier: str = "classifier.out_proj"
    inner: str = "intermediate_size"
    shared: bool = False

    def in_body(self, name: str) -> bool:
        """Whether a tensor, named from the base model on, belongs to what every checkpoint of the family holds."""
        paths = (self.embeddings, self.encoder, *([self.projection] if self.projection else []))
        return any(inside(name, path) for path in paths)

    def embedding_modules(self, model: PreTrainedModel) -> list[nn.Module]:
        """The modules that make state 0: the embeddings, and their projection where this model has one."""
        modules = dict(model.base_model.named_modules())
        return [modules[path] for path in (self.embeddings, self.projection) if path in modules]

    def encoder_module(self, model: PreTrainedModel) -> nn.Module:
        """The module that runs the layers and returns the last state."""
        return model.base_model.get_submodule(self.encoder)

    def layer_modules(self, model: PreTrainedModel) -> list[nn.Module]:
        """The module called for each of the layers 1..N; with `shared` the same one again and again."""
        modules = list(model.base_model.get_submodule(self.layers).children())
        depth = sizes(model.config).layers
        return [modules[index * len(modules) // depth] for index in range(depth)]


_BERT = Family(pooler="bert.pooler.dense", classifier="classifier")
_ROBERTA = Family()

FAMILIES: dict[str, Family] = {
    "albert": Family(
        projection="encoder.embedding_hidden_mapping_in",
        layers="encoder.albert_layer_groups",
        projections=(
            "albert_layers.0.attention.query",
            "albert_layers.0.attention.key",
            "albert_layers.0.attention.value",
        ),
        pooler="albert.pooler",
        classifier="classifier",
        shared=True,
    ),
    "bert": _BERT,
    "camembert": _ROBERTA,
    "deberta-v2": Family(
        extras={
            "encoder.rel_embeddings": "relative positions",
            "encoder.LayerNorm": "relative positions",
            "encoder.conv": "convolution",
        },
        projections=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
        plain_scores=False,
        pooler="pooler.dense",
        classifier="classifier",
    ),
    "distilbert": Family(
        encoder="transformer",
        layers="transformer.layer",
        projections=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        pooler="pre_classifier",
        classifier="classifier",
        inner="hidden_dim",
    ),
    "electra": Family(projection="embeddings_project"),
    "mpnet": Family(
        extras={"encoder.relative_attention_bias": "relative positions"},
        projections=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    ),
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
    """How many tokens a model has positions for; RoBERTa and its relatives count theirs from the padding id on."""
    positions: int = config.max_position_embeddings
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        return positions - int(config.pad_token_id or 0) - 1
    # MPNet counts from 1 on, whatever its padding id is.
    return positions - 2 if config.model_type == "mpnet" else positions
