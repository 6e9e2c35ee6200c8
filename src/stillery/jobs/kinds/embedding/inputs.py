"""Data of embedding models: texts to learn from; pairs with scores, or queries and documents, to be scored on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from stillery.data.readers.files import read_batches
from stillery.data.schema.answer_labels import LABEL, LabelAnswers, classification
from stillery.data.schema.columns import find
from stillery.data.schema.examples import Examples, Splits
from stillery.data.schema.labels import infer, label_name
from stillery.data.schema.load_splits import load, load_inputs, load_to_score
from stillery.data.schema.roles import TEXT_PAIR, Role, Schema
from stillery.data.schema.split_folders import SPLITS, Folder, find_splits, is_folder, scored_split
from stillery.data.schema.values import scalar_column
from stillery.data.tasks.load_task import find_task, load_task, load_task_to_score
from stillery.errors import UserError
from stillery.evaluation.embeddings import SIMILARITY
from stillery.jobs.config.settings import DataSettings, InputSettings
from stillery.jobs.kinds.base import Read, Scored, Scoring
from stillery.jobs.kinds.classification import inputs as of_texts
from stillery.jobs.kinds.embedding.judged import is_judged, read_judged
from stillery.models.load_model import Loaded
from stillery.train.trainable import TrainingData

__all__ = [
    "Encoding", "encoding", "read", "read_texts", "read_to_score", "single_texts", "texts_alone",
    "to_select",
]  # fmt: skip

_FIRST_ROWS = 1000


class Encoding(of_texts.Encoding):
    """The tokenisation of texts; those of pairs are separate texts, all first ones before all second ones."""

    def data(self, examples: Examples, tokenizer: PreTrainedTokenizerBase, split: str) -> TrainingData:
        """Return the tokenised texts."""
        return super().data(single_texts(examples), tokenizer, split)


def encoding(
    inputs: InputSettings, configs: Sequence[PreTrainedConfig], tokenizer: PreTrainedTokenizerBase
) -> Encoding:
    """Build the encoding, with the requested maximum length or the models' position limit if that is smaller."""
    found = of_texts.encoding(inputs, configs, tokenizer)
    return Encoding(max_length=found.max_length, asked=found.asked, notes=found.notes)


def single_texts(examples: Examples) -> Examples:
    """Return all texts without labels: of pairs the first texts, and then the second ones."""
    pair = examples.get(TEXT_PAIR.name)
    if pair is None:
        return dataclasses.replace(examples, labels=None)
    texts = pa.concat_arrays([examples["text"], pair])
    ids = (*examples.ids, *(f"{name}, second text" for name in examples.ids))
    return Examples(ids=ids, columns={"text": texts}, source=examples.source)


def read(inputs: InputSettings, teacher: Loaded | None) -> Read:
    """Read texts to learn from, and the splits to score on: by the scores of pairs or, without, by the teacher."""
    data, name = inputs.data, None if teacher is None else teacher.name
    parts = _files(data, name) if data.task is None else _task(data, name)
    named: Mapping[str, Examples | None] = {"dev": parts.dev, "test": parts.test, **parts.more}
    scored = {split: _scored(some, parts.source, split) for split, some in named.items() if some is not None}
    return Read(splits=dataclasses.replace(parts, train=single_texts(parts.train), labels=None), scored=scored)


def to_select(read: Read, examples: Examples, split: str) -> Scored:
    """Return training texts to select checkpoints by, as close as they are to the teacher's embeddings."""
    return _scored(single_texts(examples), read.splits.source, split)


def read_texts(inputs: InputSettings) -> Examples:
    """Read texts for a hidden-state stage."""
    return single_texts(of_texts.read_texts(inputs))


def texts_alone(data: DataSettings) -> Schema:
    """Return the schema of files of which only the texts are used, whatever labels they have."""
    return dataclasses.replace(of_texts.texts_alone(data), answer=_NoAnswers(labels=SIMILARITY))


def read_to_score(inputs: InputSettings, model: Loaded, split: str | None) -> Scoring:
    """Read pairs with scores, queries with documents, or texts on which embeddings are compared with a teacher's."""
    data = inputs.data
    if data.task is not None:
        if not _is_scored_task(data.task):
            raise UserError(
                f"--task {data.task}: it has no pairs with scores, which embeddings are scored by; use stsb"
            )
        found = load_task_to_score(data.task, SIMILARITY, split, _data_dir(data))
        return Scoring(scored=_scored(found.examples, data.task, found.split), notes=(found.source,))
    assert data.data is not None
    path = Path(data.data)
    if is_judged(path, data.encoding):
        judged = read_judged(path, split, data.encoding)
        shown = None if path.is_file() else split or "test"
        return Scoring(scored=Scored(task=path.resolve().name, split=shown, examples=judged.examples, gold=judged.gold))
    if split is not None and split not in SPLITS:
        raise UserError(f"--split {split}: choose from {', '.join(SPLITS)}")
    name, chosen = path.resolve().name, scored_split(path, split)
    scored = _scored(_to_score(path, data, chosen), name, chosen)
    alone = (
        f"{path}: nothing that embeddings are scored by; give pairs of texts with scores, queries with documents, or"
    )
    return Scoring(
        scored=scored, needs_teacher=f"{alone} a teacher to compare with (--against)" if scored.gold is None else None
    )


def _to_score(path: Path, data: DataSettings, split: str | None) -> Examples:
    folder = _folder(path, need_train=False)
    files = folder.whole or folder.splits.get(split or "", ()) or folder.splits["train"]
    if _answers(files[0], data) == "scores":
        return load_to_score(path, _pairs(data), split)
    if split is None:
        return load_inputs(path, texts_alone(data))
    parts = load(path, texts_alone(data), need_answers=False)
    found = {"train": parts.train, "dev": parts.dev, "test": parts.test}[split]
    if found is None:
        raise UserError(f"{path}: there is no {split} split; choose another with --split")
    return found


class _NoAnswers(LabelAnswers):
    """No column holds an answer."""

    role: ClassVar[Role] = dataclasses.replace(LABEL, usual=())


def _pairs(data: DataSettings) -> Schema:
    """Return the schema of pairs of texts with scores."""
    return classification(
        text=data.text, text_pair=data.text_pair, label=data.label, labels=SIMILARITY, regression=True,
        encoding=data.encoding, skip_empty=data.skip_empty,
    )  # fmt: skip


def _files(data: DataSettings, model: str | None) -> Splits:
    """Load the splits of a file or folder; dev and test may be pairs with scores where train is texts alone.

    Labels are refused, with the name of the model unless that could not be loaded.
    """
    assert data.data is not None
    path = Path(data.data)
    if is_judged(path, data.encoding):
        raise UserError(
            f"{path}: queries and documents are for stillery evaluate; to learn from their texts, give a file of them "
            "under another name, such as text"
        )
    folder = _folder(path)
    answers = {split: _answers(files[0], data) for split, files in folder.splits.items()}
    whole = answers["train"] if answers else _answers(folder.whole[0], data)
    if whole == "labels" and not data.unlabelled and model is not None:
        raise UserError(
            f"{path}: its labels are not for a model that embeds texts, as {model} does: use --unlabelled to distil on "
            f"the texts alone, or fine-tune it to predict them: stillery finetune --model {model} --data {path}"
        )
    if whole == "scores":
        return load(path, _pairs(data), need_answers=False)
    scored = [split for split in ("dev", "test") if answers.get(split) == "scores"]
    if "dev" not in scored:
        return load(path, texts_alone(data), need_answers=False)
    train = load_inputs(path, texts_alone(data))
    found = {split: load_to_score(path, _pairs(data), split) for split in scored}
    return Splits(
        train=train, dev=found["dev"], test=found.get("test"), labels=SIMILARITY, source=path.resolve().name,
        note=folder.note,
    )  # fmt: skip


def _task(data: DataSettings, model: str | None) -> Splits:
    assert data.task is not None
    scored = _is_scored_task(data.task)
    if not scored and not data.unlabelled and model is not None:
        raise UserError(
            f"--task {data.task}: its labels are not for a model that embeds texts, as {model} does: use --unlabelled "
            f"to distil on the texts alone, or fine-tune it first: stillery finetune --model {model} --task {data.task}"
        )
    parts = load_task(data.task, data_dir=_data_dir(data), need_labels=False)
    if scored:
        test = parts.test if parts.test is not None and parts.test.labels is not None else None
        return dataclasses.replace(parts, test=test)
    dev, test = (None if some is None else single_texts(some) for some in (parts.dev, parts.test))
    assert dev is not None
    return dataclasses.replace(parts, dev=dev, test=test, more={})


def _is_scored_task(name: str) -> bool:
    return find_task(name).labels.regression


def _answers(path: Path, data: DataSettings) -> Literal["scores", "labels", "none"]:
    """Return what the first rows of a file have beside their texts: scores of pairs, other labels, or nothing."""
    schema = _pairs(data)
    batch = next(iter(read_batches(path, _FIRST_ROWS, data.encoding)), None)
    if batch is None:
        return "none"
    columns = find(batch.schema.names, path.name, schema, need=data.label is not None)
    label = columns.get(LABEL.name)
    if columns.flags or label is None:
        return "labels" if columns.flags else "none"
    try:
        values = scalar_column(batch, label, path.name, 0, "label")
        if all(label_name(value) is None for value in values):
            return "none"
        scores = infer(values, path.name, data.regression).regression
    except UserError:
        return "labels"
    return "scores" if scores and columns.get(TEXT_PAIR.name) is not None else "labels"


def _scored(examples: Examples, task: str, split: str | None) -> Scored:
    paired = examples.get(TEXT_PAIR.name) is not None
    return Scored(task=task, split=split, examples=examples, gold=examples.labels if paired else None)


def _folder(path: Path, need_train: bool = True) -> Folder:
    return find_splits(path, need_train) if is_folder(path) else Folder(whole=(path,))


def _data_dir(data: DataSettings) -> Path | None:
    return None if data.data_dir is None else Path(data.data_dir)
