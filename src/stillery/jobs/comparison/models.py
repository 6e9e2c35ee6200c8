"""Records of models to compare, read from their run folder, or their student's, without loading the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.evaluation.recorded import Recorded, read_predictions
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.run_folder import read_metrics
from stillery.models.model_folder import is_onnx, model_in, run_in
from stillery.models.stack_layout import GENERATORS
from stillery.small_files import read_json

__all__ = ["Model", "how", "is_export", "named", "read_run", "run_around", "run_folder", "teacher_of", "train_seconds"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A model with its scores, its predictions and its cost.

    Attributes:
        place: the folder, or the name on the hub, as given by the user.
        folder: its resolved path; the name of a teacher that is not in a local folder.
        how: how it was made, such as a method, and its depth.
        scores: the contents of `metrics.json`.
        recorded: its predictions.
        facts: `layers`, `parameters`, `megabytes`, `latency_ms`, `texts_per_second` and `train_seconds`, where known.
        teacher: the folder or name of its teacher.
        name: its short name in the table.
    """

    place: str
    folder: str
    how: str
    scores: Mapping[str, Any]
    recorded: Recorded
    facts: Mapping[str, Any]
    teacher: str | None = None
    name: str = ""

    @property
    def label(self) -> str:
        """Its name, and how it was made."""
        return f"{self.name}: {self.how}" if self.how else self.name

    @property
    def scored_on(self) -> str:
        """A description of the examples that it was scored on."""
        split = _split(self.scores)
        return f"{self.scores['task']}{f' ({split})' if split else ''}"


def is_export(place: str) -> bool:
    """Return whether this is a folder of `stillery export`, or an ONNX file in one."""
    path = Path(place).expanduser()
    return is_onnx(path) or (path.suffix == ".onnx" and is_onnx(path.parent))


def run_folder(place: str) -> Path:
    """Return the run folder for a path: the path itself, or the run that a model's folder is in."""
    path = Path(place).expanduser()
    try:
        if path.is_file():
            raise UserError(f"{place} is a file: give the folder of a run")
        if not path.is_dir():
            raise UserError(f"{place}: no such run folder")
        if not (path / "metrics.json").is_file():
            path = run_in(str(path.resolve())) or path
        if (path / "metrics.json").is_file():
            return path
        if (path / "run.toml").is_file():
            raise UserError(f"{place}: this run is not finished, so it has no scores yet; continue it with --resume")
    except OSError as error:
        raise UserError(f"{place}: cannot be read ({error.strerror or error})") from None
    raise UserError(
        f"{place}: no run of finetune or distill in this folder; models without one are scored with stillery evaluate"
    )


def read_run(place: str) -> Model:
    """Read a finished run from its folder."""
    folder = run_folder(place)
    scores = _scores(folder)
    values = read_toml(folder / "run.toml") if (folder / "run.toml").is_file() else {}
    recorded = read_predictions(folder / "predictions.parquet")
    if len(recorded) != scores["examples"]:
        raise UserError(
            f"{folder}: metrics.json is of {scores['examples']} examples and predictions.parquet of {len(recorded)}; "
            "copy the run again"
        )
    facts = _facts(folder, scores)
    teacher = values.get("teacher")
    return Model(
        place=place, folder=str(folder.resolve()), how=how(values, facts), scores=scores, recorded=recorded,
        facts=facts, teacher=teacher if isinstance(teacher, str) else None,
    )  # fmt: skip


def teacher_of(student: Model) -> Model | None:
    """Return a student's teacher as scored beside it; None if the run has no predictions of the teacher."""
    if student.teacher is None or student.recorded.teacher is None:
        return None
    scores, cost = student.scores, student.scores.get("cost", {})
    facts = {"parameters": cost.get("teacher_parameters"), "latency_ms": cost.get("teacher_latency_ms")}
    if "teacher_texts_per_second" in scores:
        facts["texts_per_second"] = scores["teacher_texts_per_second"]
    path = Path(student.teacher).expanduser()
    folder, values = student.teacher, dict[str, Any]()
    if path.is_dir():
        folder = str(run_around(path))
        own, values = _of_folder(Path(folder))
        facts |= {name: value for name, value in own.items() if value is not None}
    shared = {name: scores[name] for name in ("task", "split", "part", "examples", "per_class") if name in scores}
    return Model(
        place=folder, folder=folder, how=how(values, facts), recorded=student.recorded.of_teacher(), facts=facts,
        scores=shared | {"metrics": scores.get("teacher_metrics", {}), "intervals": {}},
    )  # fmt: skip


def run_around(path: Path) -> Path:
    """Return the run folder that a model's folder is in, or the model's folder itself."""
    return run_in(str(path.resolve())) or path.resolve()


def _of_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the cost of a model in a folder, as far as recorded in its files, and the settings of its run."""
    try:
        return _facts(folder, _scores(folder)), read_toml(folder / "run.toml")
    except UserError:
        # A model without a run, or with a damaged one: its scores are known from its student.
        return {"layers": _depth(_config(folder)), "megabytes": _megabytes(folder)}, {}


def named(models: Sequence[Model]) -> list[Model]:
    """Return the models, named by the shortest unique suffixes of their folders."""
    names = _short_names([one.folder for one in models])
    return [replace(one, name=name) for one, name in zip(models, names, strict=True)]


def _short_names(folders: Sequence[str]) -> list[str]:
    """Return the shortest unique suffixes of paths.

    >>> _short_names(["/runs/a/small", "/runs/b/small", "/runs/teacher"])
    ['a/small', 'b/small', 'teacher']
    """
    parts = [Path(folder).parts for folder in folders]
    lengths = [1] * len(parts)
    while True:
        names = ["/".join(one[-length:]) for one, length in zip(parts, lengths, strict=True)]
        longer = [
            min(length + (names.count(name) > 1), len(one))
            for name, length, one in zip(names, lengths, parts, strict=True)
        ]
        if longer == lengths:
            return names
        lengths = longer


def _depth(config: Mapping[str, Any]) -> str | None:
    """Return the number of layers by config.json: `6`, or `3+1` for encoder and decoder."""
    generator = GENERATORS.get(config.get("model_type", ""))
    if generator is None:
        names = ["num_hidden_layers" if "num_hidden_layers" in config else "n_layers"]
    else:
        names = [sizes["layers"] for sizes in generator.sizes.values()]
    found = [config.get(name) for name in names]
    return None if None in found else "+".join(map(str, found))


def how(values: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Return how a model was made, from the settings of its run if it has one, and its depth."""
    method = values.get("recipe") or values.get("method")
    made = {"distill": method, "finetune": "fine-tuned"}.get(values.get("job", ""))
    layers = facts.get("layers")
    deep = None if layers is None else f"{layers} {'layer' if layers == '1' else 'layers'}"
    return ", ".join(str(part) for part in (made, deep) if part)


def train_seconds(folder: Path) -> float | None:
    """Return the training time of a run in seconds, if recorded in its folder."""
    try:
        found = _facts(folder, _scores(folder))["train_seconds"]
    except UserError:
        return None
    return found if isinstance(found, float) else None


_NEEDED = ("task", "examples", "metrics", "intervals")


def _scores(folder: Path) -> dict[str, Any]:
    """Read a run's metrics.json; raise UserError if a required key is missing."""
    file = folder / "metrics.json"
    try:
        found = read_metrics(folder, _NEEDED)
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error}); copy the run again") from None
    return found


def _facts(folder: Path, scores: Mapping[str, Any]) -> dict[str, Any]:
    cost = scores.get("cost")
    cost = cost if isinstance(cost, dict) else {}
    found = {name: cost.get(name) for name in ("parameters", "megabytes", "latency_ms", "train_seconds")}
    if scores.get("writes") or "texts_per_second" in scores:
        found["texts_per_second"] = scores.get("texts_per_second")
    return {"layers": _depth(_config(folder)), **found}


def _config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a model or a run; empty if it cannot be read."""
    try:
        found = read_json((model_in(folder) or folder) / "config.json")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _megabytes(folder: Path) -> float | None:
    """Return the size of the weights in a model's folder, in 10^6 bytes."""
    sizes = [file.stat().st_size for file in folder.glob("*.safetensors")]
    return sum(sizes) / 1e6 if sizes else None


def _split(scores: Mapping[str, Any]) -> str | None:
    """Return the split that was scored; runs of earlier versions call it a part."""
    found = scores.get("split", scores.get("part"))
    return found if isinstance(found, str) else None
