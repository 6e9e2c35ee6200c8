"""Reader of CoNLL-style files: one token per line with its tags in columns, and a blank line after each sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from stillery.data.readers.formats import READ_ERRORS, broken, format_of, open_bytes
from stillery.data.readers.row_numbers import at_token
from stillery.errors import UserError

__all__ = ["FIRST_LINE", "TAGS", "TOKENS", "is_conll", "read_conll"]

TOKENS, TAGS, FIRST_LINE = "tokens", "tags", "first_line"
"""The column names: the tokens of each sentence, their tags, and the line of the file on which it begins."""

BOM = b"\xef\xbb\xbf"
DOCUMENT = "-DOCSTART-"


def is_conll(path: Path) -> bool:
    """Return whether a file is read as CoNLL, by its suffix."""
    try:
        return format_of(path) == "conll"
    except UserError:
        return False


def read_conll(path: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Stream a CoNLL-style file, one row per sentence.

    The first column of the file is the list column `tokens`, the last one `tags`; columns between them are list
    columns called by their number, `2` being the second one. A file of one column has no tags. `first_line` is the line
    of a sentence's first token; the others follow it one by one. Columns are separated by tabs if the first token's
    line has any, else by spaces. Lines that begin a document (-DOCSTART-) are left out, and so are comments as CoNLL-U
    has them: `# ` at the beginning of a line before the first token of a sentence. A line that could be the token `#`
    with its tags is one.
    """
    shape = _shape_of(path)
    sentences = _Sentences(path=path, shape=shape)
    number = 0
    try:
        with open_bytes(path) as lines:
            for number, content in enumerate(lines, 1):
                sentences.add(number, _text_of(path, number, content))
                if len(sentences.lines) == batch_rows:
                    yield sentences.taken()
    except READ_ERRORS as error:
        raise broken(path, number, error) from None
    sentences.end()
    if sentences.lines:
        yield sentences.taken()


@dataclass(frozen=True)
class _Shape:
    """The layout of the lines of a file: the separator (tabs or spaces) and the number of fields."""

    tabs: bool
    fields: int

    def split(self, line: str) -> list[str]:
        # Only spaces and tabs: other whitespace, such as a no-break space, may be a token.
        return line.split("\t") if self.tabs else re.split(r"[ \t]+", line.strip(" \t"))


def _shape_of(path: Path) -> _Shape:
    """The shape of the first line that certainly is a token, else of the first one that may be."""
    maybe: _Shape | None = None
    number = 0
    try:
        with open_bytes(path) as lines:
            for number, content in enumerate(lines, 1):
                line = _text_of(path, number, content)
                if _blank(line) or line.startswith(DOCUMENT):
                    continue
                tabs = "\t" in line
                shape = _Shape(tabs, len(_Shape(tabs, 0).split(line)))
                if not line.startswith("#"):
                    return shape
                maybe = maybe or (None if _says_something(shape.split(line)) else shape)
    except READ_ERRORS as error:
        raise broken(path, number, error) from None
    if maybe is None:
        raise UserError(f"{path}: the file has no tokens; it needs a token and its tag on each line")
    return maybe


def _text_of(path: Path, number: int, content: bytes) -> str:
    """Decode a line, without its line ending."""
    content = content.removeprefix(BOM) if number == 1 else content
    try:
        line = content.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path.name}, line {number}: not UTF-8 text; save the file as UTF-8") from None
    if "\0" in line:
        raise UserError(
            f"{path.name}, line {number}: a NUL byte, which no text has; remove it, or save the file as UTF-8 text"
        )
    return line


def _blank(line: str) -> bool:
    return not line.strip(" \t\r")


def _says_something(fields: Sequence[str]) -> bool:
    """Return whether fields starting with `#` look like a CoNLL-U comment: `# name = value`, `# newdoc`, `# newpar`."""
    return fields[0] == "#" and (fields[1:2] in (["newdoc"], ["newpar"]) or fields[2:3] == ["="])


@dataclass(kw_only=True)
class _Sentences:
    """Buffered sentences that were not yet returned; the last one may be incomplete."""

    path: Path
    shape: _Shape
    lines: list[int] = field(default_factory=list)
    columns: list[list[list[str]]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    first: int = 0
    before: int = 0

    def add(self, number: int, line: str) -> None:
        """Add a line of the file."""
        if _blank(line) or line.startswith(DOCUMENT):
            self.end()
            return
        fields = self.shape.split(line)
        if not self.rows:
            if self._is_comment(line, fields):
                return
            self.first = number
        sentence, token = self.before + len(self.lines) + 1, len(self.rows) + 1
        place = at_token(self.path.name, sentence, token, self.first)
        if len(fields) != self.shape.fields:
            raise UserError(f"{place}: {self._miscounted(len(fields))}")
        for which, one in enumerate(fields, 1):
            if not one.strip(" "):
                what = "token" if which == 1 else "tag" if which == len(fields) else f"field {which}"
                raise UserError(f"{place}: the {what} is empty; fill it in or remove the line")
        self.rows.append(fields)

    def end(self) -> None:
        """Complete the current sentence, if there is one."""
        if self.rows:
            self.lines.append(self.first)
            self.columns.append([list(column) for column in zip(*self.rows, strict=True)])
            self.rows = []

    def taken(self) -> pa.RecordBatch:
        """Remove the complete sentences and return them as a batch."""
        names = [TOKENS, *(str(number) for number in range(2, self.shape.fields)), TAGS][: max(self.shape.fields, 1)]
        kind = pa.list_(pa.string())
        arrays = [pa.array([one[place] for one in self.columns], type=kind) for place in range(len(names))]
        batch = pa.RecordBatch.from_arrays([*arrays, pa.array(self.lines, type=pa.int64())], names=[*names, FIRST_LINE])
        self.before += len(self.lines)
        self.lines, self.columns = [], []
        return batch

    def _is_comment(self, line: str, fields: Sequence[str]) -> bool:
        """Return whether a line before the first token of a sentence is a comment, and certainly not the token `#`."""
        if not line.startswith("#"):
            return False
        if self.shape.tabs:
            return "\t" not in line
        return fields[0] == "#" and (_says_something(fields) or 1 < len(fields) != self.shape.fields)

    def _miscounted(self, count: int) -> str:
        wanted = self.shape.fields
        said = f"{count} field{'s' if count > 1 else ''} where the file has {wanted}"
        if count > wanted:
            by = "a tab too many" if self.shape.tabs else "a space in a token or tag; separate columns by tabs then"
            return f"{said}; is there {by}?" if self.shape.tabs else f"{said}; perhaps {by}"
        return f"{said}; is the tag missing, or a blank line between two sentences not blank?"
