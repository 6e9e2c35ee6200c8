"""Representations of relations: attention scores, query, key and value relations, cosines and angles between states.

Relations are rows of scores over keys, [batch, heads, tokens, keys]. Masks leave out padded keys, and the rows of
padded tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from stillery import declare
from stillery.outputs import StackOutputs
from stillery.parts._wide import wide
from stillery.recipe import Layers, Need, Representation, View

__all__ = [
    "attention",
    "attention_maps",
    "cross_attention",
    "key_relations",
    "layer_angles",
    "layer_relations",
    "query_relations",
    "value_relations",
    "with_relation_heads",
    "word_angles",
    "word_relations",
]


def _split(states: Tensor, heads: int) -> Tensor:
    """[batch, tokens, width] to [batch, heads, tokens, width / heads]."""
    parts: Tensor = states.unflatten(-1, (heads, -1))
    return parts.transpose(1, 2)


def _scores(left: Tensor, right: Tensor, heads: int, right_heads: int | None = None) -> Tensor:
    """Scaled dot products, [batch, heads, tokens, keys]; a head of `right` may serve several heads of `left`."""
    one, other = _split(left, heads), _split(right, right_heads or heads)
    if right_heads is not None:
        other = other.repeat_interleave(heads // right_heads, dim=1)
    scores: Tensor = one @ other.transpose(-1, -2) / one.shape[-1] ** 0.5
    return scores


def _keys(stack: StackOutputs) -> Tensor:
    """The keys each token attends to: [batch, keys], or [batch, 1, tokens, keys] with causal attention."""
    if not stack.causal:
        return stack.mask
    real = stack.mask.to(torch.bool)[:, None, None, :]
    return real & torch.ones(real.shape[-1], real.shape[-1], dtype=torch.bool, device=real.device).tril()


def _as_scaled(scores: Tensor, query: Tensor, stack: StackOutputs) -> Tensor:
    """The scores with the model's own scale instead of 1 / sqrt(d)."""
    if stack.scale is None:
        return scores
    factor: float = stack.scale * (query.shape[-1] / stack.heads) ** 0.5
    return scores * factor


def _attention(stack: StackOutputs, layer: int, *, heads: int | None = None) -> View:
    query = stack.rotated_query[layer] if layer in stack.rotated_query else stack.query[layer]
    key = stack.rotated_key[layer] if layer in stack.rotated_key else stack.key[layer]
    if heads is not None:
        # Without the bias, which has one value for each of the model's own heads.
        if stack.key_heads is not None:
            key = key.unflatten(-1, (stack.key_heads, -1)).repeat_interleave(stack.heads // stack.key_heads, 2)
        return View(_scores(query, key.reshape_as(query), heads), stack.mask, _keys(stack))
    scores = _as_scaled(_scores(query, key, stack.heads, stack.key_heads), query, stack)
    if layer in stack.bias:
        scores = scores + stack.bias[layer]
    return View(scores, stack.mask, _keys(stack))


def _cross_attention(stack: StackOutputs, layer: int, *, heads: int | None = None) -> View:
    query, key = stack.cross_query[layer], stack.cross_key[layer]
    scores = _scores(query, key, heads or stack.heads)
    return View(scores if heads else _as_scaled(scores, query, stack), stack.mask, stack.cross_mask)


def _attention_maps(stack: StackOutputs, layer: int) -> View:
    view = _attention(stack, layer)
    scores, attended = wide(view.values), _keys(stack)
    keys = attended if stack.causal else attended.to(torch.bool)[:, None, None, :]
    maps = scores.masked_fill(~keys, torch.finfo(scores.dtype).min).softmax(-1) * keys
    return View(maps, stack.mask, view.key_mask)


def _relations(stack: StackOutputs, layer: int, *, of: str, heads: int | None = None) -> View:
    states: Tensor = getattr(stack, of)[layer]
    own = stack.heads if of == "query" else stack.key_heads or stack.heads
    return View(_scores(states, states, heads or own), stack.mask, stack.mask)


def _word_relations(stack: StackOutputs, layer: int) -> View:
    states = F.normalize(wide(stack.hidden[layer]), dim=-1)
    real = stack.mask.to(torch.bool)
    itself = torch.eye(real.shape[1], dtype=torch.bool, device=real.device)
    return View(states @ states.transpose(1, 2), stack.mask, real[:, None, :] & ~itself)


def _layer_relations(stack: StackOutputs, layers: Layers) -> View:
    assert isinstance(layers, tuple)
    states = F.normalize(wide(torch.stack([stack.hidden[layer] for layer in layers], dim=2)), dim=-1)
    itself = torch.eye(len(layers), dtype=torch.bool, device=states.device)
    # [batch, tokens, layers, layers]: a row per token and layer.
    return View(states @ states.transpose(-1, -2), stack.mask.unsqueeze(-1), ~itself[None, None])


def _angles(states: Tensor, others: Tensor) -> Tensor:
    """Cosines at a state [..., width] between the directions to every two of n others [..., n, width]: [..., n * n]."""
    directions = F.normalize(wide(others) - wide(states).unsqueeze(-2), dim=-1)
    return (directions @ directions.transpose(-1, -2)).flatten(-2)


def _word_angles(stack: StackOutputs, layer: int, *, window: int = 21) -> View:
    states, reach = stack.hidden[layer], window // 2
    near = F.pad(states, (0, 0, reach, reach)).unfold(1, window, 1).transpose(-1, -2)
    real = F.pad(stack.mask.to(torch.bool), (reach, reach)).unfold(1, window, 1).clone()
    real[..., reach] = False  # the word itself
    return View(_angles(states, near), stack.mask, (real.unsqueeze(-1) & real.unsqueeze(-2)).flatten(-2))


def _layer_angles(stack: StackOutputs, layers: Layers) -> View:
    assert isinstance(layers, tuple)
    states = torch.stack([stack.hidden[layer] for layer in layers], dim=2)
    # [batch, tokens, layers (the corner), layers, width]
    others = states.unsqueeze(2).expand(-1, -1, len(layers), -1, -1)
    other = ~torch.eye(len(layers), dtype=torch.bool, device=states.device)
    pairs = (other.unsqueeze(-1) & other.unsqueeze(-2)).flatten(-2)
    return View(_angles(states, others), stack.mask.unsqueeze(-1), pairs[None, None])


def _between_tokens(
    name: str, extract: Callable[..., View], *needs: Need, crossed: Representation | None = None
) -> Representation:
    """A representation of scores between tokens, head by head."""
    return Representation(
        name=name, extract=extract, rows="tokens", needs=needs, sized=False, heads="own", reads="real", crossed=crossed
    )


cross_attention = _between_tokens("cross_attention", _cross_attention, "cross_query", "cross_key")
"""The scores of a decoder's attention to the encoder, of the decoder's tokens over the encoder's keys."""

attention = declare.representation(
    "attention",
    "attention scores before the softmax, head by head",
    _between_tokens("attention", _attention, "query", "key", crossed=cross_attention),
)
"""The attention scores before mask and softmax: QK^T / sqrt(d) per head, and the family's bias."""

attention_maps = _between_tokens("attention_maps", _attention_maps, "query", "key")
"""The attention probabilities, zero on padded keys."""

query_relations = _between_tokens("query_relations", partial(_relations, of="query"), "query")
"""QQ^T / sqrt(d) per head (MiniLMv2)."""

key_relations = _between_tokens("key_relations", partial(_relations, of="key"), "key")
"""KK^T / sqrt(d) per head (MiniLMv2)."""

value_relations = _between_tokens("value_relations", partial(_relations, of="value"), "value")
"""VV^T / sqrt(d) per head (MiniLM)."""

word_relations = declare.representation(
    "word-relations",
    "cosines between the words of a text",
    Representation(
        name="word_relations", extract=_word_relations, rows="tokens", sized=False, reads="real", reduction="rowmean"
    ),
)
"""Cosines between the words of a text, [batch, tokens, keys], without a word and itself (CKD, Park et al.)."""

layer_relations = Representation(
    name="layer_relations", extract=_layer_relations, rows="tokens", joint=True, sized=False, reads="real"
)
"""Cosines between a word's states in several layers, [batch, tokens, layers, layers] (CKD, Park et al.)."""

word_angles = Representation(name="word_angles", extract=_word_angles, rows="tokens", sized=False, reads="real")
"""At each word the cosines between the directions to every two others within 10 words, [batch, tokens, 441] (CKD)."""

layer_angles = Representation(
    name="layer_angles", extract=_layer_angles, rows="tokens", joint=True, sized=False, reads="real"
)
"""At each layer the cosines between the directions to every two others, of one word (CKD)."""


def with_relation_heads(relations: Representation, heads: int | None = None) -> Representation:
    """The same relations on this number of relation heads, the teacher's number where None (MiniLMv2).

    The states of all heads are concatenated and split into relation heads. So teacher and student have the same number
    of maps, whatever their own numbers of heads are. Attention scores are then QK^T / sqrt(d) without a family's bias.
    """
    crossed = relations.crossed and with_relation_heads(relations.crossed, heads)
    return replace(
        relations,
        crossed=crossed,
        name=f"{relations.name}({heads or 'teacher'} heads)",
        extract=partial(relations.extract, heads=heads) if heads else relations.extract,
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
