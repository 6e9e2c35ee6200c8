"""The texts a teacher writes itself, for sequence-level distillation: generated once, kept by example."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np
import pyarrow as pa
import tokenizers
import transformers
from numpy.typing import NDArray

from stillery.data.cache import find_cache
from stillery.data.cached_arrays import Arrays, read_arrays, write_arrays
from stillery.data.text_examples import TextExamples
from stillery.data.token_cache import described
from stillery.evaluate.generate import Decoding, generate
from stillery.faults import Fault
from stillery.jobs.inputs import to_device
from stillery.jobs.text_inputs import Reading
from stillery.models.load import Loaded, fingerprint
from stillery.progress import say

__all__ = ["teacher_texts"]

KIND = "teacher-texts"


def teacher_texts(
    teacher: Loaded, examples: TextExamples, reading: Reading, decoding: Decoding, batch_size: int
) -> TextExamples:
    """The examples with what the teacher writes for each source as target.

    What was written before by this teacher, read and searched for in this way, comes from the cache; a source that
    occurs again is written once.
    """
    sources: list[str] = examples.sources.to_pylist()
    keys = np.array([_key(source) for source in sources], dtype=np.uint64)
    cache, key = find_cache(), _teacher_key(teacher, reading, decoding)
    kept = read_arrays(cache, KIND, key) if cache is not None else None
    known = _unpacked(kept) if kept is not None else {}
    missing = [place for place in np.unique(keys, return_index=True)[1].tolist() if int(keys[place]) not in known]
    if len(missing) < len(set(keys.tolist())):
        say(f"{len(set(keys.tolist())) - len(missing):,} texts of the teacher read from the cache")
    if missing:
        to_device(teacher.model)
        some = examples.take(missing)
        written = generate(
            teacher.model,
            teacher.tokenizer,
            reading.prompts(some, teacher.tokenizer, "train (teacher)"),
            decoding=decoding,
            batch_size=batch_size,
            description="the teacher writes",
        )
        known |= {int(keys[place]): text for place, text in zip(missing, written, strict=True)}
        if cache is not None:
            write_arrays(cache, KIND, key, _packed(known), f"{len(known):,} texts of {teacher.name}")
    targets = [known[int(one)] for one in keys]
    empty = sum(not text.strip() for text in targets)
    if empty == len(targets):
        raise Fault(f"--sequence-level: {teacher.name} writes nothing for any source, so there is nothing to learn")
    if empty:
        say(f"warning: the teacher writes nothing for {empty} of {len(targets)} sources; those are left out")
    whole = dataclasses.replace(examples, targets=pa.array(targets, pa.large_string()), references=None)
    return whole.take([row for row, text in enumerate(targets) if text.strip()]) if empty else whole


def _key(source: str) -> int:
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest(), "big")


def _teacher_key(teacher: Loaded, reading: Reading, decoding: Decoding) -> str:
    generation = teacher.model.generation_config
    parts = {
        "weights": fingerprint(teacher),
        "config": teacher.model.config.to_dict(),
        "generation": generation.to_dict() if generation is not None else None,
        "tokenizer": described(teacher.tokenizer),
        "versions": [transformers.__version__, tokenizers.__version__],
        "reading": dataclasses.asdict(reading),
        "decoding": dataclasses.asdict(decoding),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _packed(texts: dict[int, str]) -> Arrays:
    encoded = [text.encode() for text in texts.values()]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    flat = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    return Arrays(arrays={"keys": np.array(list(texts), dtype=np.uint64), "offsets": offsets, "bytes": flat}, facts={})


def _unpacked(kept: Arrays) -> dict[int, str]:
    keys, offsets, flat = (kept.arrays[name] for name in ("keys", "offsets", "bytes"))
    return {int(key): _text(flat, offsets, row) for row, key in enumerate(keys)}


def _text(flat: NDArray[np.uint8], offsets: NDArray[np.int64], row: int) -> str:
    return flat[offsets[row] : offsets[row + 1]].tobytes().decode()
