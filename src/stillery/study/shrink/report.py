"""What a search has come to: the curve of scores against size and speed, and what it says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.atomic import atomic_file
from stillery.study.folder import State, StudyFolder
from stillery.study.shrink.candidates import Candidate, short_steps
from stillery.study.shrink.choice import reaches
from stillery.study.shrink.halves import halves
from stillery.study.shrink.measure import HALF, Basis, Cost
from stillery.study.shrink.search import Search

__all__ = ["Final", "curve", "final", "reading", "students_in_words", "table", "write_curve"]

FULL, SHORT, OPEN, FAILED, OVER = "trained", "left out", "not needed", "failed", "over the limit"
"""How far a student of the curve came."""


@dataclass(frozen=True, kw_only=True)
class Final:
    """The score of the recommended student and its teacher on what is scored once, with 95% intervals.

    `difference` is the student minus the teacher, `between` its interval by a paired bootstrap over the examples.
    """

    split: str
    examples: int
    metric: str
    score: float
    interval: tuple[float, float] | None
    teacher: float | None
    difference: float | None
    between: tuple[float, float] | None


def final(run: Path, basis: Basis) -> Final:
    """What the run of the recommended student has been scored as."""
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    metric, score = next(iter(metrics["metrics"].items()))
    if basis.chooses == HALF:
        half = halves(run, metrics)
        return Final(
            split=basis.reports, examples=half.examples, metric=metric, score=half.second, interval=half.interval,
            teacher=half.teacher, difference=half.difference, between=half.between,
        )  # fmt: skip
    apart = metrics.get("difference", {})
    known = apart.get("metric") == metric
    bounds = metrics.get("intervals", {}).get(metric)
    return Final(
        split=str(metrics.get("split", basis.reports)), examples=metrics["examples"], metric=metric, score=score,
        interval=None if bounds is None else (bounds[0], bounds[1]),
        teacher=metrics.get("teacher_metrics", {}).get(metric), difference=apart["value"] if known else None,
        between=(apart["interval"][0], apart["interval"][1]) if known else None,
    )  # fmt: skip


def curve(folder: StudyFolder, search: Search, teacher: Cost, costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """A row for the teacher, and for every student from the smallest on, those that are over a limit among them."""
    basis, best = search.basis, search.recommended(folder)
    rows = [{"student": "teacher", **_sizes(teacher, teacher), "init": None, "state": FULL, "steps": None,
             "score": basis.score, "minus_teacher": 0.0, "within": None, "recommended": False, "cell": None,
             "failure": None}]  # fmt: skip
    short, full = search.scores(folder, short=True), search.scores(folder)
    rows += [
        _row(folder, search, one, (short.get(one.name), full), teacher) | {"recommended": one is best}
        for one in search.candidates
    ]
    tried = {one.sized.shape for one in search.candidates}
    over = [cost for cost in costs if (cost.layers, cost.width) not in tried]
    for cost in sorted(over, key=lambda one: one.parameters):
        rows.append({**rows[0], "student": cost.shape, **_sizes(cost, teacher), "state": OVER, "score": None,
                     "minus_teacher": None})  # fmt: skip
    return rows


def _row(
    folder: StudyFolder, search: Search, one: Candidate, scores: tuple[float | None, Mapping[str, float | None]],
    teacher: Cost,
) -> dict[str, Any]:  # fmt: skip
    basis, (brief, full) = search.basis, scores
    score, state, cell, failure = full.get(one.name), OPEN, one.full, None
    if one.name in full:
        state = FULL if score is not None else FAILED
        failure = folder.failure(cell.name)
    elif one.short is not None and folder.state(one.short) is not State.OPEN:
        state, score, cell = SHORT if brief is not None else FAILED, brief, one.short
        failure = folder.failure(cell.name)
        # A student that was good enough to continue, and was not needed, had a short training only.
        state = OPEN if state == SHORT and one.sized in search.left(folder) else state
    steps = short_steps(basis.steps) if cell is one.short else basis.steps
    within = None if search.target is None or state != FULL else reaches(score, search.target)
    return {
        "student": one.name, **_sizes(one.cost, teacher), "init": one.init, "state": state,
        "steps": steps if score is not None else None, "score": score,
        "minus_teacher": None if score is None else score - basis.score, "within": within, "recommended": False,
        "cell": f"cells/{cell.name}" if score is not None else None, "failure": failure,
    }  # fmt: skip


def _sizes(cost: Cost, teacher: Cost) -> dict[str, Any]:
    return {
        "layers": cost.layers, "width": cost.width, "heads": cost.heads, "parameters": cost.parameters,
        "of_teacher": cost.parameters / teacher.parameters, "flops": cost.flops, "latency_ms": cost.latency_ms,
        "speedup": cost.speedup,
    }  # fmt: skip


def write_curve(out: Path, rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> None:
    """Write the curve as `curve.csv`, and with all that was found as `curve.json`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows)
    texts = {
        "curve.csv": text.getvalue(),
        "curve.json": json.dumps({**record, "students": list(rows)}, indent=2, allow_nan=False) + "\n",
    }
    for name, content in texts.items():
        with atomic_file(out / name) as part:
            part.write_text(content, encoding="utf-8", newline="")


def table(rows: Sequence[Mapping[str, Any]], basis: Basis) -> str:
    """The curve as text: scores in brackets are of short trainings."""
    heads = ("", "params", "of teacher", "latency", "speed", f"{basis.chooses} {basis.metric}", "minus teacher")
    lines = [heads, *(_entries(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    shown = []
    for line in lines:
        rest = "  ".join(entry.rjust(width) for entry, width in zip(line[1:], widths[1:], strict=True))
        shown.append(f"{line[0]:<{widths[0]}}  {rest}".rstrip())
    notes = ["Latency: median per text, batch 1, one thread, in turns with the teacher."]
    if any(row["steps"] == short_steps(basis.steps) for row in rows):
        notes.append(f"In brackets: after {short_steps(basis.steps):,} of {basis.steps:,} steps.")
    return "\n".join([*shown, *notes])


def _entries(row: Mapping[str, Any]) -> tuple[str, ...]:
    state, score = row["state"], row["score"]
    if score is None:
        said, apart = state, ""
    else:
        said, apart = f"{score:.1f}", f"{row['minus_teacher']:+.1f}"
        if state in (SHORT, OPEN):
            said, apart = f"({said})", f"({apart})"
    mark = "* " if row["recommended"] else "  "
    return (
        f"{mark}{row['student']}", f"{row['parameters'] / 1e6:.1f}M", f"{100 * row['of_teacher']:.0f}%",
        f"{row['latency_ms']:.1f} ms", f"{row['speedup']:.2f}x", said, "" if row["student"] == "teacher" else apart,
    )  # fmt: skip


def reading(
    rows: Sequence[Mapping[str, Any]], basis: Basis, within: float | None, found: Final, *, limits: str = ""
) -> list[str]:
    """What the numbers say, in sentences."""
    best = next(row for row in rows if row["recommended"])
    trained = [row for row in rows[1:] if row["state"] == FULL]
    lines = [
        f"recommended: {best['student']}: {best['parameters'] / 1e6:.1f}M parameters ({100 * best['of_teacher']:.0f}% "
        f"of the teacher's), {best['speedup']:.2f}x its speed"
    ]
    against = f"{basis.chooses} {basis.metric} {best['score']:.1f} against the teacher's {basis.score:.1f}"
    on = f"on {basis.examples:,} examples"
    if within is None:
        lines.append(f"{against}, {on}: the highest of {students_in_words(len(trained))} trained in full{limits}")
    elif best["within"]:
        smaller = len(trained) - 1 - sum(row["parameters"] > best["parameters"] for row in trained)
        verb = "is" if smaller == 1 else "are"
        others = f"; {students_in_words(smaller)} of its size or smaller {verb} not" if smaller else ""
        lines.append(f"{against}, {on}: within {_points(within)}{others}{limits}")
    else:
        lines.append(
            f"{against}, {on}: no student is within {_points(within)}; this is the closest of "
            f"{students_in_words(len(trained))} trained in full{limits}"
        )
    left_out = sum(row["state"] == SHORT for row in rows)
    if left_out:
        lines.append(f"left out after a short training, which may have misjudged some: {students_in_words(left_out)}")
    return [*lines, _scored_once(found, within if best["within"] else None)]


def _scored_once(found: Final, within: float | None) -> str:
    teacher = "" if found.teacher is None else f", the teacher {found.teacher:.1f}"
    on = f"{found.split}, scored once on {found.examples:,} examples"
    line = f"{on}: {found.score:.1f}{_between(found.interval)}{teacher}"
    if found.difference is None or found.between is None:
        return line
    line += f"; difference {found.difference:+.1f}{_between(found.between, signed=True)}"
    if within is None:
        return line
    low, high = found.between
    if low >= -within:
        return f"{line}: within {_points(within)} here too, by the whole interval"
    if high < -within:
        return f"{line}: not within {_points(within)} here, by the whole interval; take a larger student"
    return f"{line}: the interval reaches beyond {_points(within)}, so it is not shown to be within them here"


def _between(bounds: tuple[float, float] | None, *, signed: bool = False) -> str:
    if bounds is None:
        return ""
    low, high = (f"{one:+.1f}" if signed else f"{one:.1f}" for one in bounds)
    return f" [{low}, {high}]"


def _points(value: float) -> str:
    return f"{value:g} {'point' if value == 1 else 'points'}"


def students_in_words(count: int) -> str:
    """A number of students, in words."""
    return f"{count} {'student' if count == 1 else 'students'}"
