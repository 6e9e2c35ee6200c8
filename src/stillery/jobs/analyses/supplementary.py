"""`stillery analyse supplementary`: which texts for the hidden-state stage help which task (CR-ILD, Figures 5-7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stillery.analyse.finding import Finding
from stillery.errors import UserError
from stillery.evaluation.correlation import spearman
from stillery.jobs.analyses.finished_runs import FinishedRun, finished_runs
from stillery.jobs.analyses.settings import Request
from stillery.jobs.calibration import spread
from stillery.jobs.config.run_file import ask
from stillery.jobs.config.settings import Distill
from stillery.jobs.kinds.find import kind_of_model
from stillery.models.load_model import load_tokenizer, read_config
from stillery.pictures.charts import Scale, heat_map, line_chart, stacked, whole
from stillery.train.log import read_events

__all__ = ["Texts", "finding", "run"]

_TITLE = "Texts of the hidden-state stage, and the task they are for"
OWN = "the task's own"
_READ, _FEWEST = 1000, 4


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The texts of a hidden-state stage: how many, and their mean number of tokens."""

    size: int
    length: float


def run(request: Request) -> Finding:
    """Compare finished runs whose hidden-state stage has texts of its own with those on the task's own texts."""
    runs = finished_runs(request.subjects, request.own.metric)
    if all(source_of(one) == OWN for one in runs):
        raise UserError(
            "supplementary compares runs with --ild-task or --ild-data, and none of these has either; "
            "train some, such as stillery distill --method l-ild --ild-task NAME"
        )
    texts = {}
    for one in runs:
        if source_of(one) not in texts and source_of(one) != OWN:
            texts[source_of(one)] = texts_of(one)
    return finding(runs, texts, {str(one.folder): _losses(one.folder) for one in runs})


def source_of(run: FinishedRun) -> str:
    """Return the texts of a run's hidden-state stage: a named task, a file, or the task's own."""
    task, data = run.values.get("ild_task"), run.values.get("ild_data")
    return str(task) if task else (Path(str(data)).name if data else OWN)


def texts_of(run: FinishedRun) -> Texts | None:
    """Count the texts of a run's hidden-state stage and their tokens; None where the data is not there any more."""
    try:
        settings = ask(Distill, {}, run.folder / "run.toml").run.texts
        if settings is None:
            return None
        kind, place = kind_of_model(str(run.folder)), str(run.folder)
        examples = kind.read_texts(settings)
        tokenizer = load_tokenizer(place)
        encoding = kind.encoding(settings, [read_config(place)], tokenizer)
        few = encoding.data(examples.take(spread(len(examples), _READ)), tokenizer, "supplementary")
    except UserError:
        return None
    return Texts(size=len(examples), length=float(np.mean(few.lengths)))


def _losses(folder: Path) -> list[tuple[int, float]]:
    """Return the loss of the last stage of a run, by step since the stage began."""
    try:
        events, _ = read_events(folder / "log.jsonl")
    except OSError:
        return []
    found = [(event["stage"], event["step"], event["loss"]) for event in events if event["event"] == "train"]
    if not found:
        return []
    last = [(step, loss) for stage, step, loss in found if stage == found[-1][0]]
    return [(step - last[0][0] + 1, loss) for step, loss in last]


def finding(
    runs: Sequence[FinishedRun],
    texts: Mapping[str, Texts | None],
    losses: Mapping[str, Sequence[tuple[int, float]]],
) -> Finding:
    """Return the reading of runs with different texts for the hidden-state stage."""
    cells: dict[tuple[str, str], list[FinishedRun]] = {}
    for one in runs:
        cells.setdefault((source_of(one), one.task), []).append(one)
    tasks = list(dict.fromkeys(task for _, task in cells))
    sources = sorted({source for source, _ in cells}, key=lambda source: (source != OWN, source))
    means = {place: float(np.mean([one.score for one in some])) for place, some in cells.items()}
    gains = {
        (source, task): _gain(cells[source, task], cells[OWN, task])
        for source, task in cells
        if source != OWN and (OWN, task) in cells
    }
    table = [
        {"texts": source, "task": task, "runs": str(len(cells[source, task])), "score": f"{means[source, task]:.2f}",
         "gain": f"{gains[source, task]:+.2f}" if (source, task) in gains else "-",
         "size": _shown(texts.get(source), "size"), "tokens": _shown(texts.get(source), "length")}
        for source in sources
        for task in tasks
        if (source, task) in cells
    ]  # fmt: skip
    related = _related(gains, texts)
    data = {
        "sources": sources, "tasks": tasks,
        "score": [[means.get((source, task)) for task in tasks] for source in sources],
        "gain": [[gains.get((source, task)) for task in tasks] for source in sources],
        "texts": {name: None if one is None else {"size": one.size, "tokens": one.length}
                  for name, one in texts.items()},
        "spearman": related,
        "losses": {str(Path(name).name): list(curve) for name, curve in losses.items()},
    }  # fmt: skip
    return Finding(
        analysis="supplementary", title=_TITLE, sentence=_sentence(gains, related, cells), data=data, table=table,
        spec=whole(_TITLE, f"{runs[0].metric}, mean of the runs", _chart(means, sources, tasks, runs, losses)),
        settings={"metric": runs[0].metric},
    )  # fmt: skip


def _gain(ours: Sequence[FinishedRun], own: Sequence[FinishedRun]) -> float:
    """Return the mean difference, seed by seed where both have the seed."""
    base = {one.seed: one.score for one in own}
    paired = [one.score - base[one.seed] for one in ours if one.seed in base]
    if paired:
        return float(np.mean(paired))
    return float(np.mean([one.score for one in ours]) - np.mean(list(base.values())))


def _shown(texts: Texts | None, what: str) -> str:
    return "-" if texts is None else f"{getattr(texts, what):,.0f}"


def _related(
    gains: Mapping[tuple[str, str], float], texts: Mapping[str, Texts | None]
) -> dict[str, dict[str, float | int]]:
    """Return the rank correlation of the gain with size and length, where there are enough pairs."""
    known = [(texts[source], gain) for (source, _), gain in gains.items() if texts.get(source) is not None]
    if len({(one.size, one.length) for one, _ in known if one is not None}) < _FEWEST:
        return {}
    values = np.array([gain for _, gain in known])
    return {
        what: {
            "spearman": spearman(np.array([float(getattr(one, what)) for one, _ in known]), values), "pairs": len(known)
        }
        for what in ("size", "length")
    }  # fmt: skip


def _sentence(
    gains: Mapping[tuple[str, str], float],
    related: Mapping[str, Mapping[str, float | int]],
    cells: Mapping[tuple[str, str], Sequence[FinishedRun]],
) -> str:
    if not gains:
        return "None of these runs is on the task's own texts, so there is no gain to compare with, only scores."
    best = max(gains, key=lambda place: gains[place])
    above = sum(gain > 0 for gain in gains.values())
    fewest = min(len(some) for some in cells.values())
    said = (
        f"Texts of other tasks score higher than the task's own in {above} of {len(gains)} pairs, at most "
        f"{gains[best]:+.2f} ({best[0]} for {best[1]})"
    )
    said += f", with {fewest} run{'s' if fewest > 1 else ''} each" + ("" if fewest >= 5 else ": too few to tell apart")
    if related:
        words = [f"{what} {of['spearman']:+.2f}" for what, of in related.items()]
        said += f"; rank correlation of the gain with {' and '.join(words)} over {related['size']['pairs']} pairs"
    return f"{said}."


def _chart(
    means: Mapping[tuple[str, str], float],
    sources: Sequence[str],
    tasks: Sequence[str],
    runs: Sequence[FinishedRun],
    losses: Mapping[str, Sequence[tuple[int, float]]],
) -> dict[str, Any]:
    cells = [
        {"x": task, "y": source, "value": means[source, task]}
        for source in sources
        for task in tasks
        if (source, task) in means
    ]
    low = min(means.values())
    scale = Scale(title="score", low=low, high=max(*means.values(), low + 1e-6), format=".1f")
    charts = [heat_map(cells, x="task", y="texts of the hidden-state stage", scale=scale)]
    curves: dict[tuple[str, int], list[float]] = {}
    for one in runs:
        for step, loss in losses.get(str(one.folder), ()):
            name = source_of(one) if len(tasks) == 1 else f"{source_of(one)} for {one.task}"
            curves.setdefault((name, step), []).append(loss)
    if curves:
        rows = [
            {"x": step, "y": float(np.mean(some)), "low": min(some), "high": max(some), "series": name}
            for (name, step), some in sorted(curves.items())
        ]
        chart = line_chart(rows, x="step of the last stage", y="training loss", series="", band=True)
        charts.append({"title": "Loss after the hidden-state stage"} | chart)
    return stacked(*charts)
