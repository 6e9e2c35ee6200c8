"""Where in a TOML file each key stands, which `tomllib` does not tell."""

from __future__ import annotations

import re
import tomllib
from typing import Any

__all__ = ["Lines"]

Place = tuple[str, ...]
"""The names that lead to a key, from the outermost table on; items of a list by their number."""

_MOST = 2 * 10**6
"""Characters that are looked at, again and again, in search of keys; then the line of the table has to do."""

_HEADER = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


class Lines:
    r"""The line of every key and table of a valid TOML text, counted from 1.

    >>> lines = Lines("seeds = [0]\n[methods.kd]\ntemperature = 2\nlist = [\n  1,\n]\nlast = 1")
    >>> [lines.of(*place) for place in (("seeds",), ("methods", "kd", "temperature"), ("methods", "kd", "last"))]
    [1, 3, 7]
    >>> lines.of("methods", "kd", "unheard-of")
    2
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Place, int] = {}
        self._tables: dict[Place, int] = {}
        self._left = _MOST
        lines = text.splitlines()
        table: Place = ()
        row = 0
        while row < len(lines) and self._left >= 0:
            header, key = _HEADER.match(lines[row]), _KEY.match(lines[row])
            end = row + 1
            # A line such as `[1, 2],` belongs to a value, which has been passed over; this one begins something.
            if header is not None and key is None:
                table = self._header(_names(header[2]), header[1] == "[[")
                self._note(table, row)
            elif key is not None:
                end = self._end(lines, row)
                place = (*table, *_names(key[1]))
                self._note(place, row)
                self._inside(place, lines, row, end)
            row = end

    def of(self, *place: str) -> int:
        """The line of a key; of one that is not there, that of the nearest table around it."""
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place, 1)

    def _note(self, place: Place, row: int) -> None:
        for length in range(1, len(place) + 1):
            self._lines.setdefault(place[:length], row + 1)

    def _header(self, names: Place, listed: bool) -> Place:
        if listed:
            count = self._tables[names] = self._tables.get(names, -1) + 1
            return (*names, str(count))
        # A table inside the last item of a list of tables.
        for length in range(len(names) - 1, 0, -1):
            if names[:length] in self._tables:
                return (*names[:length], str(self._tables[names[:length]]), *names[length:])
        return names

    def _inside(self, place: Place, lines: list[str], row: int, end: int) -> None:
        """Note the keys of a table that is written inside a value, at the first line where they stand."""
        if self._left < 0:
            return
        value = tomllib.loads("\n".join(lines[row:end]))
        for name in _names(_KEY.match(lines[row])[1]):  # type: ignore[index]
            value = value[name]
        self._within(value, place, lines, row, end)

    def _within(self, value: Any, place: Place, lines: list[str], row: int, end: int) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for name, inner in items:
            self._left -= sum(map(len, lines[row:end]))
            if self._left < 0:
                return
            there = (*place, str(name))
            written = re.escape(str(name) if isinstance(value, dict) else str(inner))
            found = [at for at in range(row, end) if re.search(rf"(?<![\w-]){written}(?![\w-])", lines[at])]
            self._lines.setdefault(there, (found[0] if found else row) + 1)
            self._within(inner, there, lines, found[0] if found and isinstance(value, dict) else row, end)

    def _end(self, lines: list[str], row: int) -> int:
        """The line after a key and its value, which may take several."""
        for end in range(row + 1, len(lines) + 1):
            text = "\n".join(lines[row:end])
            self._left -= len(text)
            if self._left < 0:
                break
            try:
                tomllib.loads(text)
            except tomllib.TOMLDecodeError:
                continue
            return end
        return row + 1


def _names(key: str) -> Place:
    """The names of a dotted key, some of which may be quoted."""
    found: list[str] = []
    value: Any = tomllib.loads(f"{key} = 0")
    while isinstance(value, dict):
        ((name, value),) = value.items()
        found.append(name)
    return tuple(found)
