"""Score a model on labelled examples, and beside its teacher; write what a leaderboard wants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.examples import Examples
from stillery.data.schema.label_mapping import merged
from stillery.data.schema.labels import Labels
from stillery.data.tasks.load import find_task, load_task_test
from stillery.errors import ErrorList, UserError
from stillery.evaluate.predictions import predict_logits, write_predictions
from stillery.evaluate.report import evaluation
from stillery.evaluate.submission import write_submission
from stillery.jobs.config.settings import DataSettings, GenerationSettings, SearchSettings
from stillery.jobs.inputs import (
    Groups,
    Scoring,
    check_batch_size,
    groups_of,
    to_device,
    to_score,
    token_limit,
    tokens_of,
)
from stillery.jobs.model_kind import check_no_search, writes_text
from stillery.jobs.output_paths import check_file, check_folder
from stillery.jobs.text_evaluate import run_text_evaluate
from stillery.jobs.trained_on import warn_of_seen
from stillery.models.load import Loaded, load_classifier
from stillery.progress import say

__all__ = ["run_evaluate"]


def _logits(
    loaded: Loaded, examples: Examples, max_length: int, batch_size: int, groups: Groups | None
) -> NDArray[np.float32]:
    """A model's outputs, in the classes that are scored."""
    to_device(loaded.model)
    limit = token_limit(max_length, loaded.model.config)
    tokens = tokens_of(examples, loaded.tokenizer, limit, loaded.name)
    logits = predict_logits(
        loaded.model,
        tokens,
        examples,
        pad_id=int(loaded.tokenizer.pad_token_id),
        batch_size=batch_size,
        description=f"score {loaded.name}",
    )
    return logits if groups is None else merged(logits, groups)


def run_evaluate(
    model: str,
    data: DataSettings,
    writing: GenerationSettings | None = None,
    decoding: SearchSettings | None = None,
    *,
    against: str | None = None,
    theirs: tuple[DataSettings, GenerationSettings] | None = None,
    part: str | None = None,
    batch_size: int = 64,
    submission: Path | None = None,
    predictions: Path | None = None,
) -> dict[str, Any]:
    """Metrics of a model in percent with 95% intervals; with `against`, the teacher's too and their agreement.

    A model that writes text is scored by what it writes. `theirs` is how the model `against` reads, where it does so in
    its own way. `predictions` is a file for every example's outcome.
    `submission` is a folder for the predictions on a GLUE task's unlabelled test part, as the leaderboard wants them.
    """
    if data.unlabelled:
        raise UserError("--unlabelled is for stillery distill: scoring needs what is right")
    writing, decoding = writing or GenerationSettings(), decoding or SearchSettings()
    if writes_text(model):
        if submission is not None:
            raise UserError("--submission is for classifiers")
        return run_text_evaluate(
            model, data, writing, decoding, against=against, theirs=theirs, part=part, batch_size=batch_size,
            predictions=predictions,
        )  # fmt: skip
    check_batch_size(batch_size)
    errors = ErrorList()
    loaded: Loaded | None = None
    teacher: Loaded | None = None
    scoring: Scoring | None = None
    tests: Mapping[str, Examples] = {}
    groups: Groups | None = None
    check_no_search(writing, decoding, errors)
    with errors.catch():
        loaded = load_classifier(model)
    with errors.catch():
        teacher = load_classifier(against) if against is not None else None
    if loaded is not None:
        with errors.catch():
            scoring = to_score(data, Labels.of_model(loaded.model.config), part)
    if scoring is not None and teacher is not None:
        with errors.catch():
            groups = groups_of(scoring, Labels.of_model(teacher.model.config), teacher.name)
    if submission is not None:
        with errors.catch():
            tests = _tests(data)
            check_folder(submission, "--submission")
    if predictions is not None:
        with errors.catch():
            check_file(predictions, "--predictions", data.data)
    errors.raise_any()
    assert loaded is not None and scoring is not None
    for note in scoring.notes:
        say(note)
    warn_of_seen(model, data, part)
    their_length = data.max_length if theirs is None else theirs[0].max_length
    if teacher is not None and their_length != data.max_length:
        say(f"{teacher.name} reads texts as it was trained to, not as {loaded.name}: --max-length {their_length}")
    parts: dict[str | None, Examples] = {scoring.part: scoring.examples, **dict(scoring.more.items())}
    results: dict[str | None, dict[str, Any]] = {}
    for name, examples in parts.items():
        assert examples.labels is not None
        logits = _logits(loaded, examples, data.max_length, batch_size, scoring.groups)
        beside = None if teacher is None else _logits(teacher, examples, their_length, batch_size, groups)
        if predictions is not None and name == scoring.part:
            write_predictions(predictions, examples, scoring.labels, logits, beside)
        results[name] = evaluation(
            scoring.name, examples.labels, logits, scoring.labels, beside, scoring.metrics
        )  # fmt: skip
    found = results.pop(scoring.part)
    if scoring.part is not None:
        found["part"] = scoring.part
    if scoring.notes:
        found["notes"] = list(scoring.notes)
    if results:
        found["also"] = results
    if submission is not None:
        assert data.task is not None
        task, found["submission"] = find_task(data.task), []
        for name, examples in tests.items():
            logits = _logits(loaded, examples, data.max_length, batch_size, scoring.groups)
            found["submission"].append(str(write_submission(submission, name, logits, task)))
    return found


def _tests(data: DataSettings) -> Mapping[str, Examples]:
    """The unlabelled test parts of a GLUE task."""
    if data.task is None:
        raise UserError("--submission is for the tasks of GLUE: give --task, such as --task rte")
    return load_task_test(data.task, None if data.data_dir is None else Path(data.data_dir))
