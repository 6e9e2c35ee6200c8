"""Formatting of terminal output: long lists shortened with a count, and lines wrapped between words."""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO

__all__ = ["LISTED", "command_line", "listed", "markdown_text", "plain", "sheet_cell", "show", "width_of", "wrapped"]

LISTED = 10
"""The number of items of a list that are shown, unless a caller has room for fewer."""

_HANGING = "  "

# Beside the control characters, those that reorder the text around them, and halves of pairs, which no stream takes.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.])")


def plain(text: str) -> str:
    r"""Escape control characters in a text from a file, which could otherwise rewrite or recolour a terminal.

    >>> print(plain("\x1b[31mred"))
    \x1b[31mred
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def markdown_text(line: str) -> str:
    r"""Escape a line so that text from a file is neither HTML nor a link in Markdown; code spans stay as they are.

    >>> print(markdown_text("Data: <img onerror=x>.csv, `a<b`"))
    Data: &lt;img onerror=x>.csv, `a<b`
    """
    found, last = [], 0
    line = plain(" ".join(line.split()))
    for span in _CODE_SPAN.finditer(line):
        found += [_escaped(line[last : span.start()]), span[0]]
        last = span.end()
    return "".join([*found, _escaped(line[last:])])


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("](", "]\\(")


def sheet_cell(value: object) -> object:
    """Return a cell of a table for people; a text that a spreadsheet would run as a formula gets an apostrophe.

    >>> [sheet_cell(value) for value in ("=cmd()", "-1.5", "+x", 3)]
    ["'=cmd()", '-1.5', "'+x", 3]
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def listed(items: Iterable[object], most: int = LISTED, *, between: str = ", ") -> str:
    """Join the items of a list; of a long one the first few, and how many more there are.

    >>> listed(["bad", "good"]), listed(range(1, 315), most=2)
    ('bad, good', '1, 2 and 312 more')
    """
    said = [str(item) for item in items]
    more = f" and {len(said) - most:,} more" if len(said) > most else ""
    return between.join(said[:most]) + more


def width_of(stream: IO[str]) -> int | None:
    """Return the width of a terminal in columns; None for a file or a pipe, where lines are not wrapped."""
    try:
        if not stream.isatty():
            return None
        columns = int(os.environ.get("COLUMNS", "0") or 0) or os.get_terminal_size(stream.fileno()).columns
    except (ValueError, OSError):
        columns = 0
    return columns or 80


def wrapped(line: str, width: int | None) -> str:
    """Wrap a line between words if it is wider than the terminal; continuation lines are indented by two more.

    >>> print(wrapped("  accuracy minus the teacher's: +0.10", 24))
      accuracy minus the
        teacher's: +0.10
    """
    if width is None or len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())] + _HANGING
    # Paths, options and numbers are never broken, even if one alone is wider than the terminal.
    pieces = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(pieces)


def show(line: str = "") -> None:
    """Print a line of the result on stdout, wrapped between words on a terminal."""
    print(wrapped(plain(line), width_of(sys.stdout)))


def command_line(words: Sequence[str], width: int | None) -> str:
    r"""Format a command to copy and paste; one wider than the terminal is continued with backslashes.

    >>> print(command_line(["stillery", "predict", "my run", "--data", "new.csv"], 28))
      stillery predict \
        'my run' --data new.csv
    """
    quoted = [plain(shlex.quote(word)) for word in words]
    lines, now = [], _HANGING + quoted[0]
    for place, word in enumerate(quoted[1:], start=2):
        # A space before the word, and a backslash after it unless it is the last.
        room = 1 if place == len(quoted) else 3
        if width is not None and len(now) + len(word) + room > width:
            lines.append(f"{now} \\")
            now = f"{_HANGING}{_HANGING}{word}"
        else:
            now = f"{now} {word}"
    return "\n".join([*lines, now])
