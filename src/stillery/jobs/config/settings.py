"""Settings of a run, under the same names on the command line, in a run file and in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from stillery.errors import ErrorList, UserError
from stillery.jobs.config.other_names import not_a_setting
from stillery.models.option_words import DEFAULT_STARTS, HEADS, LAYER_CHOICES, POOLINGS, PROJECTORS, REUSES
from stillery.setting import Named, Panel, make, setting
from stillery.train.settings import Storing, Training
from stillery.words import method_words, read_along, words

__all__ = [
    "EXAMPLES",
    "GROUPS",
    "Asked",
    "ConditionSettings",
    "DataSettings",
    "Distill",
    "Finetune",
    "GenerationSettings",
    "InputSettings",
    "MethodSettings",
    "RestartSettings",
    "Run",
    "SearchSettings",
    "StudentSettings",
    "resolve",
    "scoring_settings",
    "setting_names",
]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Settings that select the examples, and how they are read."""

    panel: ClassVar[Panel] = Panel.DATA

    data: str | None = setting(
        None,
        "A CSV, TSV, JSON, Parquet, Excel, CoNLL or text file, or a folder with train, dev and test files.",
        panel=Panel.FIRST,
    )
    task: str | None = setting(None, "A named task instead of --data; see `stillery tasks`.", panel=Panel.FIRST)
    data_dir: str | None = setting(None, "Where a named task's files are.  [default: the hub's cache, then the hub]")
    text: str | None = setting(None, "Column with the text, or with lists of words.  [default: found by name]")
    text_pair: str | None = setting(None, "Column with the second text.  [default: found by name]")
    label: str | None = setting(
        None, "Column with the label, several 0/1 columns: A,B,C, or lists of tags.  [default: found by name]"
    )
    query: str | None = setting(
        None,
        "Column with the query, as text or id: ranks the documents of each by nDCG@10, MRR and MAP; numeric labels are "
        "then grades, and a query is never divided between splits.",
    )
    regression: bool | None = setting(
        None, "Labels are numbers to predict, not classes.  [default: found from the labels]"
    )
    multi_label: bool | None = setting(
        None, "A text may have several labels, separated in its cell.  [default: if labels are lists or 0/1 columns]"
    )
    label_separator: str | None = setting(None, "Separator of the labels of a text.  [default: |]")
    max_classes: int | None = setting(
        None, "Most classes a label column may have.  [default: 1000, with two rows for each]", least=2, most=100_000
    )
    label_map: str | None = setting(
        None, "Map the data's labels to the model's: 0=neg,1=pos.  [default: by the same names]"
    )
    encoding: str | None = setting(None, "Encoding of text files, such as latin-1 or utf-16.  [default: UTF-8]")
    skip_empty: bool = setting(False, "Leave out rows with no text or no label, which are errors otherwise.")
    unlabelled: bool = setting(False, "Distil on texts alone: no labels of the training split are needed or read.")
    pooling: str | None = setting(
        None,
        "How a plain encoder embeds texts, from the states of their tokens.  [default: as its folder says, else mean]",
        choices=POOLINGS,
    )
    max_length: int = setting(128, "Tokens per example; longer texts are cut.", least=4)


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """Settings for the sources and targets of a model that generates text."""

    panel: ClassVar[Panel] = Panel.GENERATION

    source: str | None = setting(None, "Column with the source texts, to generate from.  [default: found by name]")
    target: str | None = setting(None, "Column with the target texts.  [default: found by name]")
    max_target_length: int = setting(128, "Tokens per target; longer ones are cut.", least=4)
    prompt: str | None = setting(
        None, "Prompt template of a decoder, with {source} in it.  [default: the source and a line break]"
    )
    prefix: str | None = setting(
        None, "Text put before each source of an encoder-decoder.  [default: the task's]", blank=True
    )


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Search settings for generating the texts that are scored."""

    panel: ClassVar[Panel] = Panel.GENERATION

    beams: int = setting(4, "Beams of the search; 1 takes the likeliest token each time.", least=1)
    max_new_tokens: int = setting(128, "Where a generated text is cut off.", least=1)
    min_new_tokens: int = setting(0, "Least number of tokens of a generated text.", least=0)
    length_penalty: float = setting(1.0, "Above 0 favours long texts, below 0 short ones.")
    no_repeat_ngram: int = setting(0, "No run of so many tokens appears twice in a text; 0 allows it.", least=0)
    early_stopping: bool = setting(
        False, "Stop a search as soon as it has as many finished texts as beams, likely or not."
    )


@dataclass(frozen=True, kw_only=True)
class InputSettings:
    """Settings for the inputs of a model: the examples, how they are read, and how it generates.

    With `drop_start` the hidden states leave out the position of a decoder's start token.
    """

    data: DataSettings
    generation: GenerationSettings = GenerationSettings()
    search: SearchSettings = SearchSettings()
    drop_start: bool = False


@dataclass(frozen=True, kw_only=True)
class ConditionSettings:
    """Settings that subsample, add noise to or hold out part of the training split; dev and test are not altered.

    The seeds are separate from the run's, so that every method of a comparison, and its teacher, use the same examples.
    """

    panel: ClassVar[Panel] = Panel.DATA

    samples: int | None = setting(
        None,
        "Train on this many examples (of texts to generate: sources), drawn at random from the training split.",
        least=1,
    )
    sample_seed: int = setting(0, "Seed of that draw, and of the one of --dev-samples.", least=0, most=2**32 - 1)
    label_noise: float | None = setting(None, "Share of training labels flipped to another class.", above=0, most=1)
    noise_seed: int = setting(0, "Seed of the flips.", least=0, most=2**32 - 1)
    holdout: float | None = setting(
        None,
        "Share of the training split, such as 0.1, that chooses weights, early stopping and restarts instead of dev, "
        "which is then scored once, at the end.",
        above=0,
        most=0.5,
    )
    holdout_seed: int = setting(
        0, "Seed of that share; which texts it has depends on nothing else.", least=0, most=2**32 - 1
    )


@dataclass(frozen=True, kw_only=True)
class RestartSettings:
    """Settings for training again when a run has collapsed to one answer."""

    panel: ClassVar[Panel] = Panel.TRAINING

    restarts: int = setting(
        0, "Train again with the next seed, at most N times, while every dev example gets one answer.", least=0
    )


@dataclass(frozen=True, kw_only=True)
class StudentSettings:
    """Settings for the student's architecture and initial weights."""

    panel: ClassVar[Panel] = Panel.STUDENT

    layers: int | None = setting(None, "Layers of the student.", least=1, panel=Panel.FIRST)
    encoder_layers: int | None = setting(
        None, "Layers of its encoder, if it has a decoder too.  [default: --layers, else the teacher's]", least=1
    )
    decoder_layers: int | None = setting(
        None, "Layers of its decoder, if it has an encoder too.  [default: --layers, else the teacher's]", least=1
    )
    width: int | None = setting(None, "Hidden size of the student.  [default: the teacher's]", least=1)
    heads: int | None = setting(
        None, "Attention heads of the student.  [default: keeps the teacher's head size]", least=1
    )
    init: str | None = setting(
        None,
        f"{', '.join(LAYER_CHOICES)}: which layers to copy; auto: first or even, whichever learns faster in a short "
        f"trial (of runs of about 260 steps or more); random; or a checkpoint folder.  [default: {DEFAULT_STARTS}]",
        panel=Panel.FIRST,
    )
    copy_layers: tuple[int, ...] | None = setting(None, "Layers to copy, 1-based, such as 2,5,8.")
    copy_encoder_layers: tuple[int, ...] | None = setting(None, "Layers to copy into its encoder, likewise.")
    copy_decoder_layers: tuple[int, ...] | None = setting(None, "Layers to copy into its decoder, likewise.")
    init_from: str | None = setting(None, "Copy layers from this pretrained model, not from the teacher.")
    head: str | None = setting(
        None, f"{', '.join(HEADS)}: the student's classifier.  [default: the method's]", choices=HEADS
    )
    reuse: str | None = setting(
        None,
        f"{', '.join(REUSES)}: what of the teacher's head is reused.  [default: pooler+linear at the teacher's width, "
        "else linear]",
        choices=REUSES,
    )
    projector: str | None = setting(
        None,
        f"{', '.join(PROJECTORS)}: what takes the student's feature to a reused head.  [default: linear where the "
        "widths differ, else none]",
        choices=PROJECTORS,
    )
    freeze_embeddings: bool | None = setting(None, "Do not train the token embeddings of a model that generates text.")
    tie_embeddings: bool | None = setting(
        None, "A decoder's head and token embeddings are one tensor.  [default: as the teacher has it]"
    )
    copy_embeddings: bool | None = setting(
        None, "With --init random, start from the teacher's embeddings, in a model that generates text."
    )
    allow_custom_head: bool | None = setting(
        None, "Allow a reused head that no plain model can hold; the student then loads with stillery only."
    )


@dataclass(frozen=True, kw_only=True)
class MethodSettings:
    """Settings for the distillation method, and overrides of its defaults."""

    panel: ClassVar[Panel] = Panel.METHOD

    method: str = setting(
        "layer-forward", "Distillation method; see `stillery methods`.", offers=method_words, panel=Panel.FIRST
    )
    hard_weight: float | None = setting(None, "Weight of the labels' loss.  [default: the method's]", least=0)
    temperature: float | None = setting(None, "Temperature of prediction matching.  [default: the method's]", above=0)
    pair: str | None = setting(None, "Which layers meet, for every match of layers.", choices=partial(words, "pairing"))
    represent: str | None = setting(None, "What of a layer is compared.", choices=partial(words, "representation"))
    distance: str | None = setting(None, "How far layers are apart.", choices=partial(words, "distance"))
    reduction: str | None = setting(None, "How the distance of a pair is reduced.", choices=partial(words, "reduction"))
    divergence: str | None = setting(None, "How far predictions are apart.", choices=partial(words, "divergence"))
    similarity_weight: float | None = setting(
        None, "Weight of the cosine similarities within a batch, for models that embed texts.  [default: 0]", least=0
    )
    square: bool | None = setting(None, "Multiply prediction matching by the squared temperature.")
    schedule: str | None = setting(
        None, "Match layers and predictions jointly, or layers first (sequential).", choices=partial(words, "schedule")
    )
    ild_data: str | None = setting(None, "Texts for the hidden-state stage, instead of --data; they need no labels.")
    ild_task: str | None = setting(None, "A named task's texts for the hidden-state stage.")
    ild_teacher: str | None = setting(None, "Another teacher for the hidden-state stage.  [default: --teacher]")
    ild_max_length: int | None = setting(None, "Tokens per text of those.  [default: --max-length]", least=4)
    stacks: str = setting(
        "both", "Of an encoder-decoder, the stacks whose layers are matched.", choices=("both", "encoder", "decoder")
    )
    cross_attention: bool = setting(False, "Compare a decoder's attention to its encoder too, where attention is.")
    drop_start: bool = setting(
        False, "Match no layers where a decoder starts with its padding token, as T5 does; here that position counts."
    )
    sequence_level: bool = setting(False, "Train on the texts the teacher writes, generated once, not on the targets.")
    on_policy: float = setting(
        0.0, "Share of steps on texts the student writes itself and the teacher scores.", least=0, most=1
    )
    recipe: str | None = setting(None, "A recipe of your own instead of --method: FILE.py:FUNCTION.")
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "A method's own option, NAME=VALUE; may be given again."}
    )

    def switches(self) -> dict[str, Any]:
        """Return the parts to replace in the method's recipe; None keeps the method's own."""
        names = ("pair", "represent", "distance", "reduction", "divergence", "square", "schedule")
        return {name: getattr(self, name) for name in names}

    def method_options(self) -> dict[str, Any]:
        """Return all options passed to the method."""
        shared = {"hard_weight": self.hard_weight, "temperature": self.temperature}
        return {name: value for name, value in shared.items() if value is not None} | dict(self.options)


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """Settings of a fine-tuning run: a pretrained model trained on labelled examples.

    `processes` is the number of processes that the batch size is for, None if not given. `given_in_python` names
    functions passed from Python, which a run file cannot hold.
    """

    model: str
    data: DataSettings
    generation: GenerationSettings
    search: SearchSettings
    condition: ConditionSettings
    restart: RestartSettings
    training: Training
    processes: int | None = None
    given_in_python: tuple[str, ...] | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> InputSettings:
        """The settings for examples, how they are read, and how texts are generated."""
        return InputSettings(data=self.data, generation=self.generation, search=self.search)


@dataclass(frozen=True, kw_only=True)
class Distill:
    """Settings of a distillation: a smaller student trained from a fine-tuned teacher.

    `processes` is the number of processes that the batch size is for, None if not given. `stored_stages` are the
    stages, counted from 1, that read the teacher cache, as decided by `--cache auto`; None before that.
    `given_in_python` names functions passed from Python, which a run file cannot hold.
    """

    teacher: str
    data: DataSettings
    generation: GenerationSettings
    search: SearchSettings
    condition: ConditionSettings
    student: StudentSettings
    method: MethodSettings
    training: Training
    storing: Storing
    processes: int | None = None
    stored_stages: tuple[int, ...] | None = None
    given_in_python: tuple[str, ...] | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> InputSettings:
        """The settings for examples, how they are read, and how texts are generated."""
        return InputSettings(
            data=self.data, generation=self.generation, search=self.search, drop_start=self.method.drop_start
        )

    @property
    def texts(self) -> InputSettings | None:
        """The input settings of the hidden-state stage's unlabelled texts; None if it has no texts of its own.

        A task is read with its own prefix, a file with the settings of the run's data.
        """
        method = self.method
        if method.ild_data is None and method.ild_task is None:
            return None
        length = self.data.max_length if method.ild_max_length is None else method.ild_max_length
        data = dataclasses.replace(self.data, data=method.ild_data, task=method.ild_task, max_length=length)
        generation = self.generation if method.ild_task is None else dataclasses.replace(self.generation, prefix=None)
        return dataclasses.replace(self.inputs, data=data, generation=generation)


Run = TypeVar("Run", Finetune, Distill)

GROUPS: dict[str, type] = {
    "data": DataSettings,
    "generation": GenerationSettings,
    "search": SearchSettings,
    "condition": ConditionSettings,
    "restart": RestartSettings,
    "student": StudentSettings,
    "method": MethodSettings,
    "training": Training,
    "storing": Storing,
}
"""The groups of settings of a run, by field name."""


def setting_names(group: type) -> list[str]:
    """Return the names of a group's settings."""
    return [item.name for item in dataclasses.fields(group)]


_OF_FILES = (
    *("text", "text_pair", "label", "query", "regression", "multi_label", "label_separator", "max_classes"),
    *("label_map", "encoding", "skip_empty", "source", "target"),
)
"""The settings for reading data files, which do not apply to a named task."""

EXAMPLES = frozenset(setting_names(DataSettings) + ["source", "target"]) - {"max_length", "pooling"}
"""The settings that determine the set of examples."""


@dataclass(frozen=True, kw_only=True)
class Asked(Generic[Run]):
    """A requested run, and the errors found in its settings so far.

    The settings in `wrong` are invalid and hold their default, so that the others can still be checked and all errors
    reported together; settings that are not in `given` hold it because they were not given.
    """

    run: Run
    errors: tuple[str, ...] = ()
    wrong: frozenset[str] = frozenset()
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def clear(self, *names: str) -> bool:
        """Return whether none of these settings is invalid."""
        return self.wrong.isdisjoint(names)

    def gathered(self) -> ErrorList:
        """Return the errors so far as a list to add others to."""
        errors = ErrorList()
        for line in self.errors:
            errors.add(line)
        return errors


def resolve(kind: type[Run], values: Mapping[str, Any], named: Named = str) -> Asked[Run]:
    """Build a run from the given values, and collect their errors; None means not given."""
    errors, given = ErrorList(), _given(values)
    job, subject = kind.__name__.lower(), "teacher" if kind is Distill else "model"
    if isinstance(given.get("recipe"), str):
        # Parts registered in the user's own file are valid values too.
        read_along(Path(given["recipe"].rpartition(":")[0]))
    groups: dict[str, type] = {item.name: GROUPS[item.name] for item in dataclasses.fields(kind) if item.name in GROUPS}
    known = {
        "job",
        subject,
        "processes",
        "given_in_python",
        "fingerprints",
        *(name for group in groups.values() for name in setting_names(group)),
        *(["stored_stages"] if kind is Distill else []),
    }
    if given.get("job", job) != job:
        # Raised alone, as every setting of another job would be reported as unknown.
        other = given["job"]
        cure = f"; run it with stillery {other}" if other in ("distill", "finetune") else ""
        raise UserError(f"{named('job')} is {other!r}: this command runs {job!r}{cure}")
    for name in given:
        if name not in known:
            errors.add(not_a_setting(name, known, named(name)))
    made: dict[str, Any] = {subject: given.get(subject), "fingerprints": given.get("fingerprints", {})}
    made["processes"] = given.get("processes")
    wrong: set[str] = set()
    for field_name, group in groups.items():
        part = {name: given[name] for name in setting_names(group) if name in given}
        made[field_name], wrong_here = make(group, part, named, errors)
        wrong |= wrong_here
    wrong |= _check_source(given, named, errors)
    if not made[subject] or not isinstance(made[subject], str):
        is_what = "not given" if made[subject] is None else repr(made[subject])
        errors.add(f"{named(subject)} is {is_what}: name a model folder")
        made[subject] = ""
        wrong.add(subject)
    if made["processes"] is not None and (type(made["processes"]) is not int or made["processes"] < 1):
        errors.add(f"{named('processes')} is {made['processes']!r}: give a whole number from 1 on")
    if kind is Distill and "stored_stages" in given:
        made["stored_stages"] = _stages(given["stored_stages"], named, errors)
    if not isinstance(made["fingerprints"], dict):
        errors.add(f"{named('fingerprints')} is {made['fingerprints']!r}: give a table")
    return Asked(run=kind(**made), errors=tuple(errors.lines), wrong=frozenset(wrong), given=frozenset(given))


def scoring_settings(values: Mapping[str, Any], named: Named = str) -> InputSettings:
    """Build the input settings from the given values, for scoring; None means not given."""
    errors, given = ErrorList(), _given(values)
    names = {group: setting_names(group) for group in (DataSettings, GenerationSettings, SearchSettings)}
    known = {name for some in names.values() for name in some}
    for name in given:
        if name not in known:
            errors.add(not_a_setting(name, known, named(name)))
    parts = {group: {name: given[name] for name in some if name in given} for group, some in names.items()}
    data, _ = make(DataSettings, parts[DataSettings], named, errors)
    writing, _ = make(GenerationSettings, parts[GenerationSettings], named, errors)
    decoding, _ = make(SearchSettings, parts[SearchSettings], named, errors)
    _check_source(given, named, errors)
    errors.raise_any()
    return InputSettings(data=data, generation=writing, search=decoding)


def _stages(value: Any, named: Named, errors: ErrorList) -> tuple[int, ...] | None:
    """Return a value as stage numbers; None and an error if it is not a list of them."""
    if isinstance(value, list | tuple) and all(type(one) is int and one > 0 for one in value):
        return tuple(value)
    errors.add(f"{named('stored_stages')} is {value!r}: give a list of stage numbers from 1 on")
    return None


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _check_source(given: Mapping[str, Any], named: Named, errors: ErrorList) -> set[str]:
    """Add errors for conflicting settings of the data source; return the settings that are wrong."""
    data, task = named("data"), named("task")
    if not given.keys() & {"data", "task"}:
        errors.add(f"neither {data} (a file or folder) nor {task} (a name) is given: give one")
        return {"data", "task"}
    if {"data", "task"} <= given.keys():
        errors.add(f"both {data} and {task} are given: give one")
        return {"data", "task"}
    if "data_dir" in given and "task" not in given:
        errors.add(f"{named('data_dir')} is where a task's files are, and no {task} is given")
    for name in _OF_FILES:
        # A run file written by a run also lists flags that are off.
        if "task" in given and name in given and (name != "skip_empty" or given[name]):
            errors.add(f"{named(name)} cannot go with {task}: a named task has its own columns")
    return set()
