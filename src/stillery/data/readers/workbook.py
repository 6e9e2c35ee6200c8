"""Reader of Excel workbooks (.xlsx) with one non-empty sheet of a header and rows; cells keep their types."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile

import pyarrow as pa

from stillery.data.readers.formats import READ_ERRORS
from stillery.data.readers.jsonlines import typed_rows
from stillery.errors import UserError
from stillery.lines import listed

__all__ = ["read_workbook"]

# Errors that openpyxl raises for files that are damaged or not workbooks.
DAMAGED = (BadZipFile, ParseError, KeyError, ValueError, TypeError, AttributeError, *READ_ERRORS)
TIMES = (datetime.date, datetime.time, datetime.timedelta)

Cells = tuple[Any, ...]


def read_workbook(path: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Stream the rows of a workbook's only non-empty sheet; empty rows are skipped."""
    try:
        import openpyxl
    except ImportError:
        raise UserError(
            f'{path.name}: reading a workbook needs openpyxl: pip install "stillery[excel]", or export it as CSV'
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {
            sheet.title: rows for sheet in book.worksheets if (rows := _filled(sheet.iter_rows(values_only=True)))
        }
        book.close()
    except DAMAGED as error:
        reason = str(error).split("\n")[0][:100]
        raise UserError(f"{path}: not a readable workbook ({reason}); save it again, or export it as CSV") from None
    if not sheets:
        raise UserError(f"{path}: the file is empty; it needs a header line and rows")
    if len(sheets) > 1:
        raise UserError(
            f"{path.name}: {len(sheets)} sheets have something in them ({listed(sheets, 5)}); "
            "keep one in the file, or export one as CSV"
        )
    header, *rows = next(iter(sheets.values()))
    names = _names(path, header, rows)
    if not rows:
        raise UserError(f"{path}: the file has a header but no rows")
    for start in range(0, len(rows), batch_rows):
        chunk = [dict(enumerate(map(_plain, row))) for row in rows[start : start + batch_rows]]
        places = [str(place) for place in range(len(names)) if names[place]]
        records = [{place: record.get(int(place)) for place in places} for record in chunk]
        batch = typed_rows(records, places, start + 1)
        yield batch.rename_columns([names[int(place)] for place in places])


def _filled(rows: Iterator[Cells]) -> list[Cells]:
    return [row for row in rows if any(_plain(cell) is not None for cell in row)]


def _names(path: Path, header: Cells, rows: Sequence[Cells]) -> list[str]:
    """The column names, empty for an empty column; raise UserError for values in a column without a name."""
    names = ["" if _plain(cell) is None else str(cell).strip() for cell in header]
    width = max(map(len, [header, *rows]))
    names += [""] * (width - len(names))
    for place, name in enumerate(names):
        below = next((n for n, row in enumerate(rows, 1) if place < len(row) and _plain(row[place]) is not None), None)
        if not name and below is not None:
            raise UserError(
                f"{path.name}, row {below}: a value in column {place + 1}, which has no name in the header; name it"
            )
    return names


def _plain(cell: Any) -> Any:
    """The value of a cell as text or a number; None if it is empty."""
    if isinstance(cell, str):
        return cell if cell.strip() else None
    return str(cell) if isinstance(cell, TIMES) else cell
