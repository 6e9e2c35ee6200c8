"""The supported model families: their kinds, sizes, and the paths of their layers, pooler and classifier."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from stillery.errors import UserError
from stillery.models.stack_layout import GENERATORS, Layout

__all__ = [
    "FAMILIES",
    "Family",
    "Sizes",
    "attends_in_windows",
    "family_of",
    "inside",
    "kind_of",
    "layer_modules",
    "layout_of",
    "longest_input",
    "scores_are_plain",
    "sizes",
    "stack_sizes",
    "stacks_of",
]


def inside(name: str, path: str) -> bool:
    """Return whether a tensor or module of this name is at `path` or below it.

    >>> inside("encoder.layer.1.bias", "encoder.layer"), inside("encoder.layers", "encoder.layer")
    (True, False)
    """
    return name == path or name.startswith(f"{path}.")


@dataclass(frozen=True, kw_only=True)
class Family:
    """Paths inside a classifier; `pooler` and `classifier` are relative to the model, others to its base model.

    Attributes:
        embeddings, encoder, layers: the paths of these modules.
        projection: projects embeddings of another width to the hidden width.
        extras: the encoder's weights outside its layers, with their descriptions.
        projections, more_queries, more_keys, attended, to_inner, from_inner, head_bias, norm: as in a `Layout`.
        fused, gated, rotary: likewise.
        square: a map from hidden width to hidden width outside the layers.
        plain_scores: whether the attention scores are QK^T / sqrt(d), plus a bias, and nothing else.
        alone: the first module of a layer after its attention, from which on tokens are independent; None where
            layers share their modules.
        pooler: the dense layer between the first token's state and the classifier, under the family's own name.
        pooler_norm: the norm between the pooler and the classifier.
        classifier: the final linear layer.
        token_classifier: the final linear layer for token classification, which has no pooler.
        inner: the name of the inner (feed-forward) width in the configuration.
        shared: whether all layers are one module that is applied repeatedly.
        unnormed_first: a norm that every layer but the first has.
    """

    embeddings: str = "embeddings"
    projection: str | None = None
    encoder: str = "encoder"
    layers: str = "encoder.layer"
    extras: Mapping[str, str] = field(default_factory=dict)
    projections: tuple[str, str, str] = ("attention.self.query", "attention.self.key", "attention.self.value")
    more_queries: str | None = None
    more_keys: str | None = None
    attended: str = "attention.output.dense"
    to_inner: str = "intermediate.dense"
    from_inner: str = "output.dense"
    head_bias: str | None = None
    norm: str | None = None
    fused: bool = False
    gated: bool = False
    rotary: bool = False
    square: str | None = None
    plain_scores: bool = True
    alone: str | None = "attention.output"
    pooler: str = "classifier.dense"
    pooler_norm: str | None = None
    classifier: str = "classifier.out_proj"
    token_classifier: str = "classifier"
    inner: str = "intermediate_size"
    shared: bool = False
    unnormed_first: str | None = None

    def in_body(self, name: str) -> bool:
        """Return whether a tensor, named relative to the base model, is in every checkpoint, with or without a head."""
        # Where the base model itself runs the layers, what it holds beside them is named.
        encoder = (self.encoder,) if self.encoder else (self.layers, *([self.norm] if self.norm else []))
        paths = (self.embeddings, *encoder, *([self.projection] if self.projection else []))
        return any(inside(name, path) for path in paths)

    def embedding_modules(self, model: PreTrainedModel) -> list[nn.Module]:
        """The modules that compute hidden state 0: the embeddings, and their projection if the model has one."""
        modules = dict(model.base_model.named_modules())
        return [modules[path] for path in (self.embeddings, self.projection) if path in modules]

    def layer_modules(self, model: PreTrainedModel) -> list[nn.Module]:
        """The modules of layers 1..N; with `shared` the same one N times."""
        return layer_modules(model)

    @property
    def layout(self) -> Layout:
        """The layout of the family's only stack."""
        return Layout(
            module=self.encoder,
            layers=self.layers,
            projections=self.projections,
            more_queries=self.more_queries,
            more_keys=self.more_keys,
            attended=self.attended,
            to_inner=(self.to_inner,),
            from_inner=self.from_inner,
            head_bias=self.head_bias,
            norm=self.norm,
            fused=self.fused,
            gated=self.gated,
            rotary=self.rotary,
            plain_scores=self.plain_scores,
            shared=self.shared,
            alone=self.alone,
        )


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
        attended="albert_layers.0.attention.dense",
        to_inner="albert_layers.0.ffn",
        from_inner="albert_layers.0.ffn_output",
        alone=None,
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
        more_queries="attention.self.pos_query_proj",
        more_keys="attention.self.pos_key_proj",
        square="encoder.conv.conv",
        plain_scores=False,
        pooler="pooler.dense",
        classifier="classifier",
    ),
    "distilbert": Family(
        encoder="transformer",
        layers="transformer.layer",
        projections=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        attended="attention.out_lin",
        to_inner="ffn.lin1",
        from_inner="ffn.lin2",
        alone="sa_layer_norm",
        pooler="pre_classifier",
        classifier="classifier",
        inner="hidden_dim",
    ),
    "electra": Family(projection="embeddings_project"),
    "modernbert": Family(
        encoder="",
        layers="layers",
        extras={"final_norm": "final norm", "head": "prediction head"},
        projections=("attn.Wqkv", "attn.Wqkv", "attn.Wqkv"),
        attended="attn.Wo",
        to_inner="mlp.Wi",
        from_inner="mlp.Wo",
        norm="final_norm",
        fused=True,
        gated=True,
        rotary=True,
        alone=None,
        pooler="head.dense",
        pooler_norm="head.norm",
        classifier="classifier",
        unnormed_first="attn_norm",
    ),
    "mpnet": Family(
        extras={"encoder.relative_attention_bias": "relative positions"},
        projections=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        attended="attention.attn.o",
        head_bias="encoder.relative_attention_bias",
        alone="attention.LayerNorm",
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}


def family_of(config: PreTrainedConfig, where: str) -> Family:
    """Return the family of a classifier; raise UserError for an unsupported configuration."""
    known = ", ".join(FAMILIES)
    if config.model_type in GENERATORS:
        raise UserError(
            f"{where}: a {config.model_type} model generates text, here a classifier is needed; use one of: {known}"
        )
    try:
        return FAMILIES[config.model_type]
    except KeyError:
        raise UserError(
            f"{where}: model type {config.model_type!r} is not supported; supported encoder families: {known}"
        ) from None


def kind_of(config: PreTrainedConfig, where: str = "model") -> str:
    """The kind of a model: `encoder` (classifiers), `encoder-decoder` or `decoder`."""
    if config.model_type in GENERATORS:
        return GENERATORS[config.model_type].kind
    if config.model_type in FAMILIES:
        return "encoder"
    raise UserError(
        f"{where}: model type {config.model_type!r} is not supported; supported classifiers: {', '.join(FAMILIES)}; "
        f"models that generate text: {', '.join(GENERATORS)}"
    )


def stacks_of(config: PreTrainedConfig) -> tuple[str, ...]:
    """The names of a model's stacks: `encoder`, `decoder`, or both in this order."""
    return tuple(GENERATORS[config.model_type].stacks) if kind_of(config) != "encoder" else ("encoder",)


def layout_of(config: PreTrainedConfig, stack: str | None = None) -> Layout:
    """The layout of a stack, by default of the first."""
    if kind_of(config) == "encoder":
        return FAMILIES[config.model_type].layout
    return GENERATORS[config.model_type].stacks[stack or stacks_of(config)[0]]


def layer_modules(model: PreTrainedModel, stack: str | None = None) -> list[nn.Module]:
    """The modules of layers 1..N of a stack, by default of the first; a shared module is repeated."""
    modules = list(model.base_model.get_submodule(layout_of(model.config, stack).layers).children())
    depth = sizes(model.config, stack).layers
    return [modules[index * len(modules) // depth] for index in range(depth)]


def attends_in_windows(config: PreTrainedConfig) -> bool:
    """Return whether some layers attend to near tokens only, by a mask of their own."""
    kinds = getattr(config, "layer_types", None)
    return "sliding_attention" in kinds if kinds else getattr(config, "sliding_window", None) is not None


def scores_are_plain(config: PreTrainedConfig, stack: str | None = None) -> bool:
    """Return whether a stack's attention scores are determined by its queries, keys and bias, causal or not.

    Those of layers with sliding-window attention (some Qwen and Mistral models) are not, because their mask differs.
    """
    # Clipped queries and keys (some OLMo models) are no longer those of the projections.
    changed = getattr(config, "scale_attn_by_inverse_layer_idx", False) or getattr(config, "clip_qkv", None) is not None
    return layout_of(config, stack).plain_scores and not attends_in_windows(config) and not changed


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Depth, width, attention heads and inner (feed-forward) width of a stack.

    `head_size` None means width / heads. `key_heads` is the number of heads of keys and values with grouped-query
    attention; None means as many as of queries.
    """

    layers: int
    width: int
    heads: int
    inner: int
    head_size: int | None = None
    key_heads: int | None = None


def sizes(config: PreTrainedConfig, stack: str | None = None) -> Sizes:
    """The sizes of a stack, by default of the first, from a configuration."""
    if kind_of(config) == "encoder":
        return Sizes(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            inner=getattr(config, FAMILIES[config.model_type].inner),
        )
    names = GENERATORS[config.model_type].sizes[stack or stacks_of(config)[0]]
    stated = {size: getattr(config, name) for size, name in names.items()}
    # GPT-2 may leave its inner width out.
    return Sizes(**stated | {"inner": stated["inner"] or 4 * stated["width"]})


def stack_sizes(config: PreTrainedConfig) -> dict[str, Sizes]:
    """The sizes of all stacks of a model, by name."""
    return {stack: sizes(config, stack) for stack in stacks_of(config)}


def longest_input(config: PreTrainedConfig) -> int:
    """Return the maximum number of tokens that a model has positions for.

    RoBERTa and its variants number positions starting after the padding id. Relative positions (T5) are unlimited: the
    `n_positions` of some T5 checkpoints is their pretraining length.
    """
    stated = getattr(config, "max_position_embeddings", None)
    positions = int(stated or sys.maxsize)
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        return positions - int(config.pad_token_id or 0) - 1
    # MPNet counts from 1, regardless of its padding id.
    return positions - 2 if config.model_type == "mpnet" else positions
