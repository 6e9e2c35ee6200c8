"""The texts a teacher writes itself, to train its students on or to score beside theirs: once for each source."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tokenizers
import transformers

from stillery.data.cache.arrays import Arrays, read_arrays, write_arrays
from stillery.data.cache.folder import Cache, find_cache
from stillery.data.schema.examples import Examples
from stillery.data.tokens.encode_generation import GenerationTokens, with_targets
from stillery.data.tokens.token_cache import described
from stillery.errors import UserError
from stillery.evaluation.generate import Decoding, end_ids, generate_ids
from stillery.evaluation.inference_mode import to_device
from stillery.jobs.config.settings import Distill
from stillery.jobs.kinds.generation.reading import Reading
from stillery.jobs.prepared import Prepared
from stillery.models.load_model import Loaded, fingerprint
from stillery.progress import detail, say
from stillery.train.trainable import TextData

__all__ = ["TeacherTexts", "rewrite", "teacher_outputs", "teacher_texts"]

KIND = "teacher-texts"
FORMAT = 3
# A teacher may write for days: what it wrote is kept as often as this, or less often where that takes long.
KEEP_SECONDS = 30.0
KEEP_SHARE = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherTexts:
    """Examples as tokens, their targets what a teacher wrote.

    Attributes:
        tokens: the examples, those with an empty text left out.
        sources: how many different sources there are, each written from once.
        cut: how many of those texts were cut off, and so have no end token.
        empty: how many are empty.
    """

    tokens: GenerationTokens
    sources: int
    cut: int
    empty: int

    def record(self) -> dict[str, int]:
        """The numbers that a run folder holds."""
        return {"sources": self.sources, "examples": len(self.tokens), "cut": self.cut, "empty": self.empty}


def rewrite(prepared: Prepared) -> tuple[TextData, dict[str, Any]] | None:
    """The training split with the teacher's own texts as targets, where the run trains on those; and a record."""
    run, teacher, encoding = prepared.run, prepared.teacher, prepared.encoding
    if not isinstance(run, Distill) or not run.method.sequence_level:
        return None
    assert teacher is not None
    reading, decoding, train = encoding.reading, encoding.decoding, prepared.read.splits.train
    found = teacher_texts(teacher, train, reading, decoding, run.training.batch_size)
    pad = int(prepared.tokenizer.pad_token_id)
    data = TextData(tokens=found.tokens, pad_id=pad, drop_start=encoding.drop_start)
    return data, {"teacher_texts": found.record()}


def teacher_texts(
    teacher: Loaded, examples: Examples, reading: Reading, decoding: Decoding, batch_size: int
) -> TeacherTexts:
    """The examples with what the teacher writes for each source as target, token by token as it wrote them.

    What was written before by this teacher, read and searched for in this way, comes from the cache. A source that
    occurs again, as it does where several texts are right, is written from once. A text that was cut off has no end
    token: that it ends there is not the teacher's word.
    """
    keys = [_key(source) for source in examples["source"].to_pylist()]
    written, _ = _written(teacher, examples, keys, reading, decoding, batch_size, "train")
    texts = {key: text[: reading.max_target] for key, text in written.items()}
    ends = set(end_ids(teacher.model, teacher.tokenizer))
    # A text of special tokens alone says nothing.
    empty = {key for key, text in texts.items() if not _decoded(teacher, text).strip()}
    cut = sum(text[-1] not in ends for key, text in texts.items() if key not in empty)
    if len(empty) == len(texts):
        raise UserError(f"--sequence-level: {teacher.name} writes nothing for any source, so there is nothing to learn")
    if empty:
        say(f"warning: the teacher writes nothing for {len(empty)} of {len(texts)} sources; those are left out")
    if cut:
        longest = min(reading.max_target, decoding.max_new_tokens)
        say(
            f"{cut} of {len(texts)} texts of the teacher were cut off at {longest} tokens; "
            "their end-of-sequence token is missing"
        )
    rows = [row for row, key in enumerate(keys) if key not in empty]
    kept = examples.take(rows) if empty else examples
    prompts = reading.prompts(kept, teacher.tokenizer, "train")
    if prompts.truncated:
        say(f"train: {prompts.truncated} of {len(kept)} sources are longer than {reading.max_source} tokens, and cut")
    tokens = with_targets(kept.ids, prompts, [texts[keys[row]] for row in rows], reading.kind)
    return TeacherTexts(tokens=tokens, sources=len(texts), cut=cut, empty=len(empty))


def teacher_outputs(
    teacher: Loaded, examples: Examples, reading: Reading, decoding: Decoding, batch_size: int, part: str
) -> tuple[list[str], int]:
    """What the teacher writes for each example, and for how many sources it did so now and not in an earlier run."""
    keys = [_key(source) for source in examples["source"].to_pylist()]
    written, new = _written(teacher, examples, keys, reading, decoding, batch_size, part)
    return [_decoded(teacher, written[key]) for key in keys], new


def _written(
    teacher: Loaded,
    examples: Examples,
    keys: list[int],
    reading: Reading,
    decoding: Decoding,
    batch_size: int,
    part: str,
) -> tuple[dict[int, list[int]], int]:
    """What the teacher writes for each source, by the source's key, and for how many it did so now."""
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    shelf = _Shelf(cache=find_cache(), place=_teacher_key(teacher, reading, decoding), name=teacher.name)
    missing = sorted(row for key, row in first.items() if key not in shelf.texts)
    if len(missing) < len(first):
        detail(f"{len(first) - len(missing):,} texts of the teacher read from the cache")
    if missing:
        to_device(teacher.model)
        try:
            texts = generate_ids(
                teacher.model,
                teacher.tokenizer,
                reading.prompts(examples.take(missing), teacher.tokenizer, f"{part} (teacher)"),
                decoding=decoding,
                batch_size=batch_size,
                description=f"{part} (teacher): write",
                on_batch=lambda some: shelf.add({keys[missing[row]]: text for row, text in some.items()}),
            )
        except BaseException:
            shelf.keep_what_there_is()
            raise
        shelf.texts |= {keys[row]: text for row, text in zip(missing, texts, strict=True)}
        shelf.keep()
    return {key: shelf.texts[key] for key in first}, len(missing)


@dataclass(kw_only=True, eq=False)
class _Shelf:
    """What a teacher wrote, by the source's key: what the cache holds, and what is put there as it is written."""

    cache: Cache | None
    place: str
    name: str
    texts: dict[int, list[int]] = field(init=False)
    found: int = field(init=False)
    kept: int = field(init=False)
    due: float = field(init=False)

    def __post_init__(self) -> None:
        held = read_arrays(self.cache, KIND, self.place) if self.cache is not None else None
        self.texts = _unpacked(held) if held is not None else {}
        self.found = self.kept = len(self.texts)
        self.due = time.monotonic() + KEEP_SECONDS

    def add(self, some: dict[int, list[int]]) -> None:
        """Some more texts; kept now and then."""
        self.texts |= some
        if time.monotonic() >= self.due:
            self.keep()

    def keep(self) -> None:
        """Write everything to the cache, where there is one."""
        if self.cache is None:
            return
        before = time.monotonic()
        about = f"{len(self.texts):,} texts of {self.name}"
        if write_arrays(self.cache, KIND, self.place, _packed(self.texts), about, replace=True):
            self.kept = len(self.texts)
        after = time.monotonic()
        self.due = after + max(KEEP_SECONDS, (after - before) / KEEP_SHARE)

    def keep_what_there_is(self) -> None:
        """Before the process ends: what is not in the cache yet goes there."""
        if len(self.texts) > self.kept:
            self.keep()
        if self.kept > self.found:
            say(f"{self.kept:,} texts of the teacher are kept; the same command goes on from there")


def _decoded(teacher: Loaded, text: list[int]) -> str:
    return str(teacher.tokenizer.decode(text, skip_special_tokens=True))


def _key(source: str) -> int:
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest(), "big")


def _teacher_key(teacher: Loaded, reading: Reading, decoding: Decoding) -> str:
    generation = teacher.model.generation_config
    parts: dict[str, Any] = {
        "format": FORMAT,
        "weights": fingerprint(teacher),
        "config": teacher.model.config.to_dict(),
        "generation": generation.to_dict() if generation is not None else None,
        "tokenizer": described(teacher.tokenizer),
        "versions": [transformers.__version__, tokenizers.__version__],
        "reading": dataclasses.asdict(reading),
        "decoding": dataclasses.asdict(decoding),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _packed(texts: dict[int, list[int]]) -> Arrays:
    offsets = np.cumsum([0, *map(len, texts.values())], dtype=np.int64)
    flat = np.array([token for text in texts.values() for token in text], dtype=np.int32)
    return Arrays(arrays={"keys": np.array(list(texts), dtype=np.uint64), "offsets": offsets, "tokens": flat}, facts={})


def _unpacked(kept: Arrays) -> dict[int, list[int]]:
    keys, offsets, flat = (kept.arrays[name] for name in ("keys", "offsets", "tokens"))
    return {int(key): flat[offsets[row] : offsets[row + 1]].tolist() for row, key in enumerate(keys)}
