"""Tables as Markdown, LaTeX (booktabs), CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stillery.atomic import atomic_file
from stillery.lines import markdown_text, sheet_cell
from stillery.study.statistics import Conclusions
from stillery.study.tables import Entry, Table, tables

__all__ = ["as_csv", "as_json", "as_latex", "as_markdown", "write_tables"]

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    # Signs of numbers; text mode would set hyphens.
    "-": "-",
}  # fmt: skip


def as_markdown(table: Table) -> str:
    """A table with its notes and its reading as GitHub's Markdown."""
    lines = [f"## {markdown_text(table.title)}", "", _bar(table.columns), "|" + "---|" * len(table.columns)]
    lines += [_bar([f"**{_plain(one)}**" if one.bold else _plain(one) for one in row]) for row in table.rows]
    return "\n".join([*lines, "", markdown_text(" ".join(table.notes)), "", _unrun(table.reading), ""])


def _unrun(text: str) -> str:
    return "\n".join(map(markdown_text, text.split("\n")))


def as_latex(table: Table) -> str:
    """A table as LaTeX; its preamble needs `booktabs`. Notes and reading are in the caption."""
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
        r"\toprule",
        _latex_row([_latex(name) for name in table.columns]),
        r"\midrule",
        *(_latex_row([_latex_entry(one) for one in row]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{_latex(' '.join([table.title + '.', *table.notes, table.reading]))}}}",
        rf"\label{{tab:{re.sub(r'[^A-Za-z0-9-]', '-', table.name)}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def as_csv(table: Table) -> str:
    """The numbers of a table in full, a line for each row (and task); an empty cell is a number there is not."""
    records = [{name: sheet_cell(value) for name, value in _flat(record).items()} for record in table.records]
    columns = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_json(found: Conclusions, *, margin: float | None = None) -> str:
    """Everything: settings, tables with all digits and readings, and what a critical-difference diagram draws."""
    difference = None if found.overall is None else found.overall.difference
    listed = tables(found, margin=margin)
    value = {
        "level": found.level,
        "baselines": list(found.baselines),
        "seeds": list(found.results.seeds),
        "tables": [
            {"name": one.name, "title": one.title, "notes": one.notes, "reading": one.reading, "rows": one.records}
            for one in listed
        ],
        "critical_difference": None if difference is None else asdict(difference),
    }
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_tables(folder: Path, found: Conclusions, *, margin: float | None = None) -> list[Path]:
    """Write all tables to a folder: `tables.md`, `tables.tex`, a CSV file each, `tables.json`; gives their paths."""
    listed = tables(found, margin=margin)
    texts = {
        "tables.md": "\n".join(as_markdown(one) for one in listed),
        "tables.tex": "\n".join(as_latex(one) for one in listed),
        "tables.json": as_json(found, margin=margin),
    }
    texts |= {f"{_file_name(one.name)}.csv": as_csv(one) for one in listed}
    for name, text in texts.items():
        with atomic_file(folder / name) as part:
            part.write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _bar(entries: Sequence[str]) -> str:
    return f"| {' | '.join(entries)} |"


def _plain(one: Entry) -> str:
    return re.sub(r"([|*_`<\\])", r"\\\1", " ".join(one.text.split()))


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_entry(one: Entry) -> str:
    # A sign in front of a number is a minus.
    text = re.sub(r"(?<![\w.])-(?=\d)", "$-$", _latex(one.text))
    return rf"\textbf{{{text}}}" if one.bold else text


def _latex_row(entries: Sequence[str]) -> str:
    return " & ".join(entries) + r" \\"


def _flat(record: Any, prefix: str = "") -> dict[str, Any]:
    """A record without mappings and lists in it; None is an empty cell."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}_")
        elif isinstance(value, (list, tuple)):
            found[prefix + name] = " ".join(str(one) for one in value)
        else:
            found[prefix + name] = "" if value is None else value
    return found


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name)
