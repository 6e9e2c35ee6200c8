"""Write a report to a file: `stillery report`, without a server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stillery.atomic import atomic_file
from stillery.errors import UserError
from stillery.jobs.output_paths import check_new
from stillery.reports.places import find_sources

__all__ = ["check_report", "write_report"]


def check_report(out: Path, *, overwrite: bool = False) -> None:
    """Raise UserError for a file that cannot be written, or exists; with `overwrite` it may exist."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out {out}: a report is a page; give a name that ends with .html")
    if out.is_dir():
        raise UserError(f"--out {out} is a folder: give the name of a file")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}; make it, or give another name")
    if not overwrite:
        check_new([out], "--out")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: cannot be written (no permission for the folder {out.parent})")


def write_report(places: Sequence[str], out: Path, *, overwrite: bool = False) -> Path:
    """Write the report of studies, run folders and analyses to one HTML file; returns its path."""
    check_report(out, overwrite=overwrite)
    find_sources(places)
    # Slips in names are reported before torch is loaded.
    from stillery.reports.build import build
    from stillery.reports.page import page

    text = page(build(places))
    try:
        with atomic_file(out) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written ({error.strerror or error})") from None
    return out
