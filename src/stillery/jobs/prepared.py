"""A prepared run, with everything loaded and checked, and its tokenised data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.schema.subsets import draw_groups, draw_samples
from stillery.evaluation.ranking_metrics import Queries
from stillery.jobs.calibration import Calibration
from stillery.jobs.config.settings import Distill, Finetune
from stillery.jobs.from_python import FromPython
from stillery.jobs.kinds.base import Kind, Read, Scored
from stillery.jobs.student_start import TRIED, Chosen, Starts
from stillery.lines import listed
from stillery.models.family import sizes, stacks_of
from stillery.models.load_model import Loaded
from stillery.models.projected_head import exported_parameters
from stillery.progress import detail
from stillery.recipe import Pairs, Stage
from stillery.train.on_policy import OnPolicy
from stillery.train.trainable import Trainable, TrainingData

__all__ = ["Data", "Prepared", "scored_while_training", "tokenised"]


Outputs = TypeVar("Outputs")

FEW = 10
"""Splits of fewer examples cause a warning: the 95% interval of an accuracy is then 50 points wide or more."""


_SIZES = "split by"
"""Marks a note on how the data was split, which is logged as a detail only."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A run with everything loaded and checked, ready to train.

    While the student's initialisation is still to be chosen, `starts` are the candidates, and the model is any of them;
    `start` is the chosen one. `texts` are unlabelled texts for the hidden-state stage, `texts_encoding` their encoding,
    and `layers_teacher` is that stage's teacher if it has its own. `teacher_encoding` is the teacher's encoding where
    its tokenizer is not the student's.
    """

    run: Finetune | Distill
    kind: Kind
    read: Read
    encoding: Any
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    teacher: Loaded | None = None
    teacher_encoding: Any = None
    stages: tuple[Stage, ...]
    origin: tuple[str, ...]
    paper: str | None = None
    pairs: Mapping[str, Pairs] = field(default_factory=dict)
    layers_teacher: Loaded | None = None
    texts: Any = None
    texts_encoding: Any = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    policy: OnPolicy | None = None
    notes: tuple[str, ...] = ()
    starts: Starts | None = None
    start: Chosen | None = None
    calibration: Calibration | None = None
    from_python: FromPython = field(default_factory=FromPython)

    @property
    def drop_start(self) -> bool:
        """True if layers are matched without a decoder's start position."""
        return isinstance(self.run, Distill) and self.run.method.drop_start

    @property
    def teachers(self) -> dict[str, Loaded]:
        """The teachers of the stages, by name."""
        found = {"task": self.teacher, "supplementary": self.layers_teacher or self.teacher}
        return {name: one for name, one in found.items() if one is not None}

    @property
    def configs(self) -> list[PreTrainedConfig]:
        """The configurations of every model that reads the texts."""
        teachers = [one.model.config for one in (self.teacher, self.layers_teacher) if one is not None]
        return [self.model.config, *teachers]

    def teacher_reads(self, examples: Any, tokens: Any, split: str) -> Any:
        """Tokenise examples for the teacher; return `tokens`, the student's, where both share an encoding."""
        if self.teacher is None or self.teacher_encoding is None:
            return tokens
        return self.teacher_encoding.data(examples, self.teacher.tokenizer, f"{split} (teacher)")

    def teacher_outputs(
        self, predict: Callable[[PreTrainedModel, Any, str], Outputs], scored: Scored, tokens: Any
    ) -> Callable[[], Outputs]:
        """Return a function that gives the teacher's outputs on the dev split, computed when it is first called."""
        kept: list[Outputs] = []

        def outputs() -> Outputs:
            if not kept:
                assert self.teacher is not None
                model = self.teacher.model
                # On the student's device: training may have offloaded the teacher.
                before = model.device
                model.to(self.model.device)  # type: ignore[arg-type]
                kept.append(predict(model, self.teacher_reads(scored.examples, tokens, "dev"), "dev (teacher)"))
                model.to(before)  # type: ignore[arg-type]
            return kept[0]

        return outputs

    @property
    def asks_its_teacher(self) -> bool:
        """True if the teacher runs on the training split: in a stage, or in a trial of initialisations."""
        return self.starts is not None or any(stage.needs_teacher for stage in self.stages)

    def summary(self) -> list[str]:
        """Return lines that describe the run before it starts, with warnings."""
        config, what = self.model.config, "student" if self.teacher else "model"
        layers = " + ".join(str(sizes(config, stack).layers) for stack in stacks_of(config))
        return [
            *self.notes,
            *self._data(),
            *dict.fromkeys([*self.encoding.notes, *self._more_notes()]),
            f"{what}: {config.model_type}, {layers} layers x {sizes(config).width}, "
            f"{exported_parameters(self.model):,} parameters",
        ]

    def details(self) -> list[str]:
        """Return further lines about the run: splits, initial weights, teachers and layer pairs."""
        what = "student" if self.teacher else "model"
        lines = [
            *(f"data: {note}" for note in self._notes_of_data() if _SIZES in note),
            *(self.said_origin(what) if self.starts is None else [_TO_BE_TRIED]),
        ]
        if self.layers_teacher is not None:
            lines.append(f"teacher of the hidden-state stage: {self.layers_teacher.name}")
        for name, pairs in self.pairs.items():
            lines.append(f"{name}: student-teacher layers {listed((f'{i}-{j}' for i, j in pairs), 24)}")
        return lines

    def _more_notes(self) -> list[str]:
        notes = [] if self.texts_encoding is None else list(self.texts_encoding.notes)
        return (
            notes
            if self.teacher_encoding is None
            else [*(f"teacher: {note}" for note in self.teacher_encoding.notes), *notes]
        )

    def _data(self) -> list[str]:
        splits = self.read.splits
        sizes = {"train": len(splits.train)} | {
            self.read.scored[name].split if name in self.read.scored else name: len(some)
            for name, some in (("dev", splits.dev), ("test", splits.test))
            if some is not None
        }
        lines = [
            f"data: {splits.source}, {', '.join(f'{size} {name}' for name, size in sizes.items())} examples, "
            f"{self.kind.summary(self.read)}"
        ]
        lines += [f"data: {note}" for note in self._notes_of_data() if _SIZES not in note]
        named = [f"{name} has {_counted(few)}" for name, few in list(sizes.items())[1:] if few < FEW]
        if named:
            lines.append(
                f"warning: {' and '.join(named)}: scores on so few say little (see their 95% intervals); add rows, or "
                "give splits of your own"
            )
        if self.texts is not None:
            lines.append(f"data: {self.texts.source}, {len(self.texts)} texts for the hidden-state stage")
        return lines

    def _notes_of_data(self) -> list[str]:
        """Return notes on how the splits were made, and which rows were left out, sampled or altered."""
        return [note for note in self.read.splits.note.split("; ") if note]

    def said_origin(self, what: str = "student") -> list[str]:
        """Return lines that describe where the initial weights come from, and why."""
        why = [] if self.start is None else [f"{what}: start {self.start.start}: {self.start.why}"]
        return [*why, *(f"{what}: {line}" for line in self.origin)]

    def started(self, chosen: Chosen) -> Prepared:
        """Return the run with the chosen initialisation of its student."""
        assert self.starts is not None and isinstance(self.run, Distill)
        student, settings = self.starts.make(chosen.start)
        depth = settings.layers or self.run.student.layers
        run = replace(self.run, student=replace(settings, layers=depth))
        return replace(self, run=run, model=student.model, origin=student.origin, starts=None, start=chosen)


def _counted(examples: int) -> str:
    return f"{examples} example{'' if examples == 1 else 's'}"


_TO_BE_TRIED = f"student: start to be chosen by a short trial of {', '.join(TRIED)} (--init auto)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """The tokenised splits of a run: the training data, and by name the splits that models are scored on.

    `texts` are unlabelled texts for the hidden-state stage; `record` is metadata on the training data for metrics.json.
    """

    train: Trainable
    texts: Trainable | None
    splits: Mapping[str, tuple[Scored, Any]]
    record: Mapping[str, Any] = field(default_factory=dict)


def tokenised(prepared: Prepared) -> Data:
    """Tokenise every split of a run, or read it from the token cache."""
    encoding, tokenizer, read = prepared.encoding, prepared.tokenizer, prepared.read
    rewritten = prepared.kind.rewrite(prepared)
    train = encoding.data(read.splits.train, tokenizer, "train") if rewritten is None else rewritten[0]
    if prepared.teacher_encoding is not None and prepared.asks_its_teacher:
        assert isinstance(train, TrainingData)
        train = replace(train, teacher=prepared.teacher_reads(read.splits.train, train, "train"))
    texts = None
    if prepared.texts is not None:
        texts = (prepared.texts_encoding or encoding).data(prepared.texts, tokenizer, "supplementary")
    splits = {name: (one, encoding.data(one.examples, tokenizer, name)) for name, one in read.scored.items()}
    return Data(train=train, texts=texts, splits=splits, record={} if rewritten is None else rewritten[1])


def scored_while_training(prepared: Prepared, data: Data) -> Data:
    """Return the splits with the dev examples to score during training: all of them, or `--dev-samples` of them.

    The sample depends on `--sample-seed` alone, so that every seed of a run is compared on the same examples. Of data
    with queries it is made of whole queries, until there are as many examples or more.
    """
    samples = prepared.run.training.dev_samples
    dev, _ = data.splits["dev"]
    if samples is None or samples >= len(dev.examples):
        return data
    seed, query = prepared.run.condition.sample_seed, dev.examples.get("query")
    if query is None:
        rows = draw_samples(len(dev.examples), samples, seed)
    else:
        rows = draw_groups(Queries.of(query).of_example, samples, seed)
    few = replace(dev, examples=dev.examples.take(rows), gold=None if dev.gold is None else dev.gold[rows])
    detail(f"dev: {len(rows)} of {len(dev.examples)} examples are scored while training, all of them at the end")
    tokens = prepared.encoding.data(few.examples, prepared.tokenizer, "dev")
    return replace(data, splits={**data.splits, "dev": (few, tokens)})
