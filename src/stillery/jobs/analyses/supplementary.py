"""`stillery analyse supplementary`: which texts for the hidden-state stage help which task (CR-ILD, Figures 5-7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stillery.analyse.finding import Finding
from stillery.errors import UserError
from stillery.evaluation.correlation import spearman
from stillery.jobs.analyses.after_layers import OWN, LastStage, Texts, last_stage, probe_after, source_of, texts_of
from stillery.jobs.analyses.finished_runs import FinishedRun, finished_runs
from stillery.jobs.analyses.settings import Request
from stillery.jobs.analyses.supplementary_chart import picture
from stillery.pictures.charts import whole

__all__ = ["Measured", "finding", "run"]

_TITLE = "Texts of the hidden-state stage, and the task they are for"
_FEWEST, _ENOUGH = 4, 12
Place = tuple[str, str]
"""The texts of the hidden-state stage, and the task."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of a run beside its score: its last stage, and the probe of its task before that stage."""

    stage: LastStage
    probe: float | None = None


def run(request: Request) -> Finding:
    """Compare finished runs whose hidden-state stage has texts of its own with those on the task's own texts."""
    runs = finished_runs(request.subjects, request.own.metric)
    if all(source_of(one) == OWN for one in runs):
        raise UserError(
            "supplementary compares runs with --ild-task or --ild-data, and none of these has either; "
            "train some, such as stillery distill --method l-ild --ild-task NAME"
        )
    texts, measured = {}, {}
    for one in runs:
        if source_of(one) not in texts and source_of(one) != OWN:
            texts[source_of(one)] = texts_of(one)
        stage = last_stage(one.folder)
        measured[str(one.folder)] = Measured(stage=stage, probe=probe_after(one, stage.begins, request.own))
    return finding(runs, texts, measured)


def finding(
    runs: Sequence[FinishedRun], texts: Mapping[str, Texts | None], measured: Mapping[str, Measured]
) -> Finding:
    """Return the reading of runs with different texts for the hidden-state stage; `measured` is by run folder."""
    cells: dict[Place, list[FinishedRun]] = {}
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
    probes = _probes(cells, measured)
    related = _related(gains, texts) | _with_probe(means, probes)
    table = [
        {"texts": source, "task": task, "runs": str(len(cells[source, task])), "score": f"{means[source, task]:.2f}",
         "gain": f"{gains[source, task]:+.2f}" if (source, task) in gains else "-",
         "size": _shown(texts.get(source), "size"), "tokens": _shown(texts.get(source), "length"),
         "probe": f"{probes[source, task]:.2f}" if (source, task) in probes else "-"}
        for source in sources
        for task in tasks
        if (source, task) in cells
    ]  # fmt: skip
    data = {
        "sources": sources, "tasks": tasks,
        "score": [[means.get((source, task)) for task in tasks] for source in sources],
        "gain": [[gains.get((source, task)) for task in tasks] for source in sources],
        "probe": [[probes.get((source, task)) for task in tasks] for source in sources],
        "texts": {name: None if one is None else {"size": one.size, "tokens": one.length}
                  for name, one in texts.items()},
        "spearman": related,
        "losses": {one.folder.name: list(measured[str(one.folder)].stage.losses) for one in runs},
    }  # fmt: skip
    curves = {str(one.folder): measured[str(one.folder)].stage.losses for one in runs}
    return Finding(
        analysis="supplementary", title=_TITLE, sentence=_sentence(gains, related, cells), data=data, table=table,
        spec=whole(
            _TITLE, f"{runs[0].metric}, mean of the runs",
            picture(runs, means=means, gains=gains, texts=texts, probes=probes, losses=curves),
        ),
        settings={"metric": runs[0].metric},
    )  # fmt: skip


def _gain(ours: Sequence[FinishedRun], own: Sequence[FinishedRun]) -> float:
    """Return the mean difference, seed by seed where both have the seed."""
    base = {one.seed: one.score for one in own}
    paired = [one.score - base[one.seed] for one in ours if one.seed in base]
    if paired:
        return float(np.mean(paired))
    return float(np.mean([one.score for one in ours]) - np.mean(list(base.values())))


def _probes(cells: Mapping[Place, Sequence[FinishedRun]], measured: Mapping[str, Measured]) -> dict[Place, float]:
    """Return the mean score of the probe after the hidden-state stage, where it was measured for every run."""
    found = {}
    for place, some in cells.items():
        scores = [measured[str(one.folder)].probe for one in some]
        known = [score for score in scores if score is not None]
        if len(known) == len(some):
            found[place] = float(np.mean(known))
    return found


def _shown(texts: Texts | None, what: str) -> str:
    return "-" if texts is None else f"{getattr(texts, what):,.0f}"


def _related(gains: Mapping[Place, float], texts: Mapping[str, Texts | None]) -> dict[str, dict[str, float | int]]:
    """Return the rank correlation of the gain with size and length, where there are enough texts."""
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


def _with_probe(means: Mapping[Place, float], probes: Mapping[Place, float]) -> dict[str, dict[str, float | int]]:
    """Return the rank correlation of score and probe, each less its mean over the texts of the same task.

    The task's own texts count as one of them. Scores of different tasks say nothing about each other, so a task with
    one kind of texts is left out.
    """
    left: list[float] = []
    right: list[float] = []
    for task in dict.fromkeys(task for _, task in probes):
        places = [place for place in probes if place[1] == task]
        if len(places) > 1:
            for values, into in ((means, left), (probes, right)):
                middle = np.mean([values[place] for place in places])
                into.extend(float(values[place] - middle) for place in places)
    if len(left) < _FEWEST:
        return {}
    return {"probe": {"spearman": spearman(np.array(left), np.array(right)), "pairs": len(left)}}


def _sentence(
    gains: Mapping[Place, float],
    related: Mapping[str, Mapping[str, float | int]],
    cells: Mapping[Place, Sequence[FinishedRun]],
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
    words = [f"{what} {related[what]['spearman']:+.2f}" for what in ("size", "length") if what in related]
    if words:
        said += f"; rank correlation of the gain with {' and '.join(words)} over {related['size']['pairs']} pairs"
    if "probe" in related:
        of = related["probe"]
        said += (
            f"; within tasks the score has a rank correlation of {of['spearman']:+.2f} with what a linear probe finds "
            f"after the hidden-state stage, over {of['pairs']} pairs"
            + ("" if of["pairs"] >= _ENOUGH else ", too few to conclude from")
        )
    return f"{said}."
