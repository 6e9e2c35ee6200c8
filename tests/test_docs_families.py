"""The table of model families says what tiny models of them do."""

from __future__ import annotations

import re

import pytest

from stillery.api.loop import families
from stillery.models.family import FAMILIES
from stillery.models.stack_layout import GENERATORS

PAGE = families.PAGE.read_text(encoding="utf-8")


def stated(family: str) -> list[str]:
    """The cells of a family's row, with reasons in place of their numbers."""
    reasons = dict(re.findall(r"^(\d+)\. (.+)$", PAGE, flags=re.MULTILINE))
    (row,) = re.findall(rf"^\| `{family}`.*?\| (.+) \|$", PAGE, flags=re.MULTILINE)
    cells = [cell.strip() for cell in row.split("|")]
    return [re.sub(r"^no \((\d+)\)$", lambda found: reasons[found[1]], cell) for cell in cells]


@pytest.mark.parametrize("family", ["bert", pytest.param("deberta-v2", marks=pytest.mark.slow), "qwen3", "t5"])
def test_a_row_says_what_its_family_does(family: str) -> None:
    pytest.importorskip("onnxscript")
    row = families.row_of(family)
    assert stated(family) == [row.kind, *(reason or "yes" for reason in row.cells)]


def test_every_supported_family_has_a_row_and_others_are_named() -> None:
    rows = re.findall(r"^\| `([\w-]+)`", PAGE, flags=re.MULTILINE)
    assert rows == [*FAMILIES, *GENERATORS]
    assert families.row_of("opt").refused[0] == families.row_of("opt").refused[-1]
    assert "model type 'opt' is not supported" in str(families.row_of("opt").refused[0])
    assert "`opt`" in PAGE and not {"opt", "gemma2"} & set(rows)


@pytest.mark.slow
def test_the_whole_table_is_current() -> None:
    pytest.importorskip("onnxscript")
    rows = [families.row_of(family) for family in families.tried()]
    assert families.written(PAGE, rows) == PAGE, "write it again: make docs"
