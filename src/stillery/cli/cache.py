"""The command `stillery cache`."""

from __future__ import annotations

from typing import Annotated

import typer

from stillery.errors import UserError
from stillery.lines import plain

__all__ = ["cache"]


def cache(
    action: Annotated[str, typer.Argument(help="list, or clear to remove everything.")] = "list",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show or clear the cache: tokens and teacher outputs."""
    from stillery.cli.show import print_json
    from stillery.data.cache.folder import GIGABYTE, find_cache

    if action not in ("list", "clear"):
        raise UserError(f"cache {action}: choose list or clear")
    found = find_cache()
    if found is None:
        raise UserError("the cache is turned off (STILLERY_CACHE=off)")
    entries = found.clear() if action == "clear" else found.entries()
    total = sum(entry.bytes for entry in entries)
    if json:
        rows = [{"kind": e.kind, "about": e.about, "bytes": e.bytes, "folder": str(e.path)} for e in entries]
        print_json({"folder": str(found.folder), "limit": found.limit, "bytes": total, action: rows})
        return
    if action == "list":
        for entry in entries:
            print(f"{entry.kind:<8} {entry.bytes / 1e6:>9,.1f} MB  {plain(entry.about)}")
    done = "removed from" if action == "clear" else "in"
    noun = "entry" if len(entries) == 1 else "entries"
    limit = f"limit {found.limit / GIGABYTE:g} GB a kind; teacher outputs: --cache-limit"
    print(f"{len(entries)} {noun}, {total / 1e6:,.1f} MB, {done} {found.folder} ({limit})")
    left = found.entries() if action == "clear" else []
    if left:
        print(f"{len(left)} more in use by other runs, or not to be removed from here; clear again later")
