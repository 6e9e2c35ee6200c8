"""The variants of RAIL-KD of benchmarks/rail_variants.py declare that they depend on the batch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from stillery import declare

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import rail_variants


@pytest.mark.parametrize("variant", [rail_variants.centred, rail_variants.guarded])
def test_a_variant_depends_on_the_batch_says_so_and_is_finite_on_one_row(variant) -> None:
    ((match,),) = [stage.matches for stage in variant().stages]
    facts = declare.facts_of(match.distance)
    assert facts is not None
    assert facts.together
    torch.manual_seed(0)
    states, theirs = torch.randn(4, 8), torch.randn(4, 8)
    whole, halves = (
        match.distance(states, theirs),
        [match.distance(states[i : i + 2], theirs[i : i + 2]) for i in (0, 2)],
    )
    assert abs(whole - torch.stack(halves).mean()) > 1e-4
    assert torch.isfinite(match.distance(states[:1], theirs[:1]))


def test_the_guard_costs_where_states_have_become_equal() -> None:
    ((match,),) = [stage.matches for stage in rail_variants.guarded().stages]
    apart = F.normalize(torch.randn(64, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    equal = apart[:1].expand(64, 8)
    assert match.distance(equal, equal) > 1
    assert match.distance(apart, apart) < 0.2
