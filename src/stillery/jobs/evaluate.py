"""Evaluate a model on examples, also against its teacher, and write leaderboard submissions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.data.tasks.glue import TASKS
from stillery.errors import ErrorList, UserError
from stillery.evaluation.inference_mode import to_device
from stillery.evaluation.submission import submission_files
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.custom_metric import check_metric, with_metrics
from stillery.jobs.from_python import MetricFunction
from stillery.jobs.kinds.base import Answers, Kind, Reader, Scored, Scoring
from stillery.jobs.kinds.find import kind_of_model
from stillery.jobs.kinds.refuse import refuse
from stillery.jobs.load_to_score import load_to_score
from stillery.jobs.output_paths import check_file, check_folder, check_new
from stillery.jobs.trained_on import warn_of_seen
from stillery.models.load_model import Loaded
from stillery.progress import say
from stillery.setting import option_name

__all__ = ["Request", "check_batch_size", "run_evaluate"]

Submit = Callable[[Reader, Scoring, Path], list[str]]


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for an evaluation: the model, the data, and the files to write.

    Attributes:
        model: a model folder, a run folder, or a name on the hub.
        inputs: the examples, and how the model reads them.
        against: a teacher to compare with.
        theirs: the teacher's inputs, where it has its own input settings.
        split: the split to score; None for a whole file, or for the test split of a data set, else dev.
        batch_size: examples at a time.
        submission: a folder for predictions on a GLUE task's unlabelled test split, in the leaderboard's format.
        predictions: a file to write every example and its predictions to.
        metric: a user-defined metric, given in Python.
        overwrite: whether existing files of predictions are replaced.
    """

    model: str
    inputs: InputSettings
    against: str | None = None
    theirs: InputSettings | None = None
    split: str | None = None
    batch_size: int = 64
    submission: Path | None = None
    predictions: Path | None = None
    metric: MetricFunction | None = None
    overwrite: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ready:
    """Everything needed for scoring, loaded and checked; the first reader is the model's, the second its teacher's."""

    kind: Kind
    scoring: Scoring
    readers: list[Reader]
    submit: Submit | None


def run_evaluate(request: Request) -> dict[str, Any]:
    """Return a model's metrics in percent with 95% intervals; with a teacher, also its metrics and the agreement."""
    ready = _ready(request)
    kind, scoring, first = ready.kind, ready.scoring, ready.scoring.scored
    for note in dict.fromkeys([*scoring.notes, *(note for reader in ready.readers for note in reader.encoding.notes)]):
        say(note)
    warn_of_seen(request.model, request.inputs.data, request.split)
    if request.theirs is not None:
        _say_differences(*ready.readers)
    for reader in ready.readers:
        to_device(reader.loaded.model)
    answers = _answers(ready, first)
    if request.predictions is not None:
        kind.write_answers(request.predictions, first, *answers)
    found = with_metrics(request.metric, kind, first, answers, kind.evaluation(first, *answers))
    if first.split is not None:
        found["split"] = first.split
    if scoring.notes:
        found["notes"] = list(scoring.notes)
    if scoring.more:
        found["also"] = {one.split: kind.evaluation(one, *_answers(ready, one)) for one in scoring.more}
    if request.submission is not None and ready.submit is not None:
        found["submission"] = ready.submit(ready.readers[0], scoring, request.submission)
    return found


def check_batch_size(batch_size: int) -> None:
    """Raise UserError for a batch size below 1."""
    if batch_size < 1:
        raise UserError(f"the batch size is {batch_size}: it must be at least 1")


def _ready(request: Request) -> _Ready:
    """Load and check everything for an evaluation; all errors are reported together."""
    inputs, errors = request.inputs, ErrorList()
    if inputs.data.unlabelled:
        raise UserError("--unlabelled is for stillery distill: evaluation needs labels")
    check_batch_size(request.batch_size)
    kind = kind_of_model(request.model, inputs.data)
    refuse(kind, (inputs.data, inputs.generation, inputs.search), errors)
    model: Loaded | None = None
    teacher: Loaded | None = None
    scoring: Scoring | None = None
    encodings: list[Any] = []
    submit: Submit | None = None
    with errors.catch():
        model = load_to_score(kind, request.model, inputs.data)
    with errors.catch():
        teacher = load_to_score(kind, request.against, inputs.data) if request.against is not None else None
    if model is not None:
        with errors.catch():
            scoring = kind.read_to_score(inputs, model, request.split)
    if scoring is not None and model is not None and (teacher is not None or request.against is None):
        with errors.catch():
            models = [(model, inputs), *([(teacher, request.theirs or inputs)] if teacher is not None else [])]
            encodings = kind.readers(scoring, models)
    if scoring is not None and scoring.needs_teacher is not None and request.against is None:
        errors.add(scoring.needs_teacher)
    if request.metric is not None and scoring is not None:
        with errors.catch():
            check_metric(kind, scoring.scored)
    if request.submission is not None:
        with errors.catch():
            submit = _submission(kind, inputs, request.submission, overwrite=request.overwrite)
    if request.predictions is not None:
        with errors.catch():
            check_file(request.predictions, "--predictions", inputs.data.data, overwrite=request.overwrite)
    errors.raise_any()
    assert scoring is not None and model is not None
    loaded = [model, *([teacher] if teacher is not None else [])]
    readers = [
        Reader(loaded=one, encoding=encoding, batch_size=request.batch_size, description=one.name)
        for one, encoding in zip(loaded, encodings, strict=True)
    ]
    return _Ready(kind=kind, scoring=scoring, readers=readers, submit=submit)


def _submission(kind: Kind, inputs: InputSettings, folder: Path, *, overwrite: bool) -> Submit:
    if kind.submission is None:
        raise UserError("--submission is for classifiers")
    submit = kind.submission(inputs)
    check_folder(folder, "--submission")
    if not overwrite and inputs.data.task in TASKS:
        check_new(submission_files(folder, TASKS[inputs.data.task]), "--submission")
    return submit


def _answers(ready: _Ready, scored: Scored) -> tuple[Answers, Answers | None]:
    found = [ready.kind.answers(reader, scored, None) for reader in ready.readers]
    return found[0], found[1] if len(found) > 1 else None


def _say_differences(ours: Reader, theirs: Reader) -> None:
    """Report input settings in which the teacher differs from the model, as it was trained with others."""
    mine, other = ours.encoding.settings(), theirs.encoding.settings()
    apart = [f"{option_name(name)} {value!r}" for name, value in other.items() if mine.get(name, value) != value]
    if apart:
        say(f"{theirs.loaded.name} reads texts as it was trained to, not as {ours.loaded.name}: {', '.join(apart)}")
