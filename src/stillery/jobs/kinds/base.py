"""The contract of a kind of model: which settings it takes, how it reads, builds, trains on, scores and finishes.

A kind is a module or package in this folder that has a `KIND`; `stillery.jobs.kinds.find` finds it by itself. Nothing
else in `jobs` asks which kind a model is of: the jobs (prepare, run, finish, evaluate, predict) call these functions.
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
from stillery.models.load_model import Loaded
from stillery.models.option_words import DEFAULT_START
from stillery.models.student import Student
from stillery.train.on_policy import OnPolicy
from stillery.train.settings import Training
from stillery.train.trainable import Trainable

if TYPE_CHECKING:
    from stillery.jobs.calibration import Calibration
    from stillery.jobs.prepare import Check
    from stillery.jobs.prepared import Data, Prepared
    from stillery.losses import Kind as Outputs

__all__ = [
    "Answers",
    "Encoding",
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
        """A student, and its settings with all that was left open decided."""


Answers = Any
"""What a model answers for the examples of a split: logits, or generated texts; each kind has its own type."""

Run = Finetune | Distill


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Settings that mean nothing to a kind of model, and the line that says so.

    Attributes:
        names: the settings.
        line: what is said; `{option}` stands for the setting's option.
    """

    names: tuple[str, ...]
    line: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """Examples that models are scored on.

    Attributes:
        task: the name of the task, file or folder.
        split: which split of it; None of a whole file.
        examples: the examples.
        gold: their right labels; None where the split has none, or what is right is a text.
        labels: the classes that are scored; None where there are none.
        metrics: what a named task is measured by; None for what the kind measures otherwise.
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
    """The splits of a run as they were read: examples of train, dev and test, and those that models are scored on.

    `scored` has dev, test where there is one that can be scored, and further splits of a task by name. With `--holdout`
    the part of train that is held out stands in the place of dev, and what is reported in that of test.
    """

    splits: Any
    scored: Mapping[str, Scored]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scoring:
    """What `stillery evaluate` scores a model on: the split, further ones of the task, and notes about them.

    `groups` has for each class the outputs of the model that mean it, None where outputs and classes are the same.
    """

    scored: Scored
    more: tuple[Scored, ...] = ()
    notes: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] | None = None


class Encoding(Protocol):
    """How examples become the inputs of a model; a kind's own holds what else is asked of the model too."""

    @property
    def max_length(self) -> int:
        """Tokens of the longest input."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about it for the user, such as that texts are cut."""

    def settings(self) -> dict[str, Any]:
        """The same as settings, by name: to say in which of them two models differ."""

    def data(self, examples: Any, tokenizer: PreTrainedTokenizerBase, split: str) -> Trainable:
        """Examples with their tokens, from the cache when they are there; says how many were cut (`jobs.cut_texts`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reader:
    """A model that answers, its tokenizer, and how it reads.

    `cached` lets the answers of a teacher be read from the cache, where an earlier run has kept them.
    """

    loaded: Loaded
    encoding: Any
    batch_size: int
    description: str
    cached: bool = False


@dataclass(frozen=True, kw_only=True)
class Finishing:
    """What only one kind has to say when a run is finished.

    Attributes:
        metrics: keys of `metrics.json` beside the scores.
        cost: what it costs to run beside what is measured of every kind.
        card: fields of the model card's facts.
        ends: the tokens at which generation stops, which are exported with the model.
        one_answer: what is wrong with a model that gives everything one answer; said where no guard has said it.
    """

    metrics: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)
    ends: Sequence[int] = ()
    one_answer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Predicting:
    """How `stillery predict` adds a model's answers to the rows of a file.

    Attributes:
        open: looks through a file; the columns are named by the settings of `InputSettings.data` and `.generation`.
        columns: the names of the columns that are added.
        rows: the values of those columns for a batch of rows, and how many of its texts were cut.
        at_once: how many rows are read at a time, of the model's batch size.
        verb: what the model does, for the progress bar.
        noun: what its inputs are called.
    """

    open: Callable[[Path, InputSettings], Any]
    columns: Callable[[Loaded], list[str]]
    rows: Callable[[Reader, Any], tuple[list[list[Any]], int]]
    at_once: Callable[[int], int]
    verb: str = "predict"
    noun: str = "texts"


def _never(data: DataSettings) -> bool:
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
    """One kind of model: everything that the jobs ask about it."""

    name: str
    """As in `classification`."""

    layouts: tuple[str, ...]
    """Which stacks such a model has: `encoder`, `encoder-decoder`, `decoder` (`stillery.models.family.kind_of`)."""

    heads: tuple[str, ...] = ()
    """How the class names of its trained models end in config.json (`architectures`), such as ForTokenClassification.

    Of several kinds with the same layout the one whose head a model has is meant; the one without `heads` is meant
    where no other is."""

    meant: Callable[[DataSettings], bool] = _never
    """Whether the data that is asked for can only be this kind's, so that a base encoder is to become one."""

    start: str = DEFAULT_START
    """Where a student's weights come from if neither user nor method says."""

    refuses: tuple[Refusal, ...] = ()
    """Settings of other kinds, and what is said about them."""

    # Models

    load: Callable[[str], Loaded]
    """A trained model with its head, by name."""

    load_base: Callable[[str, Read | None, int], Loaded]
    """A pretrained model to fine-tune on what was read (None if that failed); what is new is drawn with the seed."""

    load_for_layers: Callable[[str, Loaded | None], Loaded]
    """A teacher of the hidden-state stage, which needs no head but the tokens of the teacher (None if that failed)."""

    make_student: MakeStudent
    """A student of a teacher, drawn with a seed, and its settings with depth and all that was left open decided.

    Without a calibration nothing can be measured: the student is then only good to be checked."""

    # Data

    read: Callable[[InputSettings, Loaded | None], Read]
    """The splits of a run, in the teacher's labels where it has any."""

    read_texts: Callable[[InputSettings], Any]
    """Examples of the hidden-state stage, which need no labels."""

    read_to_score: Callable[[InputSettings, Loaded, str | None], Scoring]
    """What a model is scored on: the split of that name, or the usual one."""

    under: Callable[[ConditionSettings, Read], tuple[Read, dict[str, Any]]]
    """The training split drawn and changed as the conditions say, and a record of it."""

    to_select: Callable[[Read, Any, str], Scored] = _like_dev
    """Training examples that are held out, as models are scored on them to choose between their weights."""

    measured: Callable[[Read, Training], Read] = _as_it_is
    """The splits with the metric first that is to decide; checks that the training settings go with the labels."""

    summary: Callable[[Read], str]
    """What is to be learnt, in words."""

    calibration: Callable[[Any, Loaded, InputSettings], Calibration]
    """Training examples on which it is measured what of a model matters, or which layers are alike."""

    # How texts become tensors

    inherit: Callable[[Asked[Any], ErrorList], tuple[Any, tuple[str, ...]]] = _nothing_inherited
    """The run with the settings that its teacher or model was trained with, where none are given; and notes."""

    encoding: Callable[[InputSettings, Sequence[PreTrainedConfig], PreTrainedTokenizerBase], Any]
    """How examples are read, within what all of these models have positions for."""

    written_out: Callable[[Any, Any], Any] = _as_it_is
    """The run with the settings that its encoding comes to, whatever defaults should later be."""

    # Method

    method: Callable[[Distill, Loaded | None], Distill] = _as_it_is
    """The run with what suits the kind or the teacher's family in its method, where nothing else is said."""

    recipe: Callable[[Any, Distill, Loaded], Any] = _as_it_is
    """The recipe as models of this kind are trained with it."""

    checks: tuple[Check, ...] = ()
    """Checks of a distillation that only this kind has."""

    policy: Callable[[Distill, PreTrainedModel, Loaded, Any], OnPolicy | None] = _none
    """How a student generates its own targets during training."""

    # Training

    outputs: Callable[[Read], Outputs]
    """What the losses take the model's outputs for."""

    class_weights: Callable[[Read, Training], torch.Tensor | None] = _none
    """What the labels' loss of each class is multiplied by; None where all count alike."""

    rewrite: Callable[[Prepared], tuple[Trainable, dict[str, Any]] | None] = _none
    """Training data with other targets than those that were read, and a record for metrics.json."""

    scorer: Callable[[Prepared, Data], Callable[[PreTrainedModel], Mapping[str, float]]]
    """What scores a student on the dev split during training; the first score decides."""

    # Scoring

    batch_size: Callable[[Training, torch.device], int]
    """How many examples a run's model answers at a time when it is scored at the end."""

    readers: Callable[[Scoring, Sequence[tuple[Loaded, InputSettings]]], list[Any]]
    """The encodings of models that are scored beside each other, the first one's first."""

    answers: Callable[[Reader, Scored, Any], Answers]
    """A model's predictions for the examples of a split, given those as tokens, or None where there are none yet."""

    evaluation: Callable[[Scored, Answers, Answers | None], dict[str, Any]]
    """The metrics of a model's answers, and its teacher's beside them; of a split without labels their agreement."""

    compared: Callable[[Scored, Answers], tuple[Any, Any]] | None = None
    """The labels of a split and a model's predictions in their form, as a metric of the user's gets them.

    None where this kind of model has no metric of the user's."""

    write_answers: Callable[[Path, Scored, Answers, Answers | None], None]
    """Every example and what the model, and its teacher, made of it."""

    submission: Callable[[InputSettings], Callable[[Reader, Scoring, Path], list[str]]] | None = None
    """Reads a task's unlabelled test split, and gives what writes a model's answers for its leaderboard.

    None where this kind of model has no leaderboard."""

    finishing: Callable[[Prepared, Data, PreTrainedModel], Finishing]
    """What a finished run says beside its scores."""

    latency_examples: int = 50
    """As many examples are answered one by one to measure latency."""

    # Prediction

    predicting: Predicting
    """How the rows of a file are answered."""
