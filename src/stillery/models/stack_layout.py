"""Module paths of a model's stacks, and the stacks of the supported text generators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["GENERATORS", "Generator", "Layout"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The paths of the modules of a stack, and properties of its attention.

    Paths are relative to the base model; those of linear maps, `head_norms`, `bias` and `alone` to a layer.

    Attributes:
        module: the module that runs the layers and returns the last hidden state ("" is the base model itself).
        layers: the list of layers.
        projections: the query, key and value maps of the self-attention, the same path three times if `fused`.
        attended: the output map of the self-attention.
        to_inner: the maps into the inner (feed-forward) width; a model may have only some of them.
        from_inner: the map out of the inner width.
        embeddings: the modules that compute hidden state 0.
        norm: the norm after the last layer.
        cross, cross_attended: the same maps of a decoder's cross-attention.
        more_queries, more_keys: further maps to all heads, for relative positions.
        fused: whether queries, keys and values have one map.
        gated: whether the map into the inner width gives both the inner states and their gate, side by side.
        transposed: whether the weight of a map is [in, out] instead of [out, in].
        head_bias: position biases of the stack, with a column per head; relative to the base model.
        head_norms: the norms of queries and keys of each head, after the projections, if the layers have them.
        joint_norms: whether these are norms of all heads side by side instead.
        rotary: whether queries and keys get a rotary position embedding, after the projections.
        rotated: the configuration's list of the layers with rotary positions, where some have none.
        bias: position biases in the first layer, which all layers use.
        scaled: whether the scores are QK^T / sqrt(d) instead of QK^T.
        plain_scores: whether the scores are that product, plus a bias, without further terms.
        causal: whether tokens attend to earlier tokens only.
        shared: whether all layers are one module that is applied repeatedly.
        alone: the first module of a classifier's layer after its attention, from which on tokens are independent.
    """

    module: str
    layers: str
    projections: tuple[str, str, str]
    attended: str
    to_inner: tuple[str, ...]
    from_inner: str
    embeddings: tuple[str, ...] = ()
    norm: str | None = None
    cross: tuple[str, str, str] | None = None
    cross_attended: str | None = None
    more_queries: str | None = None
    more_keys: str | None = None
    fused: bool = False
    gated: bool = False
    transposed: bool = False
    head_bias: str | None = None
    head_norms: tuple[str, str] | None = None
    joint_norms: bool = False
    rotary: bool = False
    rotated: str | None = None
    bias: str | None = None
    scaled: bool = True
    plain_scores: bool = True
    causal: bool = False
    shared: bool = False
    alone: str | None = None


@dataclass(frozen=True, kw_only=True)
class Generator:
    """A family of text generators: its stacks, and the configuration names of each stack's sizes.

    The keys are the fields of `Sizes`; those that a family does not have are omitted.
    """

    stacks: Mapping[str, Layout]
    sizes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of the family: `encoder-decoder` or `decoder`."""
        return "encoder-decoder" if len(self.stacks) > 1 else "decoder"


def _maps(path: str, *names: str) -> tuple[str, str, str]:
    query, key, value = (f"{path}.{name}" for name in names)
    return query, key, value


def _t5_inner(path: str) -> tuple[str, ...]:
    """The paths of the inner map: `wi`, or `wi_0` and `wi_1` if it is gated."""
    return tuple(f"{path}.DenseReluDense.{name}" for name in ("wi", "wi_0", "wi_1"))


_T5_ENCODER = Layout(
    module="encoder",
    layers="encoder.block",
    projections=_maps("layer.0.SelfAttention", "q", "k", "v"),
    attended="layer.0.SelfAttention.o",
    to_inner=_t5_inner("layer.1"),
    from_inner="layer.1.DenseReluDense.wo",
    embeddings=("shared", "encoder.embed_tokens"),
    norm="encoder.final_layer_norm",
    bias="layer.0.SelfAttention.relative_attention_bias",
    scaled=False,
)
_T5_SIZES = {"width": "d_model", "heads": "num_heads", "inner": "d_ff", "head_size": "d_kv"}
_T5 = Generator(
    stacks={
        "encoder": _T5_ENCODER,
        "decoder": replace(
            _T5_ENCODER,
            module="decoder",
            layers="decoder.block",
            embeddings=("shared", "decoder.embed_tokens"),
            norm="decoder.final_layer_norm",
            cross=_maps("layer.1.EncDecAttention", "q", "k", "v"),
            cross_attended="layer.1.EncDecAttention.o",
            to_inner=_t5_inner("layer.2"),
            from_inner="layer.2.DenseReluDense.wo",
            causal=True,
        ),
    },
    sizes={
        "encoder": _T5_SIZES | {"layers": "num_layers"},
        "decoder": _T5_SIZES | {"layers": "num_decoder_layers"},
    },
)

_SELF = _maps("self_attn", "q_proj", "k_proj", "v_proj")


def _bart_stack(name: str, cross: tuple[str, str, str] | None = None) -> Layout:
    own = (f"{name}.embed_tokens", f"{name}.embed_positions", f"{name}.layernorm_embedding")
    return Layout(
        module=name,
        layers=f"{name}.layers",
        projections=_SELF,
        attended="self_attn.out_proj",
        to_inner=("fc1",),
        from_inner="fc2",
        embeddings=("shared", *own),
        cross=cross,
        cross_attended=None if cross is None else "encoder_attn.out_proj",
        causal=cross is not None,
    )


def _bart_sizes(name: str) -> dict[str, str]:
    sizes = {"layers": f"{name}_layers", "heads": f"{name}_attention_heads", "inner": f"{name}_ffn_dim"}
    return sizes | {"width": "d_model"}


_BART = Generator(
    stacks={
        "encoder": _bart_stack("encoder"),
        "decoder": _bart_stack("decoder", _maps("encoder_attn", "q_proj", "k_proj", "v_proj")),
    },
    sizes={name: _bart_sizes(name) for name in ("encoder", "decoder")},
)

_GPT2 = Generator(
    stacks={
        "decoder": Layout(
            module="",
            layers="h",
            projections=_maps("attn", "c_attn", "c_attn", "c_attn"),
            attended="attn.c_proj",
            to_inner=("mlp.c_fc",),
            from_inner="mlp.c_proj",
            fused=True,
            transposed=True,
            embeddings=("wte", "wpe"),
            norm="ln_f",
            causal=True,
        )
    },
    sizes={"decoder": {"layers": "n_layer", "width": "n_embd", "heads": "n_head", "inner": "n_inner"}},
)

_LLAMA_STACK = Layout(
    module="",
    layers="layers",
    projections=_SELF,
    attended="self_attn.o_proj",
    to_inner=("mlp.gate_proj", "mlp.up_proj"),
    from_inner="mlp.down_proj",
    embeddings=("embed_tokens",),
    norm="norm",
    rotary=True,
    causal=True,
)
_LLAMA_SIZES = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
    "key_heads": "num_key_value_heads",
}
_LLAMA = Generator(stacks={"decoder": _LLAMA_STACK}, sizes={"decoder": _LLAMA_SIZES | {"head_size": "head_dim"}})
_NORMED = replace(_LLAMA_STACK, head_norms=("self_attn.q_norm", "self_attn.k_norm"))
_PHI_STACK = replace(
    _LLAMA_STACK,
    attended="self_attn.dense",
    to_inner=("mlp.fc1",),
    from_inner="mlp.fc2",
    norm="final_layernorm",
    head_norms=("self_attn.q_layernorm", "self_attn.k_layernorm"),
)

GENERATORS: dict[str, Generator] = {
    "bart": _BART,
    "gemma": _LLAMA,
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mt5": _T5,
    "olmo": Generator(stacks={"decoder": _LLAMA_STACK}, sizes={"decoder": _LLAMA_SIZES}),
    "olmo2": Generator(stacks={"decoder": replace(_NORMED, joint_norms=True)}, sizes={"decoder": _LLAMA_SIZES}),
    "phi": Generator(stacks={"decoder": _PHI_STACK}, sizes={"decoder": _LLAMA_SIZES}),
    "qwen2": Generator(stacks={"decoder": _LLAMA_STACK}, sizes={"decoder": _LLAMA_SIZES}),
    "qwen3": Generator(
        stacks={"decoder": _NORMED},
        sizes={"decoder": _LLAMA_SIZES | {"head_size": "head_dim"}},
    ),
    "smollm3": Generator(
        stacks={"decoder": replace(_LLAMA_STACK, rotated="no_rope_layers")}, sizes={"decoder": _LLAMA_SIZES}
    ),
    "t5": _T5,
}
"""The supported text generators by model type; SmolLM, SmolLM2 and similar models have the type llama."""
