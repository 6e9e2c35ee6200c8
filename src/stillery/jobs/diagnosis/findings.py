"""What a diagnosis says: findings, and what could not be examined."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from stillery.lines import wrapped

__all__ = ["Diagnosis", "Finding", "NotExamined", "Severity"]


class Severity(IntEnum):
    """How much a finding can explain; findings are listed in this order, the gravest first."""

    HINT = 1
    """It may cost something, or limits what the scores can show."""
    COSTLY = 2
    """It costs some of what the student could have learnt."""
    FATAL = 3
    """With it no student can be good."""


class NotExamined(Exception):
    """Raised by a check that cannot be made for this run; the message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A cause of a bad student.

    Attributes:
        severity: how much it can explain.
        sentence: what was found, with the measured number.
        option: what to change.
        numbers: everything that was measured, by name.
        check: the name of the check.
    """

    severity: Severity
    sentence: str
    option: str
    numbers: Mapping[str, Any]
    check: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "check": self.check, "severity": self.severity.name.lower(), "sentence": self.sentence,
            "option": self.option, "numbers": dict(self.numbers),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class Diagnosis:
    """The diagnosis of a run, which prints as text.

    Attributes:
        run: the run folder.
        scores: the scores of the student, its teacher and the best constant answer, and their differences, as data.
        about: the same in words.
        findings: what was found, the gravest first.
        not_examined: what could not be examined, by the name of the check, and why.
        examined: the names of the checks that were made.
    """

    run: str
    scores: Mapping[str, Any]
    about: Sequence[str]
    findings: Sequence[Finding]
    not_examined: Mapping[str, str]
    examined: Sequence[str]

    def lines(self) -> list[str]:
        """Return the diagnosis as lines of text."""
        found = [*self.about, ""]
        for number, one in enumerate(self.findings, start=1):
            found += [f"{number}. {one.sentence}", f"   -> {one.option}"]
        if not self.findings:
            found.append(f"Nothing found in {len(self.examined)} checks.")
        reasons: dict[str, list[str]] = {}
        for name, why in self.not_examined.items():
            reasons.setdefault(why, []).append(name)
        if reasons:
            found += ["", "not examined:", *(f"  {', '.join(names)}: {why}" for why, names in reasons.items())]
        return found

    def text(self, width: int | None = 80) -> str:
        """Return the diagnosis for a terminal of that width."""
        return "\n".join(wrapped(line, width) for line in self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as a JSON-compatible dictionary."""
        return {
            "run": self.run,
            "scores": dict(self.scores),
            "findings": [one.to_dict() for one in self.findings],
            "examined": list(self.examined),
            "not_examined": dict(self.not_examined),
        }

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Return the diagnosis as HTML for a notebook."""
        items = "".join(
            f"<li>{html.escape(one.sentence)}<br>&rarr; {html.escape(one.option)}</li>" for one in self.findings
        )
        found = f"<ol>{items}</ol>" if items else "<p>Nothing found.</p>"
        return f"<p>{'<br>'.join(map(html.escape, self.about))}</p>{found}"
