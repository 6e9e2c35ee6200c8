"""Generate the sections of the method and part documents that come from the code: `make docs`.

These are the list of parts, the table of methods, and each method's initialisation, terms, options and defaults. A
method without a page gets one, to be filled in. All other text on the pages is kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stillery import methods
from stillery.cli.methods import method_table, option_value, parts_listed, start_and_terms

__all__ = ["current", "written"]

DOCS = Path(__file__).parents[3] / "docs"

_TABLE = re.compile(r"(?s)(?<=<!-- generated: stillery methods --markdown, its table -->\n).*?(?=<!-- end -->)")
_PARTS = re.compile(r"(?s)(?<=<!-- generated: stillery methods --parts -->\n```\n).*?(?=```\n<!-- end parts -->)")
_SECTION = re.compile(r"^## `(?P<name>[^`\n]+)`\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_TERMS = re.compile(r"^Student: starts .*\n\n(?:- `.*\n)+", re.MULTILINE)
_OPTIONS = re.compile(
    r"^(?P<head>Options of (?P<names>.*):\n\n\| option .*\n\|[-|]+\n)(?P<rows>(?:\|.*\n)+)", re.MULTILINE
)
_FAMILY = "| [Models that generate text](methods/generation.md)"

Pages = dict[Path, str]


def current() -> Pages:
    """Return the current pages."""
    return {path: path.read_text(encoding="utf-8") for path in (DOCS / "methods.md", *(DOCS / "methods").glob("*.md"))}


def written(pages: Pages) -> Pages:
    """Return the pages with their generated sections renewed, and new pages for files of methods without one."""
    known = {name: methods.describe(name) for name in methods.names()}
    pages = dict(pages)
    there = {found["name"] for page in pages.values() for found in _SECTION.finditer(page)}
    for name in known.keys() - there:
        _add(pages, known[name])
    for path, page in pages.items():
        page = _TABLE.sub(lambda _: method_table(list(known.values())) + "\n", page)
        page = _PARTS.sub(lambda _: parts_listed(), page)
        page = _SECTION.sub(lambda found: _section(found[0], known.get(found["name"])), page)
        pages[path] = _with_options(page, known)
    return pages


def _section(text: str, method: dict[str, Any] | None) -> str:
    """Return a method's section with its initialisation and terms renewed; empty for a method that was removed."""
    return "" if method is None else _TERMS.sub(lambda _: "\n".join(start_and_terms(method)) + "\n", text)


def _with_options(page: str, known: dict[str, dict[str, Any]]) -> str:
    """Return a page with its tables of options renewed; the descriptions of options are kept."""
    named = {found["names"]: re.findall(r"`(.+?)`", found["names"]) for found in _OPTIONS.finditer(page)}
    # An option is in the shared table of the methods that have it with the same default, or in a method's own.
    placed: dict[str, set[str]] = {name: set() for names in named.values() for name in names}

    def table(found: re.Match[str]) -> str:
        names = [name for name in named[found["names"]] if name in known]
        rows = [[cell.strip() for cell in row.split("|")[1:5]] for row in found["rows"].splitlines()]
        lines = []
        for option, *_, what in rows:
            option = option.strip("`")
            cells = {_cells(known[name], option) for name in names}
            if len(cells) == 1 and None not in cells:
                lines.append(_row(known[names[0]], option, what))
                for name in names:
                    placed[name].add(option)
        last = [other for other, inside in named.items() if set(names) & set(inside)][-1] == found["names"]
        for name in names if last else []:
            if len(names) > 1 and (missing := known[name]["options"].keys() - placed[name]):
                raise SystemExit(f"{name}: {', '.join(sorted(missing))} not in a table alike: give it one of its own")
            lines += [_row(known[name], option) for option in known[name]["options"] if option not in placed[name]]
        return found["head"] + "\n".join(lines) + "\n"

    return _OPTIONS.sub(table, page)


def _cells(method: dict[str, Any], option: str) -> tuple[str, str] | None:
    """Return an option's default and its source; None for a method without the option."""
    if option not in method["options"]:
        return None
    return option_value(method["options"][option]), method["sources"][option]


def _row(method: dict[str, Any], option: str, what: str = "") -> str:
    default, source = _cells(method, option) or ("", "")
    return f"| `{option}` | {default} | {source} | {what or option.replace('_', ' ')} |"


def _add(pages: Pages, method: dict[str, Any]) -> None:
    """Add a method to the page of its file, and a new page to the list of families."""
    file = methods.find(method["name"]).function.__module__.rpartition(".")[2].replace("_", "-")
    path, families = DOCS / "methods" / f"{file}.md", DOCS / "methods.md"
    if path not in pages:
        title = method["paper"].rstrip(".")
        pages[path] = "\n".join(
            _lines(f"# {title}", "## Options", "## Measured", "Not yet.", "## Known limits", "Not known yet.")
        )
        row = f"| [{title}](methods/{file}.md) | `{method['name']}` |\n"
        pages[families] = pages[families].replace(_FAMILY, row + _FAMILY)
    section = _lines(
        f"## `{method['name']}`", f"Paper: {method['paper']}.", method["details"] or method["summary"],
        "The equation is the paper's.", "\n".join(start_and_terms(method)), "**When to use:** not measured yet.",
    )  # fmt: skip
    rows = "\n".join(["| option | default | from | what it does |", "|---|---|---|---|", *_rows(method)])
    page = pages[path].replace("## Options\n", "\n".join([*section, "## Options\n"]), 1)
    options = _lines(f"Options of `{method['name']}`:", rows)
    pages[path] = page.replace("## Measured\n", "\n".join([*options, "## Measured\n"]), 1)


def _rows(method: dict[str, Any]) -> Iterator[str]:
    return (_row(method, option) for option in method["options"])


def _lines(*blocks: str) -> list[str]:
    return [line for block in blocks for line in (block, "")]


def main() -> None:
    """Write the pages that are out of date, and print their paths."""
    before = current()
    for path, page in written(before).items():
        if before.get(path) != page:
            path.write_text(page, encoding="utf-8")
            print(f"{path}: written", file=sys.stderr)


if __name__ == "__main__":
    main()
