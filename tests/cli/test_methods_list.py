"""`stillery methods` starts with the five to try first; then come all others, in groups, a plain line each."""

from __future__ import annotations

import re

import pytest

from stillery import methods
from stillery.declare import Group

FIVE = ["none", "kd", "layer-forward", "pkd", "rail-kd"]


def blocks(said: str) -> dict[str, list[str]]:
    """The lines of the list by their heading."""
    *found, _ = said.split("\n\n")
    return {block.splitlines()[0].removesuffix(":"): block.splitlines()[1:] for block in found}


def test_the_five_to_try_first_and_the_others_in_groups(command):
    found = blocks(command("methods").out)
    first, *others = found
    assert first == "To try first" and [line.split()[0] for line in found[first]] == FIVE
    assert others == [group for group in map(str, Group) if group in others] and len(others) >= 4
    shown = [line.split()[0] for lines in found.values() for line in lines]
    assert len(shown) == len(set(shown)) and set(shown) >= set(methods.names())


def test_the_group_of_a_method_is_said_in_json_too(command):
    found = {one["name"]: one for one in command("methods", "--json").json}
    assert [name for name, one in found.items() if one["try_first"]] == [name for name in found if name in FIVE]
    listed = blocks(command("methods").out)
    for group in listed.keys() - {"To try first"}:
        assert all(found[line.split()[0]]["group"] == group for line in listed[group])
    assert {one["group"] for one in found.values()} <= {*map(str, Group)} - {"To try first"}


@pytest.mark.parametrize("name", methods.names())
def test_a_line_is_plain_and_fits_100_columns(command, name):
    if methods.find(name).group is Group.INSTALLED:
        pytest.skip("a package's own words")
    (line,) = re.findall(rf"^  {name} .*$", command("methods").out, re.MULTILINE)
    assert len(line) <= 100 and line.endswith(".")
    assert not re.search(r"\^|\*|\|| [=+-] |\beq\.|\bKL\b|\bCE\b|_", line), line
