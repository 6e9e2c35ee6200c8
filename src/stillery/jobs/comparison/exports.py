"""Compare exports with finished runs: all of them are scored again, on the examples of the first run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stillery.errors import ErrorList, UserError
from stillery.jobs.comparison.compare import compare_models, place_of
from stillery.jobs.comparison.models import is_export, run_folder
from stillery.jobs.comparison.result import Comparison
from stillery.jobs.comparison.scored import Several, scored_models
from stillery.jobs.data_of_run import data_of_run
from stillery.jobs.run_folder import read_metrics
from stillery.models.model_folder import is_onnx
from stillery.progress import say

__all__ = ["compare_exports"]


def compare_exports(places: Sequence[str], *, baseline: str | None = None, metric: str | None = None) -> Comparison:
    """Compare exports with each other and with finished runs, all loaded and scored on the first run's examples.

    Args:
        places: run folders, and folders or files of exports; a folder stands for all of its ONNX files.
        baseline: the model that the others are compared with, by default the first run.
        metric: one of the metrics; by default the first.
    """
    files = [file for place in places for file in _files(place)]
    if baseline is not None and is_export(baseline):
        baseline = _files(baseline)[0]
        files.append(baseline)
    runs: list[tuple[str, Path]] = []
    errors = ErrorList()
    for file in files:
        if not is_export(file):
            with errors.catch():
                runs.append((file, run_folder(file)))
    errors.raise_any()
    if not runs:
        raise UserError(
            f"{places[0]}: an export does not know the examples of its run; name the run that it was made from too, or "
            "score exports on a file: stillery evaluate EXPORT... --data FILE"
        )
    first, folder = runs[0]
    data, metrics = data_of_run(str(folder)), read_metrics(folder)
    split = metrics.get("split", metrics.get("part"))
    say(f"all models are scored on the {split} examples of {first}")
    models = scored_models(Several.of(files, None, data, split=split))
    of_run = next(place for place, model in enumerate(models) if model.folder == str(folder.resolve()))
    return compare_models(models, baseline=of_run if baseline is None else place_of(baseline, models), metric=metric)


def _files(place: str) -> list[str]:
    """Return a run folder, or the ONNX files of an export, the one in float32 first."""
    path = Path(place).expanduser()
    if not is_onnx(path):
        return [place]
    return [str(path / name) for name in ("model.onnx", "model.int8.onnx") if (path / name).is_file()]
