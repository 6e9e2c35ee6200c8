"""Interface of a kind of model: its settings, and how it reads data, builds students, trains, scores and finishes.

A kind is a module or package in this folder that defines `KIND`; `stillery.jobs.kinds.find` discovers it. Nothing else
in `jobs` depends on the kind of a model: the jobs (prepare, run, finish, evaluate, predict) call these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from numpy.typing import NDArray
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.schema.labels import Labels
from stillery.errors import ErrorList
from stillery.jobs.config.settings import (
    Asked,
    ConditionSettings,
    DataSettings,
    Distill,
    Finetune,
    InputSettings,
    StudentSettings,
)
from stillery.models.family import Sizes
from stillery.models.load_model import Loaded
from stillery.models.option_words import DEFAULT_START
from stillery.models.student import Student
from stillery.train.on_policy import OnPolicy
from stillery.train.settings import Training
from stillery.train.trainable import Trainable

if TYPE_CHECKING:
    from stillery.deploy.gate import Agreement
    from stillery.jobs.calibration import Calibration
    from stillery.jobs.prepare import Check
    from stillery.jobs.prepared import Data, Prepared
    from stillery.losses import Kind as Outputs

__all__ = [
    "Answers",
    "Encoding",
    "Exporting",
    "Finishing",
    "Kind",
    "Predicting",
    "Read",
    "Reader",
    "Refusal",
    "Scored",
    "Scoring",
]


class MakeStudent(Protocol):
    """Builds and initialises a student."""

    def __call__(
        self, settings: StudentSettings, teacher: Loaded, seed: int, calibration: Calibration | None
    ) -> tuple[Student, StudentSettings]:
        """Return a student, and its settings with every open choice filled in."""


Answers = Any
"""A model's outputs for the examples of a split: logits, or generated texts; each kind has its own type."""

Run = Finetune | Distill


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Settings that do not apply to a kind of model, and their error message.

    Attributes:
        names: the settings.
        line: the message; `{option}` stands for the setting's option.
    """

    names: tuple[str, ...]
    line: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """Examples that models are scored on.

    Attributes:
        task: the name of the task, file or folder.
        split: the name of the split; None for a whole file.
        examples: the examples.
        gold: their gold labels; None for an unlabelled split, or where the references are texts.
        labels: the classes that are scored; None where there are none.
        metrics: the metrics of a named task; None for the kind's default metrics.
        words: where classes are generated as text, the word for each.
    """

    task: str
    split: str | None
    examples: Any
    gold: NDArray[Any] | None = None
    labels: Labels | None = None
    metrics: tuple[str, ...] | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Read:
    """The splits of a run: examples of train, dev and test, and those that models are scored on.

    `scored` has dev, test where it can be scored, and further splits of a task by name. With `--holdout` the held-out
    part of train takes the place of dev, and the split that is reported that of test.
    """

    splits: Any
    scored: Mapping[str, Scored]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scoring:
    """The splits that `stillery evaluate` scores a model on: the main one, further ones of the task, and notes.

    `groups` maps each class to the model's outputs for it; None where outputs and classes are the same. `needs_teacher`
    is the error if there is no teacher to compare with, where nothing else scores a model.
    """

    scored: Scored
    more: tuple[Scored, ...] = ()
    notes: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] | None = None
    needs_teacher: str | None = None


class Encoding(Protocol):
    """The conversion of examples to model inputs; each kind's own class may hold more, such as decoding settings."""

    @property
    def max_length(self) -> int:
        """The maximum input length in tokens."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user, such as that texts are truncated."""

    def settings(self) -> dict[str, Any]:
        """Return the encoding as settings by name, to report in which of them two models differ."""

    def data(self, examples: Any, tokenizer: PreTrainedTokenizerBase, split: str) -> Trainable:
        """Return tokenised examples, cached if possible; reports how many were truncated (`jobs.cut_texts`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reader:
    """A model for inference with its tokenizer, encoding and batch size.

    With `cached` a teacher's outputs are read from the cache where an earlier run has stored them.
    """

    loaded: Loaded
    encoding: Any
    batch_size: int
    description: str
    cached: bool = False


@dataclass(frozen=True, kw_only=True)
class Finishing:
    """The part of a finished run's outputs that is specific to a kind of model.

    Attributes:
        metrics: keys of `metrics.json` beside the scores.
        cost: inference costs beside those measured for every kind.
        card: fields of the model card's facts.
        ends: the end-of-sequence tokens, which are exported with the model.
        one_answer: the warning about a model with constant predictions; shown unless a guard has shown it already.
    """

    metrics: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)
    ends: Sequence[int] = ()
    one_answer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Predicting:
    """The functions by which `stillery predict` adds a model's predictions to the rows of a file.

    Attributes:
        open: opens a file; its columns are named by the settings of `InputSettings.data` and `.generation`.
        columns: the names of the columns that are added.
        rows: the values of those columns for a batch of rows, and how many of its texts were truncated.
        at_once: the number of rows to read at a time, for the model's batch size.
        verb: what the model does, for the progress bar.
        noun: what its inputs are called.
    """

    open: Callable[[Path, InputSettings], Any]
    columns: Callable[[Loaded], list[str]]
    rows: Callable[[Reader, Any], tuple[list[list[Any]], int]]
    at_once: Callable[[int], int]
    verb: str = "predict"
    noun: str = "texts"


@dataclass(frozen=True, kw_only=True)
class Exporting:
    """The functions by which `stillery export` compares an exported model with its checkpoint.

    Attributes:
        outputs: a model's logits on tokenised examples, where truncated words have NaN, and the answers they stand for.
        agreement: how well two models agree, and what is measured: equal answers, a correlation, a mean cosine.
        usage: lines of Python that use a folder of an export: from its files, its labels, and whether texts are pairs.
        tag: the hub's pipeline tag.
        output: what one number of the model's outputs is called.
    """

    outputs: Callable[[Reader, Scored, Any], tuple[NDArray[Any], Answers]]
    agreement: Callable[[Scored, Answers, Answers], Agreement]
    usage: Callable[[str, Sequence[str], Labels, bool], list[str]]
    tag: str = "text-classification"
    output: str = "logit"


def _never(data: Any) -> bool:
    return False


def _nothing_inherited(asked: Asked[Any], errors: ErrorList) -> tuple[Any, tuple[str, ...]]:
    return asked.run, ()


def _as_it_is(run: Any, *_: Any) -> Any:
    return run


def _like_dev(read: Read, examples: Any, split: str) -> Scored:
    return replace(read.scored["dev"], split=split, examples=examples, gold=examples.labels)


def _none(*_: Any) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of model, such as classifiers: all the functions and settings of it that the jobs use."""

    name: str
    """The name, such as `classification`."""

    layouts: tuple[str, ...]
    """The stacks such a model may have: `encoder`, `encoder-decoder`, `decoder` (`stillery.models.family.kind_of`)."""

    heads: tuple[str, ...] = ()
    """Suffixes of its trained models' class names in config.json (`architectures`), such as ForTokenClassification.

    Among kinds with the same layout the one whose head the model has is chosen; the one without `heads` is the
    default."""

    meant: Callable[[DataSettings], bool] = _never
    """Whether the given data fits this kind only, so that a base encoder is fine-tuned to be one."""

    recognises: Callable[[str], bool] = _never
    """Whether the files of a model, by name, say that it is of this kind, where its head does not."""

    headless: bool = False
    """Whether a trained encoder without a head is of this kind, unless the data fits another."""

    not_fine_tuned: str | None = None
    """The error for a model of this kind that is to be fine-tuned; None where that has a meaning."""

    start: str = DEFAULT_START
    """The initialisation of a student where neither the user nor the method sets it."""

    refuses: tuple[Refusal, ...] = ()
    """Settings of other kinds, with their error messages."""

    # Models

    load: Callable[[str], Loaded]
    """Load a trained model with its head, by name."""

    as_set: Callable[[Loaded, DataSettings], Loaded] = _as_it_is
    """Apply data settings that decide what a loaded model computes, such as the pooling of a plain encoder."""

    load_base: Callable[[str, Read | None, int], Loaded]
    """Load a pretrained model to fine-tune on the splits (None if reading failed); the seed initialises new weights."""

    load_for_layers: Callable[[str, Loaded | None], Loaded]
    """Load a teacher of the hidden-state stage: it needs no head, but the teacher's tokens (None if loading failed)."""

    make_student: MakeStudent
    """Build a student of a teacher, seeded, and its settings with its depth and every open choice filled in.

    Without a calibration nothing can be measured: the student then serves for checks only."""

    student_sizes: Callable[[StudentSettings, str, PreTrainedConfig, PreTrainedConfig, str], Mapping[str, Sizes]]
    """The sizes of a student's stacks, from its settings, its start, the configurations of teacher and source model,
    and the source's name; checks them without loading a model."""

    # Data

    read: Callable[[InputSettings, Loaded | None], Read]
    """Read the splits of a run, with the teacher's labels where it has any."""

    read_texts: Callable[[InputSettings], Any]
    """Read examples of the hidden-state stage, which need no labels."""

    read_to_score: Callable[[InputSettings, Loaded, str | None], Scoring]
    """Read the split to score a model on: the one of that name, or the default one."""

    under: Callable[[ConditionSettings, Read], tuple[Read, dict[str, Any]]]
    """Subsample and corrupt the training split as the conditions specify; returns the splits and a record."""

    to_select: Callable[[Read, Any, str], Scored] = _like_dev
    """Turn held-out training examples into a split to select checkpoints by."""

    measured: Callable[[Read, Training], Read] = _as_it_is
    """Put the metric that selects checkpoints first; checks that the training settings fit the labels."""

    summary: Callable[[Read], str]
    """Describe the task to learn, in words."""

    calibration: Callable[[Any, Loaded, InputSettings], Calibration]
    """Calibration examples of the training split, to measure importance and the similarity of layers."""

    # Encoding

    inherit: Callable[[Asked[Any], ErrorList], tuple[Any, tuple[str, ...]]] = _nothing_inherited
    """Inherit settings that are not given from the training run of the teacher or model; returns the run and notes."""

    encoding: Callable[[InputSettings, Sequence[PreTrainedConfig], PreTrainedTokenizerBase], Any]
    """Build the encoding, within the position limits of all of these models."""

    written_out: Callable[[Any, Any], Any] = _as_it_is
    """Record the resolved encoding in the run's settings, so that later changes of defaults do not affect it."""

    # Method

    method: Callable[[Distill, Loaded | None], Distill] = _as_it_is
    """Set the method's defaults for the kind or the teacher's family, where the user gives none."""

    recipe: Callable[[Any, Distill, Loaded], Any] = _as_it_is
    """Adapt the recipe to models of this kind."""

    checks: tuple[Check, ...] = ()
    """Distillation checks specific to this kind."""

    policy: Callable[[Distill, PreTrainedModel, Loaded, Any], OnPolicy | None] = _none
    """Settings by which a student generates its own targets during training (on-policy); None without."""

    # Training

    outputs: Callable[[Read], Outputs]
    """The type of the model's outputs for the losses: classes, labels, a score, tokens, tags or an embedding."""

    class_weights: Callable[[Read, Training], torch.Tensor | None] = _none
    """The weight of each class in the label loss; None for equal weights."""

    rewrite: Callable[[Prepared], tuple[Trainable, dict[str, Any]] | None] = _none
    """Training data with targets other than those of the file, and a record for metrics.json."""

    scorer: Callable[[Prepared, Data], Callable[[PreTrainedModel], Mapping[str, float]]]
    """Build the function that scores a student on the dev split during training; its first score selects."""

    # Scoring

    batch_size: Callable[[Training, torch.device], int]
    """The batch size of the final evaluation of a run."""

    readers: Callable[[Scoring, Sequence[tuple[Loaded, InputSettings]]], list[Any]]
    """The encodings of models that are scored on the same data, the first model's first."""

    answers: Callable[[Reader, Scored, Any], Answers]
    """A model's predictions for a split, from its tokenised examples, or None if not tokenised yet."""

    evaluation: Callable[[Scored, Answers, Answers | None], dict[str, Any]]
    """The metrics of a model and of its teacher; for an unlabelled split their agreement."""

    compared: Callable[[Scored, Answers], tuple[Any, Any]] | None = None
    """The labels of a split and a model's predictions, in the form that a user-defined metric takes.

    None where this kind of model supports no user-defined metric."""

    write_answers: Callable[[Path, Scored, Answers, Answers | None], None]
    """Write every example with the predictions of the model and of its teacher."""

    submission: Callable[[InputSettings], Callable[[Reader, Scoring, Path], list[str]]] | None = None
    """Read a task's unlabelled test split, and return a function that writes a model's leaderboard submission.

    None where this kind of model has no leaderboard."""

    finishing: Callable[[Prepared, Data, PreTrainedModel], Finishing]
    """The outputs of a finished run beside its scores."""

    latency_examples: int = 50
    """The number of examples, one per batch, on which latency is measured."""

    # Prediction

    predicting: Predicting
    """The functions of `stillery predict`."""

    # Export

    exporting: Exporting | None = None
    """The functions of `stillery export`; None where models of this kind are not exported."""
