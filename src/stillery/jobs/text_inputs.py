"""Read the sources and targets a job works on, and turn them into tokens for a model that writes text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from stillery.data.schema.answer_texts import generation
from stillery.data.schema.examples import Examples, Splits
from stillery.data.schema.labels import Labels
from stillery.data.schema.load import load, load_to_score
from stillery.data.schema.split_folders import SPLITS, scored_split
from stillery.data.tasks.generation import GENERATION_TASKS
from stillery.data.tasks.glue import TASKS
from stillery.data.tasks.glue_as_text import glue_as_text, label_words
from stillery.data.tasks.load import (
    find_generation_task,
    load_generation_task,
    load_generation_task_to_score,
    load_task,
    load_task_to_score,
)
from stillery.data.tasks.specification import Task
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.encode_generation import PROMPT, GenerationFormat, GenerationTokens, check_room, prompts
from stillery.data.tokens.token_cache import cached_generation_tokens
from stillery.errors import UserError
from stillery.jobs.config.settings import DataSettings, GenerationSettings, MethodSettings
from stillery.models.family import kind_of, longest_input
from stillery.progress import say

__all__ = [
    "Reading",
    "TextScored",
    "meant_for",
    "prefix_of",
    "supplementary_named",
    "text_parts_of",
    "text_to_score",
    "written_out",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class TextScored:
    """Texts to score a model on; where they stand for labels, those, the word for each class, and the gold ones.

    `more` are further parts of the task.
    """

    task: str
    part: str | None
    examples: Examples
    note: str = ""
    labels: Labels | None = None
    words: tuple[str, ...] = ()
    gold: NDArray[Any] | None = None
    metrics: tuple[str, ...] | None = None
    more: tuple[TextScored, ...] = ()


def text_parts_of(data: DataSettings, writing: GenerationSettings) -> tuple[Splits, dict[str, TextScored]]:
    """The parts of a file, folder or task; and dev and test as they are scored."""
    _check(data)
    if data.task is None:
        assert data.data is not None
        parts = load(Path(data.data), generation(writing.source, writing.target))
    elif data.task in TASKS:
        return _glue_parts(data)
    else:
        parts = load_generation_task(data.task, _data_dir(data))
    named = {"dev": parts.dev, "test": parts.test}
    scored = {
        name: TextScored(task=parts.source, part=name, examples=examples)
        for name, examples in named.items()
        if examples is not None
    }
    return parts, scored


def text_to_score(data: DataSettings, writing: GenerationSettings, part: str | None) -> TextScored:
    """What a model is scored on."""
    _check(data)
    if data.task is None:
        assert data.data is not None
        if part is not None and part not in SPLITS:
            raise UserError(f"--part {part}: choose from {', '.join(SPLITS)}")
        path = Path(data.data)
        examples = load_to_score(path, generation(writing.source, writing.target), part)
        return TextScored(task=path.resolve().name, part=scored_split(path, part), examples=examples)
    if data.task in TASKS:
        task = TASKS[data.task]
        found = load_task_to_score(data.task, task.labels, part, _data_dir(data))
        more = tuple(_glue_scored(task, name, examples) for name, examples in found.more.items())
        return dataclasses.replace(_glue_scored(task, found.split, found.examples), note=found.source, more=more)
    chosen = load_generation_task_to_score(data.task, part, _data_dir(data))
    return TextScored(task=data.task, part=chosen.split, examples=chosen.examples, note=chosen.source)


def _glue_parts(data: DataSettings) -> tuple[Splits, dict[str, TextScored]]:
    """A task of GLUE with its classes, or scores, as words to write."""
    assert data.task is not None
    task = TASKS[data.task]
    parts = load_task(data.task, data_dir=_data_dir(data))
    named = {"dev": parts.dev, "test": parts.test, **parts.more}
    scored = {name: _glue_scored(task, name, examples) for name, examples in named.items() if examples is not None}
    test = scored["test"].examples if "test" in scored else None
    found = Splits(
        train=glue_as_text(task, parts.train), dev=scored["dev"].examples, test=test, source=parts.source,
        note=parts.note, metrics=parts.metrics,
    )  # fmt: skip
    return found, scored


def _glue_scored(task: Task, part: str, examples: Examples) -> TextScored:
    assert examples.labels is not None
    return TextScored(
        task=task.name,
        part=part,
        examples=glue_as_text(task, examples),
        labels=task.labels,
        words=label_words(task),
        gold=examples.labels,
        metrics=task.metrics,
    )


def supplementary_named(
    method: MethodSettings, data: DataSettings, writing: GenerationSettings
) -> tuple[DataSettings, GenerationSettings] | None:
    """Which texts are for a stage of layers, and how they are read: a task as its own, a file as the run's."""
    if method.ild_data is None and method.ild_task is None:
        return None
    length = data.max_length if method.ild_max_length is None else method.ild_max_length
    other = dataclasses.replace(data, data=method.ild_data, task=method.ild_task, max_length=length)
    return other, writing if method.ild_task is None else dataclasses.replace(writing, prefix=None)


def prefix_of(data: DataSettings) -> str:
    """What stands before the sources of an encoder-decoder, if nothing else is asked for."""
    return find_generation_task(data.task).prefix if data.task in GENERATION_TASKS else ""


def meant_for(config: PreTrainedConfig, writing: GenerationSettings) -> GenerationSettings:
    """The settings without what is for models of another kind, as those of a run are beside another kind's."""
    if kind_of(config) == "decoder":
        return dataclasses.replace(writing, prefix=None)
    return dataclasses.replace(writing, prompt=None)


def written_out(writing: GenerationSettings, reading: Reading) -> GenerationSettings:
    """The settings with the prompt or prefix that they come to, whatever a task's should later be."""
    if reading.kind == "decoder":
        return dataclasses.replace(writing, prompt=reading.prompt)
    return dataclasses.replace(writing, prefix=reading.prefix)


def _check(data: DataSettings) -> None:
    if data.task is not None and data.task not in TASKS and data.task not in GENERATION_TASKS:
        find_generation_task(data.task)
    given = {"--text": data.text, "--text-pair": data.text_pair, "--label": data.label, "--regression": data.regression,
             "--multi-label": data.multi_label}  # fmt: skip
    for option in (option for option, value in given.items() if value is not None):
        raise UserError(f"{option} is for classifiers: a model that writes text has --source and --target")


def _data_dir(data: DataSettings) -> Path | None:
    return None if data.data_dir is None else Path(data.data_dir)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How sources and targets become tokens of one kind of model."""

    kind: str
    max_source: int
    max_target: int
    prompt: str
    prefix: str

    @classmethod
    def of(cls, data: DataSettings, writing: GenerationSettings, configs: list[PreTrainedConfig]) -> Reading:
        """The reading that the settings ask for, within what the models have positions for."""
        kind = kind_of(configs[0])
        prompt = PROMPT if writing.prompt is None else writing.prompt
        if "{source}" not in prompt:
            raise UserError(f"--prompt {prompt!r}: say with {{source}} where the source goes")
        if kind == "decoder" and writing.prefix is not None:
            raise UserError("--prefix is for encoder-decoders; a decoder has --prompt")
        if kind != "decoder" and writing.prompt is not None:
            raise UserError("--prompt is for decoders; an encoder-decoder has --prefix")
        limit = min(longest_input(config) for config in configs)
        source, target = data.max_length, writing.max_target_length
        if kind == "decoder" and source + target > limit:
            if target >= limit:
                raise UserError(
                    f"--max-target-length {target} leaves no room for a prompt: the model has {limit} positions for "
                    "prompt and target together; lower it"
                )
            source = limit - target
            say(f"prompts are cut to {source} tokens: the model has {limit} positions for prompt and target together")
        elif max(source, target) > limit:
            source, target = min(source, limit), min(target, limit)
            say(f"texts are cut to {limit} tokens: the model has no more positions")
        return cls(
            kind=kind,
            max_source=source,
            max_target=target,
            prompt=prompt,
            prefix=prefix_of(data) if writing.prefix is None else writing.prefix,
        )

    @property
    def form(self) -> GenerationFormat:
        """The same as the tokeniser takes it."""
        return GenerationFormat(
            kind=self.kind,
            max_source=self.max_source,
            max_target=self.max_target,
            prompt=self.prompt,
            prefix=self.prefix,
        )

    def settings(self) -> dict[str, Any]:
        """The same as settings, those that are for this kind of model."""
        around = {"prompt": self.prompt} if self.kind == "decoder" else {"prefix": self.prefix}
        return {"max_length": self.max_source, "max_target_length": self.max_target, **around}

    def check(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse a prompt or prefix that leaves no room for a source."""
        check_room(tokenizer, self.form)

    def tokens(self, examples: Examples, tokenizer: PreTrainedTokenizerBase, part: str) -> GenerationTokens:
        """Sources and targets, from the cache when they are there; says how many were cut."""
        tokens = cached_generation_tokens(examples, tokenizer, self.form, f"tokenise {part}")
        for what, cut, limit in (("sources", tokens.cut_sources, self.max_source),
                                 ("targets", tokens.cut_targets, self.max_target)):  # fmt: skip
            if cut:
                say(f"{part}: {cut} of {len(examples)} {what} are longer than {limit} tokens and were cut")
        return tokens

    def prompts(self, examples: Examples, tokenizer: PreTrainedTokenizerBase, part: str) -> Tokens:
        """What a model is given to write from."""
        return prompts(examples, tokenizer, self.form, f"tokenise {part}")
