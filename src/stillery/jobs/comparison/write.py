"""Write a comparison to a file: a table in Markdown, or rows in any supported output format."""

from __future__ import annotations

from pathlib import Path

from stillery.atomic import atomic_file
from stillery.data.readers.formats import format_of
from stillery.data.readers.writer import write_rows
from stillery.errors import UserError
from stillery.jobs.comparison.result import Comparison
from stillery.jobs.output_paths import check_file
from stillery.lines import sheet_cell

__all__ = ["check_table", "write_table"]


def check_table(path: Path) -> None:
    """Raise UserError if the file cannot be written."""
    if not _is_markdown(path):
        check_file(path, "--out")
    elif path.is_dir() or not path.parent.is_dir():
        raise UserError(f"--out {path}: a folder, or a file in none: give a file name in a folder that exists")


def write_table(path: Path, found: Comparison) -> None:
    """Write the table atomically."""
    if not _is_markdown(path):
        rows = found.records()
        with write_rows(path, list(rows[0])) as writer:
            # JSON and Parquet are for programs, which run no formulas.
            cell = sheet_cell if format_of(path) in ("csv", "tsv") else lambda value: value
            writer.write({name: [cell(row[name]) for row in rows] for name in rows[0]})
        return
    try:
        with atomic_file(path) as part:
            part.write_text(found.markdown(), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out {path}: cannot be written ({error.strerror or error})") from None


def _is_markdown(path: Path) -> bool:
    return path.suffix.lower() == ".md"
