"""A file of MNLI's size is tokenised and trained on in bounded memory: rows stream, none is held as Python objects."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerBase

pytestmark = pytest.mark.skipif(not hasattr(os, "wait4"), reason="the memory of a child process is not known here")

MNLI_ROWS = 392_702
KINDS = ("entailment", "neutral", "contradiction")


@pytest.fixture(scope="module")
def words(tokenizer: PreTrainedTokenizerBase) -> pa.Array:
    """Two thousand words of one token, and some hundred made of two of them, which are several."""
    single = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 2)[
        :2000
    ]
    return pa.array([*single, *(one + other for one, other in zip(single[:300], single[300:], strict=False))])


def _sentences(random: np.random.Generator, words: pa.Array, sizes: np.ndarray) -> pa.Array:
    flat = words.take(pa.array(random.integers(0, len(words), int(sizes.sum()))))
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]))
    return pc.binary_join(pa.LargeListArray.from_arrays(offsets, flat), " ")


def like_mnli(path: Path, rows: int, words: pa.Array) -> Path:
    """Pairs as long as MNLI's: premises of 20 words in the mean and at most 400, hypotheses of 10."""
    random = np.random.default_rng(0)
    premises = np.clip(np.round(random.lognormal(2.75, 0.7, rows)), 1, 400).astype(np.int64)
    hypotheses = np.clip(np.round(random.lognormal(2.2, 0.4, rows)), 1, 70).astype(np.int64)
    columns = {
        "premise": _sentences(random, words, premises),
        "hypothesis": _sentences(random, words, hypotheses),
        "label": pa.array(KINDS).take(pa.array(random.integers(0, 3, rows))),
    }
    pq.write_table(pa.table(columns), path)
    return path


def peak_of(model: Path, data: Path, out: Path, cache: str) -> tuple[float, float, str]:
    """Run the command line for two steps: the most memory it held, in MiB, its seconds and what it said."""
    arguments = ["finetune", "--model", model, "--data", data, "--max-steps", "2", "--verbose", "--out", out]
    began = time.perf_counter()
    with (out.parent / f"{out.name}.err").open("w+") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "stillery", *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=os.environ | {"STILLERY_CACHE": cache},
        )
        # Of this child alone: the usage of all children is that of the largest so far.
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read()
    assert child.returncode == 0, lines
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return used.ru_maxrss / unit, time.perf_counter() - began, lines


@pytest.fixture(scope="module")
def model(make_bert: Callable[..., Path]) -> Path:
    """One layer of 16 over the real vocabulary, for texts of up to 128 tokens."""
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return make_bert(**shape, max_position_embeddings=128, num_labels=3)


@pytest.mark.slow
def test_memory_grows_little_with_the_rows(model: Path, words: pa.Array, tmp_path: Path) -> None:
    peaks = {
        rows: peak_of(model, like_mnli(tmp_path / f"{rows}.parquet", rows, words), tmp_path / str(rows), "off")[0]
        for rows in (400, 40_000)
    }
    # Streaming takes about 70 MiB more for the 40,000 rows; with all texts and tokens of a part in Python lists at
    # once (tokens.AT_ONCE = 10**9) it takes 250 to 285 MiB.
    assert peaks[40_000] - peaks[400] < 150


@pytest.mark.slow
def test_mnli_stays_below_two_gibibytes(model: Path, words: pa.Array, tmp_path: Path) -> None:
    data, cache = like_mnli(tmp_path / "mnli.parquet", MNLI_ROWS, words), tmp_path / "cache"
    peak, seconds, _ = peak_of(model, data, tmp_path / "first", str(cache))
    peak_again, seconds_again, said = peak_of(model, data, tmp_path / "second", str(cache))
    print(f"\ntokenised: {peak:.0f} MiB, {seconds:.0f} s; from the cache: {peak_again:.0f} MiB, {seconds_again:.0f} s")
    assert peak < 2048 and peak_again < 2048
    assert said.count("read from the cache") == 3 and "tokenise" not in said
    weights = [tmp_path / run / "model.safetensors" for run in ("first", "second")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
