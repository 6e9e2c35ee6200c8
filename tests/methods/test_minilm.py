"""MiniLM and MiniLMv2 against numpy: KL of softmaxed relations of the last layer, mean over heads and real tokens."""

from __future__ import annotations

import pytest
from changed_options import Options
from fixed_traces import case
from plain_numpy import attention, hard, relations, row_kl, same, seen, soft

from stillery.recipe import Clock


@pytest.mark.parametrize("size", [(2, 4, 12), (2, 4, 8), (3, 6, 8)])
def test_minilm(size: tuple[int, int, int]) -> None:
    at = case(*size)
    found, projections, _ = at.terms("minilm")
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    values = relations(ours.value[size[0]], 4), relations(theirs.value[size[1]], 4)
    assert not projections
    same(
        found,
        {
            "attention": row_kl(attention(ours, size[0]), attention(theirs, size[1])),
            "value_relations": row_kl(*values),
        },
    )


@pytest.mark.parametrize(("width", "heads"), [(12, 4), (8, 4), (8, 2), (12, 3), (12, 6)])
@pytest.mark.parametrize("relation_heads", [None, 2, 1])
def test_minilm_v2(width: int, heads: int, relation_heads: int | None) -> None:
    at = case(2, 4, width, heads)
    found, _, _ = at.terms("minilm-v2", relation_heads=relation_heads)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    cut = relation_heads or 4
    same(
        found,
        {
            f"{of}_relations": row_kl(relations(getattr(ours, of)[2], cut), relations(getattr(theirs, of)[4], cut))
            for of in ("query", "key", "value")
        },
    )


@pytest.mark.parametrize("name", ["minilm", "minilm-v2"])
def test_prediction(name: str) -> None:
    at = case()
    found, _, _ = at.terms(name, Clock(stage=1))
    ours, theirs = seen(at.student["plain"]).logits, seen(at.teacher["plain"]).logits
    same(found, {"hard": hard(ours), "soft": soft(ours, theirs, 2)})


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard", "weight soft"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_share": (2.0, {"shares"}),
        "least_steps": (50, {"least steps"}),
        "value_weight": (2.0, {"weight value_relations"}),
    }
    Options("minilm", case(), rows | {"attention_weight": (2.0, {"weight attention"})}).check()
    rows |= {
        "query_weight": (2.0, {"weight query_relations"}),
        "key_weight": (2.0, {"weight key_relations"}),
        "relation_heads": (2, {"query_relations", "key_relations", "value_relations"}),
    }
    Options("minilm-v2", case(), rows).check()
