"""Rule-based sentence splitting of running text."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["split_sentences"]

PARAGRAPHS = re.compile(r"\n\s*\n")
# The end of a sentence with its closing quotes and brackets, and the first character after the space.
END = re.compile(r"[.!?\u2026]+[\"'\u201d\u2019\u00bb)\]]*(?= (\S))")
OPENING = "\"'\u201c\u2018\u00ab(["
ABBREVIATIONS = frozenset(
    (
        *("mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "gen", "col", "lt", "sgt", "rev", "hon"),
        *("vs", "etc", "cf", "ca", "approx", "vol", "fig", "eq", "ed", "eds", "al", "inc", "ltd", "co", "corp"),
        *("jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"),
        *("e.g", "i.e", "u.s", "u.k", "a.m", "p.m"),
    )
)


def split_sentences(text: str) -> Iterator[str]:
    """Split a text into sentences, with single spaces between words.

    A sentence ends at a blank line, and at a full stop, exclamation mark, question mark or ellipsis (with closing
    quotes and brackets) before a space and anything but a lower-case letter. A full stop after a known abbreviation or
    an initial does not end a sentence.

    >>> list(split_sentences("Dr. A. Smith left. He said 'Why?' and went, i.e. he ran.  It was 5 p.m. then."))
    ['Dr. A. Smith left.', "He said 'Why?' and went, i.e. he ran.", 'It was 5 p.m. then.']
    """
    for paragraph in PARAGRAPHS.split(text):
        line = " ".join(paragraph.split())
        start = 0
        for end in END.finditer(line):
            if _ends(line, start, end):
                yield line[start : end.end()]
                start = end.end() + 1
        if start < len(line):
            yield line[start:]


def _ends(line: str, start: int, end: re.Match[str]) -> bool:
    if end[1].islower():
        return False
    if end[0] != ".":
        return True
    word = line[max(line.rfind(" ", start, end.start()) + 1, start) : end.start()].lstrip(OPENING)
    return not (word.casefold() in ABBREVIATIONS or (len(word) == 1 and word.isupper()))
