"""Generate a synthetic data set of sentence pairs from a corpus, by size and effective length."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from stillery.data.readers.writer import write_rows
from stillery.data.tasks.synthetic_pairs import count_tokens, draw_pairs, open_corpus, pair_window, read_sentences
from stillery.errors import ErrorList, UserError
from stillery.jobs.output_paths import check_file
from stillery.models.load_model import load_tokenizer

__all__ = ["Synthesised", "run_synth"]

COLUMNS = ("sentence1", "sentence2")
WRITTEN_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class Synthesised:
    """Statistics of a generated data set: pairs, sentences of the corpus, and the pairs' effective lengths."""

    pairs: int
    sentences: int
    mean_length: float
    shortest: int
    longest: int


def run_synth(
    corpus: Path,
    out: Path,
    *,
    size: int,
    length: int | None = None,
    tolerance: float = 0.1,
    min_words: int = 11,
    text: str | None = None,
    tokenizer: str = "minilm-l6",
    seed: int = 0,
    overwrite: bool = False,
) -> Synthesised:
    """Write `size` distinct pairs of sentences from a corpus, each of `length` tokens within a share of `tolerance`.

    Tokens are those of the tokenizer, with special tokens and without padding. The file has the columns `sentence1` and
    `sentence2`. It depends only on the sentences, the tokenizer and the options, each of which is a parameter. An
    existing file is refused or, with `overwrite`, replaced once the set is complete.
    """
    errors = ErrorList()
    _check(errors, size=size, tolerance=tolerance, min_words=min_words)
    if out.resolve() == corpus.resolve():
        errors.add(f"--out {out} is the corpus: give another name")
    else:
        with errors.catch():
            check_file(out, "--out", overwrite=overwrite)
    with errors.catch():
        counter = load_tokenizer(tokenizer)
        window = pair_window(counter, length, tolerance if 0 <= tolerance < 1 else 0.0)
    with errors.catch():
        texts = open_corpus(corpus, text)
    errors.raise_any()
    sentences = read_sentences(texts, min_words=min_words, seed=seed)
    if not len(sentences):
        raise UserError(f"{corpus.name}: no sentence has {min_words} words or more; lower --min-words")
    drawn = draw_pairs(count_tokens(sentences, counter, window, size), window, size, seed, corpus.name)
    with write_rows(out, COLUMNS, dict.fromkeys(COLUMNS, pa.string())) as writer:
        for start in range(0, size, WRITTEN_AT_ONCE):
            rows = slice(start, start + WRITTEN_AT_ONCE)
            sides = (sentences.take(pa.array(side[rows])).to_pylist() for side in (drawn.first, drawn.second))
            writer.write(dict(zip(COLUMNS, sides, strict=True)))
    return Synthesised(
        pairs=size,
        sentences=len(sentences),
        mean_length=float(drawn.lengths.mean()),
        shortest=int(drawn.lengths.min()),
        longest=int(drawn.lengths.max()),
    )


def _check(errors: ErrorList, *, size: int, tolerance: float, min_words: int) -> None:
    if size < 1:
        errors.add(f"--size {size}: ask for at least one pair")
    if min_words < 1:
        errors.add(f"--min-words {min_words}: a sentence has at least one word")
    if not 0 <= tolerance < 1:
        errors.add(f"--tolerance {tolerance:g}: give a share of the length, from 0 to below 1")
