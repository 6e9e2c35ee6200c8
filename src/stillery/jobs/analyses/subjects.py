"""Models and examples of an analysis, loaded from what the user names; a run brings its teacher and data along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from stillery.data.schema.examples import Examples
from stillery.data.tokens.batches import Batch, in_order
from stillery.errors import ErrorList, UserError
from stillery.evaluation.inference_mode import to_device
from stillery.jobs.calibration import spread
from stillery.jobs.config.inherited import as_trained
from stillery.jobs.config.run_file import run_of
from stillery.jobs.config.settings import EXAMPLES, DataSettings, GenerationSettings, InputSettings, setting_names
from stillery.jobs.kinds.base import Kind
from stillery.jobs.kinds.find import kind_of_model
from stillery.jobs.kinds.refuse import refuse
from stillery.lines import listed
from stillery.losses import Kind as Outputs
from stillery.models.family import sizes
from stillery.models.load_model import Loaded, check_same_tokenizer
from stillery.setting import option_name
from stillery.train.trainable import Trainable

__all__ = [
    "Inputs",
    "Subject",
    "beside_teacher",
    "depth",
    "labelled",
    "names_of",
    "on_same_data",
    "read_examples",
    "teacher_of",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """Tokenised examples of an analysis.

    `outputs` is the type of the model's predictions, None where labels are not needed; `about` describes the data.
    """

    examples: Examples
    data: Trainable
    about: dict[str, Any]
    batch_size: int
    outputs: Outputs | None = None

    def __len__(self) -> int:
        return len(self.data)

    def batches(self) -> Iterator[Batch]:
        """Yield the examples in batches, longest first."""
        for index in in_order(self.data.lengths, self.batch_size):
            yield self.data.batch(index, pad_to=1)

    def said(self) -> str:
        """Return the data in words."""
        return f"{len(self.data):,} {self.about['split']} examples of {self.about['data']}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A model with its kind, and the settings of the data it is analysed on."""

    name: str
    kind: Kind
    loaded: Loaded
    inputs: InputSettings

    @property
    def model(self) -> PreTrainedModel:
        """The model."""
        return self.loaded.model


def data_of(model: str, given: Mapping[str, Any]) -> InputSettings:
    """Return the input settings: those given, the data of the model's run where none is, its run's other settings."""
    values = {name: value for name, value in given.items() if value is not None}
    if not {"data", "task"} & values.keys():
        known = run_of(model)
        names = [*setting_names(DataSettings), *setting_names(GenerationSettings)]
        values = {name: known[name] for name in names if name in known} | values
    if not {"data", "task"} & values.keys():
        raise UserError(f"{model} is no run that names its data: give --data (a file or folder) or --task (a name)")
    return as_trained(model, values, option_name)


def labelled(model: str, given: Mapping[str, Any], *, needs_head: bool = True) -> Subject:
    """Load a model, with its trained head if it `needs_head`, and find its data."""
    inputs = data_of(model, given)
    kind, errors = kind_of_model(model, inputs.data), ErrorList()
    refuse(kind, (inputs.data, inputs.generation), errors)
    errors.raise_any()
    loaded = kind.load(model) if needs_head else kind.load_for_layers(model, None)
    to_device(loaded.model)
    return Subject(name=model, kind=kind, loaded=loaded, inputs=inputs)


def on_same_data(models: Sequence[str], given: Mapping[str, Any], *, needs_head: bool = True) -> dict[str, Subject]:
    """Load models to compare on the same examples, those of the first where none are named, by short name.

    How texts are read, such as their length, is each model's own.
    """
    first = labelled(models[0], given, needs_head=needs_head)
    chosen = {name: getattr(first.inputs.data, name) for name in EXAMPLES & set(setting_names(DataSettings))}
    chosen |= {name: getattr(first.inputs.generation, name) for name in ("source", "target")}
    said = {name: value for name, value in chosen.items() if value} | dict(given)
    others = [labelled(model, said, needs_head=needs_head) for model in models[1:]]
    return dict(zip(names_of(models), [first, *others], strict=True))


def teacher_of(student: str, teacher: str | None) -> str:
    """Return the teacher that is named, or that of the student's run."""
    found = teacher or run_of(student).get("teacher")
    if not isinstance(found, str):
        raise UserError(f"{student} is no run of stillery distill, so its teacher is not known: give --teacher")
    return found


def beside_teacher(student: str, teacher: str | None, given: Mapping[str, Any]) -> tuple[Subject, Subject]:
    """Load a student and its teacher; both must read the same tokens."""
    named = teacher_of(student, teacher)
    ours = labelled(student, given, needs_head=False)
    kind = kind_of_model(named, ours.inputs.data)
    if kind is not ours.kind:
        what = [one.name.replace("_", " ") for one in (ours.kind, kind)]
        raise UserError(f"{student} and {named} are of different kinds: {what[0]} and {what[1]}")
    theirs = Subject(name=named, kind=kind, loaded=kind.load_for_layers(named, None), inputs=ours.inputs)
    check_same_tokenizer(theirs.loaded, ours.loaded)
    to_device(theirs.model)
    return ours, theirs


def read_examples(
    subject: Subject,
    settings: Any,
    *,
    models: Sequence[Subject] = (),
    labels: bool = False,
    head: bool = True,
    split: str | None = None,
) -> Inputs:
    """Read and tokenise examples for a subject and the other models that read them too.

    With `labels` they are read with their labels, in the order of the subject's `head`, else in that of the data.
    """
    data = subject.inputs.data if labels else replace(subject.inputs.data, unlabelled=True)
    read = subject.kind.read(replace(subject.inputs, data=data), subject.loaded if labels and head else None)
    split = split or settings.split
    found: Examples | None = getattr(read.splits, split)
    if found is None:
        there = [name for name in ("train", "dev", "test") if getattr(read.splits, name) is not None]
        raise UserError(f"--split {split}: {read.splits.source} has none; it has {listed(there)}")
    if labels and subject.kind.outputs(read) in ("classes", "labels", "score") and found.labels is None:
        raise UserError(f"--split {split}: {read.splits.source} has no labels there, and the loss needs them")
    whole = len(found)
    if settings.examples is not None and settings.examples < whole:
        found = found.take(spread(whole, settings.examples))
    configs = [one.model.config for one in dict.fromkeys((subject, *models))]
    encoding = subject.kind.encoding(subject.inputs, configs, subject.loaded.tokenizer)
    return Inputs(
        examples=found,
        data=encoding.data(found, subject.loaded.tokenizer, split),
        about={"data": _short(read.splits.source), "split": split, "examples": len(found), "of": whole,
               "max_length": encoding.max_length},
        batch_size=settings.batch_size,
        outputs=subject.kind.outputs(read) if labels else None,
    )  # fmt: skip


def depth(subject: Subject, stack: str) -> int:
    """Return the number of layers of a subject's stack."""
    return sizes(subject.model.config, stack).layers


def names_of(models: Sequence[str]) -> list[str]:
    """Return short names of models: the last parts of their paths, as many as tell them apart.

    >>> names_of(["runs/a/small", "runs/b/small", "minilm-l6"])
    ['a/small', 'b/small', 'minilm-l6']
    """
    parts = [Path(model).parts[-4:] or (model,) for model in models]
    for length in range(1, 5):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(set(models)):
            break
    return names


def _short(source: str) -> str:
    """Return the last part of a source that is a path."""
    return Path(source).name if "/" in source else source
