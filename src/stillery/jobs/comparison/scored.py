"""Score several models on the same data, beside one teacher, and compare them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stillery.deploy.onnx_model import OnnxModel, on_one_thread
from stillery.errors import ErrorList, UserError
from stillery.evaluation.cost import latencies_ms, megabytes, parameters
from stillery.evaluation.inference_mode import to_device
from stillery.evaluation.recorded import read_predictions
from stillery.jobs.card import layer_counts
from stillery.jobs.comparison.compare import compare_models
from stillery.jobs.comparison.models import Model, how, named, run_around, train_seconds
from stillery.jobs.comparison.result import Comparison
from stillery.jobs.config.inherited import as_trained, reading_of
from stillery.jobs.config.run_file import run_of
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.custom_metric import check_metric, with_metrics
from stillery.jobs.evaluate import check_batch_size
from stillery.jobs.from_python import MetricFunction
from stillery.jobs.kinds.base import Answers, Kind, Reader, Scored, Scoring
from stillery.jobs.kinds.find import kind_of_model
from stillery.jobs.kinds.refuse import refuse
from stillery.jobs.load_to_score import load_to_score
from stillery.jobs.trained_on import warn_of_seen
from stillery.models.load_model import Loaded
from stillery.models.model_folder import model_folder
from stillery.progress import say
from stillery.setting import Named, option_name

__all__ = ["Several", "compare_scored", "refuse_for_several", "scored_models"]


@dataclass(frozen=True, kw_only=True)
class Several:
    """A request to score several models on the same data.

    Attributes:
        models: model folders, run folders, or names on the hub, and the input settings of each.
        against: a teacher, and its input settings; its agreement with each of the others is scored.
        split: the name of the split; None for a whole file, else test, or dev.
        batch_size: the number of examples per batch.
        metric: a user-defined metric, given in Python.
    """

    models: Sequence[tuple[str, InputSettings]]
    against: tuple[str, InputSettings] | None = None
    split: str | None = None
    batch_size: int = 64
    metric: MetricFunction | None = None

    @classmethod
    def of(
        cls, models: Sequence[str], against: str | None, settings: Mapping[str, Any], named: Named = str, **more: Any
    ) -> Several:
        """Build from the settings given for all models; each inherits the others from its own run."""
        names = [name for name in dict.fromkeys(models) if name != against]
        if len(names) + (against is not None) < 2 or not names:
            raise UserError(f"{models[0]} is one model named twice: name another to compare it with")
        teacher = None
        if against is not None:
            teacher = (against, reading_of(against, settings, named) or as_trained(names[0], settings, named))
        return cls(models=[(name, as_trained(name, settings, named)) for name in names], against=teacher, **more)


def refuse_for_several(**given: Any) -> None:
    """Raise UserError for options that apply to a single model only."""
    for name, value in given.items():
        if value is not None:
            raise UserError(f"{option_name(name)} is for one model: leave it out, or name only one")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ready:
    """The models, loaded and checked; the last reader is the teacher's, if there is one."""

    kind: Kind
    scoring: Scoring
    readers: list[Reader]


def compare_scored(asked: Several) -> Comparison:
    """Score models on the same examples, and compare them with the first one."""
    return compare_models(scored_models(asked), baseline=0 if asked.against is None else 1)


def scored_models(asked: Several) -> list[Model]:
    """Score models on the same examples; the teacher comes first."""
    ready = _ready(asked)
    scored, readers = ready.scoring.scored, ready.readers
    for note in dict.fromkeys([*ready.scoring.notes, *(note for one in readers for note in one.encoding.notes)]):
        say(note)
    for name, inputs in asked.models:
        warn_of_seen(name, inputs.data, asked.split)
    for reader in readers:
        to_device(reader.loaded.model)
    answers, batches = [], []
    for reader in readers:
        tokenised = reader.encoding.data(scored.examples, reader.loaded.tokenizer, reader.description)
        answers.append(ready.kind.answers(reader, scored, tokenised))
        few = range(min(len(tokenised), ready.kind.latency_examples))
        batches.append([tokenised.batch(np.array([row]), pad_to=1).inputs for row in few])
    theirs = answers[-1] if asked.against is not None else None
    teacher = None if asked.against is None else asked.against[0]
    scores = [_scores(asked, ready.kind, scored, one, theirs) for one in answers]
    if "texts_per_second" in scores[0]:
        speeds = [{"texts_per_second": one.get("texts_per_second")} for one in scores]
    else:
        times = latencies_ms([on_one_thread(reader.loaded.model) for reader in readers], batches)
        speeds = [{"latency_ms": time} for time in times]
    models = [
        _model(ready.kind, scored, *of_one, teacher) for of_one in zip(readers, answers, scores, speeds, strict=True)
    ]
    if teacher is not None:
        models = [models[-1], *models[:-1]]
    return named(models)


def _ready(asked: Several) -> _Ready:
    """Load and check everything; all errors are reported together."""
    check_batch_size(asked.batch_size)
    everything = [*asked.models, *([asked.against] if asked.against is not None else [])]
    inputs, errors = asked.models[0][1], ErrorList()
    if inputs.data.unlabelled:
        raise UserError("--unlabelled is for stillery distill: evaluation needs labels")
    kinds: list[Kind] = []
    for name, _ in everything:
        with errors.catch():
            kinds.append(kind_of_model(name))
    errors.raise_any()
    for (name, _), other in zip(everything, kinds, strict=True):
        if other is not kinds[0]:
            one, two = (each.name.replace("_", " ") for each in (kinds[0], other))
            raise UserError(f"{everything[0][0]} and {name} cannot be compared: {one} and {two}")
    kind = kind_of_model(everything[0][0], inputs.data)
    refuse(kind, (inputs.data, inputs.generation, inputs.search), errors)
    loaded: list[Loaded] = []
    for name, own in everything:
        with errors.catch():
            loaded.append(load_to_score(kind, name, own.data))
    errors.raise_any()
    scoring = kind.read_to_score(inputs, loaded[0], asked.split)
    if scoring.needs_teacher is not None and asked.against is None:
        raise UserError(scoring.needs_teacher)
    if asked.metric is not None:
        check_metric(kind, scoring.scored)
    encodings = kind.readers(scoring, [(one, own) for one, (_, own) in zip(loaded, everything, strict=True)])
    readers = [
        Reader(loaded=one, encoding=encoding, batch_size=asked.batch_size, description=one.name)
        for one, encoding in zip(loaded, encodings, strict=True)
    ]
    return _Ready(kind=kind, scoring=scoring, readers=readers)


def _scores(asked: Several, kind: Kind, scored: Scored, ours: Answers, theirs: Answers | None) -> dict[str, Any]:
    """Return a model's metrics, and its agreement with the teacher."""
    teacher = None if theirs is ours else theirs
    found = with_metrics(asked.metric, kind, scored, (ours, teacher), kind.evaluation(scored, ours, teacher))
    return found if scored.split is None else found | {"split": scored.split}


def _model(
    kind: Kind,
    scored: Scored,
    reader: Reader,
    answers: Answers,
    scores: Mapping[str, Any],
    speed: Mapping[str, Any],
    teacher: str | None,
) -> Model:
    """Return a scored model as a record to compare; predictions go through a file, like those of a finished run."""
    name, model = reader.loaded.name, reader.loaded.model
    with tempfile.TemporaryDirectory(prefix="stillery-scored-") as folder:
        file = Path(folder) / "predictions.parquet"
        kind.write_answers(file, scored, answers, None)
        recorded = read_predictions(file)
    place, values = Path(model_folder(name)), run_of(name)
    folder_of = str(run_around(place)) if place.is_dir() else name
    exported = model if isinstance(model, OnnxModel) else None
    if exported is not None:
        folder_of = str(exported.file.resolve())
    facts = {
        "layers": layer_counts(model.config),
        "parameters": parameters(model) if exported is None else values.get("parameters"),
        "megabytes": exported.megabytes if exported is not None else megabytes(place) if place.is_dir() else None,
        "train_seconds": train_seconds(run_around(place)) if values else None,
        **speed,
    }
    return Model(
        place=name, folder=folder_of, how=how(values, facts), scores=scores, recorded=recorded, facts=facts,
        teacher=None if teacher == name else teacher,
    )  # fmt: skip
