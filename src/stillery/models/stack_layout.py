"""Where a stack of layers keeps what it is made of, and the stacks of the models that write text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["GENERATORS", "Generator", "Layout"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Paths inside a stack, from the base model on; those of maps, `head_norms` and `bias` from a layer on.

    `module` runs the layers and returns the last state ("" is the base model itself), after `norm` where there is one.
    `embeddings` make state 0. `projections` are the query, key and value maps of the layers' self attention, one and
    the same map where it is `fused`; `cross` those of a decoder's attention to the encoder; `more_queries` and
    `more_keys` further maps to all heads, of relative positions. `attended` and `cross_attended` are the maps that take
    the heads' outputs, side by side, back to the width. `to_inner` are the maps into the inner (feed-forward) width,
    those of them that a model has, `from_inner` the one out of it. A map's weight is [out, in], or [in, out] where
    `transposed`. `head_norms` normalise queries and keys head by head, `rotary` turns them by their positions: both
    after the projections. `bias` is where the first layer keeps what all layers add to their scores, `head_bias` where
    the stack does, from the base model on: a column for each head. The softmax receives QK^T / sqrt(d), QK^T where not
    `scaled`, plus a bias, and nothing else where `plain_scores`. A `shared` stack is one module, applied again and
    again. From the module `alone` of a classifier's layer on no token sees another.
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
    transposed: bool = False
    head_bias: str | None = None
    head_norms: tuple[str, str] | None = None
    rotary: bool = False
    bias: str | None = None
    scaled: bool = True
    plain_scores: bool = True
    causal: bool = False
    shared: bool = False
    alone: str | None = None


@dataclass(frozen=True, kw_only=True)
class Generator:
    """A family of models that write text: its stacks, and how its configuration names the sizes of each.

    The names are those of `Sizes`; one that a family does not have is left out.
    """

    stacks: Mapping[str, Layout]
    sizes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`encoder-decoder` or `decoder`."""
        return "encoder-decoder" if len(self.stacks) > 1 else "decoder"


def _maps(path: str, *names: str) -> tuple[str, str, str]:
    query, key, value = (f"{path}.{name}" for name in names)
    return query, key, value


def _t5_inner(path: str) -> tuple[str, ...]:
    """One map, or two where it is gated."""
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

GENERATORS: dict[str, Generator] = {
    "bart": _BART,
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mt5": _T5,
    "qwen2": Generator(stacks={"decoder": _LLAMA_STACK}, sizes={"decoder": _LLAMA_SIZES}),
    "qwen3": Generator(
        stacks={"decoder": replace(_LLAMA_STACK, head_norms=("self_attn.q_norm", "self_attn.k_norm"))},
        sizes={"decoder": _LLAMA_SIZES | {"head_size": "head_dim"}},
    ),
    "t5": _T5,
}
"""SmolLM and its like are of the llama type."""
