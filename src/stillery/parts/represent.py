"""What of a layer is compared.

Scores are rows over keys: `[batch, heads, tokens, keys]`; padded keys are left out by their mask, and so are the
rows of padded tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stillery import declare
from stillery.parts._wide import wide
from stillery.recipe import Layers, Representation, Shown, View

__all__ = [
    "Normalise",
    "attention",
    "attention_maps",
    "cls",
    "cross_attention",
    "feature",
    "key_relations",
    "layer_angles",
    "layer_relations",
    "mean",
    "normalised_tokens",
    "pool",
    "query_relations",
    "real",
    "samples",
    "token_states",
    "tokens",
    "unmasked_pool",
    "unmasked_tokens",
    "value_relations",
    "with_raw_last",
    "with_relation_heads",
    "word_angles",
    "word_relations",
]


def _cls(stack: Shown, layer: int) -> View:
    return View(stack.hidden[layer][:, 0])


def _all_cls(stack: Shown, layers: Sequence[int]) -> Tensor:
    return torch.stack([stack.hidden[layer][:, 0] for layer in layers])


def _tokens(stack: Shown, layer: int) -> View:
    return View(stack.hidden[layer], stack.mask)


def _normalised_tokens(stack: Shown, layer: int, *, over: Literal["token", "joint"]) -> View:
    states = wide(stack.hidden[layer])
    if over == "token":
        return View(F.layer_norm(states, states.shape[-1:]), stack.mask)
    # Not multiplied: what stands in padding may be anything.
    real = stack.mask.to(torch.bool).unsqueeze(-1)
    elements = (real.sum() * states.shape[-1]).clamp_min(1)
    mean = states.where(real, 0.0).sum() / elements
    variance = (states - mean).where(real, 0.0).square().sum() / elements
    return View((states - mean) * (variance + 1e-5).rsqrt(), stack.mask)


def _pool(stack: Shown, layer: int) -> View:
    # Not by way of `_all_pooled`, which would copy the rows once more.
    states = stack.hidden[layer]
    if states.shape[1] == 1:
        return _cls(stack, layer)
    return View(mean(states, *real(stack.mask, states.dtype)))


_ALONE = 1e4
"""A score so much larger than 0 that nothing is left for what has 0."""


def _all_pooled(stack: Shown, layers: Sequence[int]) -> Tensor:
    states = [stack.hidden[layer] for layer in layers]
    if states[0].shape[1] == 1:
        # Texts of one token, as a teacher's store shows its means again: that token is real.
        return _all_cls(stack, layers)
    # The share of each token in its text's mean, [batch, 1, tokens]: 1 / n where n are real, 0 for padding.
    shares = (torch.softmax(stack.mask * _ALONE, dim=-1, dtype=states[0].dtype) * stack.mask).unsqueeze(1)
    # A product of matrices: one pass over the states each way, where weighing and adding up are two.
    return torch.stack([torch.bmm(shares, each).squeeze(1) for each in states])


def real(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """1 for every real token, [batch, tokens, 1], and how many a text has, [batch, 1]."""
    weights = mask.to(dtype).unsqueeze(-1)
    return weights, weights.sum(1).clamp_min(1)


def mean(states: Tensor, weights: Tensor, count: Tensor) -> Tensor:
    """The mean of those states, [batch, tokens, width], that are `real`."""
    return (states * weights).sum(1) / count


def _unmasked_pool(stack: Shown, layer: int) -> View:
    return View(stack.hidden[layer].mean(1))


def _split(states: Tensor, heads: int) -> Tensor:
    """[batch, tokens, width] to [batch, heads, tokens, width / heads]."""
    cut: Tensor = states.unflatten(-1, (heads, -1))
    return cut.transpose(1, 2)


def _scores(left: Tensor, right: Tensor, heads: int, right_heads: int | None = None) -> Tensor:
    """Scaled dot products between all tokens, [batch, heads, tokens, keys]; several heads may share one of `right`."""
    one, other = _split(left, heads), _split(right, right_heads or heads)
    if right_heads is not None:
        other = other.repeat_interleave(heads // right_heads, dim=1)
    scores: Tensor = one @ other.transpose(-1, -2) / one.shape[-1] ** 0.5
    return scores


def _keys(stack: Shown) -> Tensor:
    """The keys a token looks at: [batch, keys], or [batch, 1, tokens, keys] where it looks at none behind it."""
    if not stack.causal:
        return stack.mask
    real = stack.mask.to(torch.bool)[:, None, None, :]
    return real & torch.ones(real.shape[-1], real.shape[-1], dtype=torch.bool, device=real.device).tril()


def _as_scaled(scores: Tensor, query: Tensor, stack: Shown) -> Tensor:
    """The scores as the stack itself scales them."""
    if stack.scale is None:
        return scores
    factor: float = stack.scale * (query.shape[-1] / stack.heads) ** 0.5
    return scores * factor


def _attention(stack: Shown, layer: int, *, heads: int | None = None) -> View:
    query = stack.rotated_query[layer] if layer in stack.rotated_query else stack.query[layer]
    key = stack.rotated_key[layer] if layer in stack.rotated_key else stack.key[layer]
    if heads is not None:
        # A bias is one for each of the model's own heads, and could not be cut anew.
        if stack.key_heads is not None:
            key = key.unflatten(-1, (stack.key_heads, -1)).repeat_interleave(stack.heads // stack.key_heads, 2)
        return View(_scores(query, key.reshape_as(query), heads), stack.mask, _keys(stack))
    scores = _as_scaled(_scores(query, key, stack.heads, stack.key_heads), query, stack)
    if layer in stack.bias:
        scores = scores + stack.bias[layer]
    return View(scores, stack.mask, _keys(stack))


def _cross_attention(stack: Shown, layer: int, *, heads: int | None = None) -> View:
    query, key = stack.cross_query[layer], stack.cross_key[layer]
    scores = _scores(query, key, heads or stack.heads)
    return View(scores if heads else _as_scaled(scores, query, stack), stack.mask, stack.cross_mask)


def _attention_maps(stack: Shown, layer: int) -> View:
    view = _attention(stack, layer)
    scores, looked_at = wide(view.values), _keys(stack)
    keys = looked_at if stack.causal else looked_at.to(torch.bool)[:, None, None, :]
    maps = scores.masked_fill(~keys, torch.finfo(scores.dtype).min).softmax(-1) * keys
    return View(maps, stack.mask, view.key_mask)


def _relations(stack: Shown, layer: int, *, of: str, heads: int | None = None) -> View:
    states: Tensor = getattr(stack, of)[layer]
    own = stack.heads if of == "query" else stack.key_heads or stack.heads
    return View(_scores(states, states, heads or own), stack.mask, stack.mask)


def _samples(stack: Shown, layer: int) -> View:
    pooled = F.normalize(wide(_pool(stack, layer).values), dim=-1)
    return View(pooled @ pooled.T)


def _word_relations(stack: Shown, layer: int) -> View:
    states = F.normalize(wide(stack.hidden[layer]), dim=-1)
    real = stack.mask.to(torch.bool)
    itself = torch.eye(real.shape[1], dtype=torch.bool, device=real.device)
    return View(states @ states.transpose(1, 2), stack.mask, real[:, None, :] & ~itself)


def _layer_relations(stack: Shown, layers: Layers) -> View:
    assert isinstance(layers, tuple)
    states = F.normalize(wide(torch.stack([stack.hidden[layer] for layer in layers], dim=2)), dim=-1)
    itself = torch.eye(len(layers), dtype=torch.bool, device=states.device)
    # [batch, tokens, layers, layers]: a row per token and layer.
    return View(states @ states.transpose(-1, -2), stack.mask.unsqueeze(-1), ~itself[None, None])


def _angles(states: Tensor, others: Tensor) -> Tensor:
    """Cosines at a state [..., width] between the directions to every two of n others [..., n, width]: [..., n * n]."""
    directions = F.normalize(wide(others) - wide(states).unsqueeze(-2), dim=-1)
    return (directions @ directions.transpose(-1, -2)).flatten(-2)


def _word_angles(stack: Shown, layer: int, *, window: int = 21) -> View:
    states, reach = stack.hidden[layer], window // 2
    near = F.pad(states, (0, 0, reach, reach)).unfold(1, window, 1).transpose(-1, -2)
    real = F.pad(stack.mask.to(torch.bool), (reach, reach)).unfold(1, window, 1).clone()
    real[..., reach] = False  # the word itself
    return View(_angles(states, near), stack.mask, (real.unsqueeze(-1) & real.unsqueeze(-2)).flatten(-2))


def _layer_angles(stack: Shown, layers: Layers) -> View:
    assert isinstance(layers, tuple)
    states = torch.stack([stack.hidden[layer] for layer in layers], dim=2)
    # [batch, tokens, layers (the corner), layers, width]
    others = states.unsqueeze(2).expand(-1, -1, len(layers), -1, -1)
    other = ~torch.eye(len(layers), dtype=torch.bool, device=states.device)
    pairs = (other.unsqueeze(-1) & other.unsqueeze(-2)).flatten(-2)
    return View(_angles(states, others), stack.mask.unsqueeze(-1), pairs[None, None])


cls = declare.representation(
    "cls",
    "the first token's state",
    Representation(name="cls", show=_cls, rows="examples", looks_at="first", show_all=_all_cls),
)
"""The first token's state, [batch, width] (PKD's "patience")."""

feature = Representation(
    name="feature",
    show=lambda stack, layer: View(stack.feature[layer]),
    rows="examples",
    needs=("feature",),
    sized=False,
)
"""What the final linear classifier receives, of the last layer, [batch, width] (SimKD); behind a projector in the
student's head it has the teacher's width."""

tokens = declare.representation(
    "tokens",
    "every real token's state",
    Representation(name="tokens", show=_tokens, rows="tokens", looks_at="real"),
)
"""Every real token's state, [batch, tokens, width], padding masked out."""

normalised_tokens = {
    over: Representation(
        name=f"tokens(normalised by {over})",
        show=partial(_normalised_tokens, over=over),
        rows="tokens",
        looks_at="real",
        together=over == "joint",
    )
    for over in ("token", "joint")
}
"""Token states less their mean, divided by their deviation: of each token (`token`), or of all real tokens of the
batch together (`joint`, as the released layer-selection code does for T5, padding included). The latter depends on who
shares a batch."""

Normalise = Literal["none", "token", "joint"]


def token_states(normalise: Normalise) -> Representation:
    """Token states as they are, or normalised."""
    return tokens if normalise == "none" else normalised_tokens[normalise]


unmasked_tokens = Representation(
    name="unmasked_tokens", show=lambda stack, layer: View(stack.hidden[layer]), rows="examples", together=True
)
"""Every position's state, padding included, as several released codes compare it: it depends on the padding."""

pool = declare.representation(
    "pool",
    "the mean of the real tokens' states",
    Representation(name="pool", show=_pool, rows="examples", looks_at="mean", show_all=_all_pooled),
)
"""The mean of the real tokens' states, [batch, width] (RAIL-KD, eq. 1)."""

unmasked_pool = Representation(name="unmasked_pool", show=_unmasked_pool, rows="examples", together=True)
"""The mean over all positions, padding included, as RAIL-KD prints it: it depends on the padding."""

cross_attention = Representation(
    name="cross_attention",
    show=_cross_attention,
    rows="tokens",
    needs=("cross_query", "cross_key"),
    sized=False,
    heads="own",
    looks_at="real",
)
"""What is compared of `attention`, of a decoder's attention to the encoder: its tokens over the encoder's keys."""

attention = declare.representation(
    "attention",
    "what the attention's softmax receives, head by head",
    Representation(
        name="attention",
        show=_attention,
        rows="tokens",
        needs=("query", "key"),
        sized=False,
        heads="own",
        looks_at="real",
        crossed=cross_attention,
    ),
)
"""What the attention's softmax receives before its mask: QK^T / sqrt(d) per head, and the family's bias."""

attention_maps = Representation(
    name="attention_maps",
    show=_attention_maps,
    rows="tokens",
    needs=("query", "key"),
    sized=False,
    heads="own",
    looks_at="real",
)
"""The attention's probabilities, zero on padded keys."""

query_relations = Representation(
    name="query_relations",
    show=partial(_relations, of="query"),
    rows="tokens",
    needs=("query",),
    sized=False,
    heads="own",
    looks_at="real",
)
"""QQ^T / sqrt(d) per head (MiniLMv2)."""

key_relations = Representation(
    name="key_relations",
    show=partial(_relations, of="key"),
    rows="tokens",
    needs=("key",),
    sized=False,
    heads="own",
    looks_at="real",
)
"""KK^T / sqrt(d) per head (MiniLMv2)."""

value_relations = Representation(
    name="value_relations",
    show=partial(_relations, of="value"),
    rows="tokens",
    needs=("value",),
    sized=False,
    heads="own",
    looks_at="real",
)
"""VV^T / sqrt(d) per head (MiniLM)."""

samples = declare.representation(
    "samples",
    "cosines between the examples of a batch",
    Representation(name="samples", show=_samples, rows="examples", sized=False, looks_at="mean", together=True),
)
"""Cosines between the examples of a batch, [batch, batch]: it depends on who shares a batch."""

word_relations = declare.representation(
    "word-relations",
    "cosines between the words of a text",
    Representation(
        name="word_relations",
        show=_word_relations,
        rows="tokens",
        sized=False,
        looks_at="real",
        reduction="rowmean",
    ),
)
"""Cosines between the words of a text, [batch, tokens, keys], without a word and itself (CKD, Park et al.)."""

layer_relations = Representation(
    name="layer_relations", show=_layer_relations, rows="tokens", joint=True, sized=False, looks_at="real"
)
"""Cosines between a word's states in several layers, [batch, tokens, layers, layers] (CKD, Park et al.)."""


word_angles = Representation(name="word_angles", show=_word_angles, rows="tokens", sized=False, looks_at="real")
"""At each word the cosines between the directions to every two others within 10 words, [batch, tokens, 441] (CKD)."""

layer_angles = Representation(
    name="layer_angles", show=_layer_angles, rows="tokens", joint=True, sized=False, looks_at="real"
)
"""At each layer the cosines between the directions to every two others, of one word (CKD)."""


def with_raw_last(states: Representation) -> Representation:
    """States whose last one is taken before the norm behind the last layer, as all before it are."""
    return replace(states, name=f"{states.name}, raw last", raw_last=True)


def with_relation_heads(relations: Representation, heads: int | None = None) -> Representation:
    """Relations with the states of all heads merged and cut into this many relation heads, the teacher's where None.

    MiniLMv2: teacher and student then have the same number of maps, whatever their own head counts are. Attention
    scores on relation heads are QK^T / sqrt(d) without a family's bias.
    """
    crossed = relations.crossed and with_relation_heads(relations.crossed, heads)
    return replace(
        relations,
        crossed=crossed,
        name=f"{relations.name}({heads or 'teacher'} heads)",
        show=partial(relations.show, heads=heads) if heads else relations.show,
        heads=heads or "teacher",
    )


declare.representation(
    "query-relations",
    "dot products of the queries, on the teacher's number of heads",
    with_relation_heads(query_relations),
)
declare.representation(
    "key-relations", "dot products of the keys, on the teacher's number of heads", with_relation_heads(key_relations)
)
declare.representation(
    "value-relations",
    "dot products of the values, on the teacher's number of heads",
    with_relation_heads(value_relations),
)
