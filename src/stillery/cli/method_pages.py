"""Writes what the documents of methods and parts have from the code: `make docs`.

The list of parts, the table of methods, and each method's start, terms, options and defaults. A method that no page has
yet gets a page of its own, to be filled in. All else on the pages is prose, and stays.
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
    """The pages as they are."""
    return {path: path.read_text(encoding="utf-8") for path in (DOCS / "methods.md", *(DOCS / "methods").glob("*.md"))}


def written(pages: Pages) -> Pages:
    """The pages with what they have from the code written again; a page for each file of methods that none is about."""
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
    """A method's section with its start and terms; that of a method that is no more goes."""
    return "" if method is None else _TERMS.sub(lambda _: "\n".join(start_and_terms(method)) + "\n", text)


def _with_options(page: str, known: dict[str, dict[str, Any]]) -> str:
    """A page with its tables of options; what an option does is prose, and stays."""
    named = {found["names"]: re.findall(r"`(.+?)`", found["names"]) for found in _OPTIONS.finditer(page)}
    # An option stands in the table of all the methods that have it alike, or in that of one method alone.
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
    """An option's default and where that comes from; None of a method without it."""
    if option not in method["options"]:
        return None
    return option_value(method["options"][option]), method["sources"][option]


def _row(method: dict[str, Any], option: str, what: str = "") -> str:
    default, source = _cells(method, option) or ("", "")
    return f"| `{option}` | {default} | {source} | {what or option.replace('_', ' ')} |"


def _add(pages: Pages, method: dict[str, Any]) -> None:
    """Put a method on the page of its file, and that page into the list of families."""
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
    """Write the pages that are no longer current, and say which."""
    before = current()
    for path, page in written(before).items():
        if before.get(path) != page:
            path.write_text(page, encoding="utf-8")
            print(f"{path}: written", file=sys.stderr)


if __name__ == "__main__":
    main()
