"""The figures that `stillery analyse` wrote, as figures of a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillery.reports.content import Chart, Figure
from stillery.small_files import read_json

__all__ = ["read_analyses"]

_LARGEST = 1_000_000
"""Bytes of a specification: a larger one would make the page too large to open fast."""


def read_analyses(files: Sequence[Path]) -> tuple[list[Figure], list[str]]:
    """Return the figures in files of analyses, and why other files are left out."""
    found: list[Figure] = []
    left_out: list[str] = []
    for file in files:
        try:
            found.append(_figure(read_json(file)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:120]
            left_out.append(f"{file}: not as stillery analyse writes it ({reason})")
    return found, left_out


def _figure(value: Any) -> Figure:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    spec = value["spec"]
    if not isinstance(spec, dict):
        raise ValueError("its spec is no object")
    # A page must not ask for anything, and a specification not say how it is embedded.
    spec = {name: one for name, one in spec.items() if name not in ("usermeta", "$schema", "config")}
    if _asks_for_more(spec):
        raise ValueError("its chart asks for data from elsewhere")
    title, sentence = str(value["title"]), str(value["sentence"])
    # Raises ValueError for what a page cannot hold: NaN, and halves of surrogate pairs.
    if len(json.dumps([title, sentence, spec], allow_nan=False, ensure_ascii=False).encode()) > _LARGEST:
        raise ValueError(f"its chart is larger than {_LARGEST / 1e6:g} MB")
    charts = [Chart(spec={"description": title} | spec)]
    return Figure(title=title, short=title, caption=sentence, charts=charts)


def _asks_for_more(value: Any) -> bool:
    if isinstance(value, dict):
        data = value.get("data")
        return (isinstance(data, dict) and "url" in data) or any(_asks_for_more(one) for one in value.values())
    return isinstance(value, list) and any(_asks_for_more(one) for one in value)
