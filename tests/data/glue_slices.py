"""A few rows of every GLUE task, written as the benchmark publishes them and as the hub does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PARSES = ("( a )", "( b )", "(ROOT a)", "(ROOT b)")
MNLI_HEAD = (
    *("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"),
    *("sentence1_parse", "sentence2_parse", "sentence1", "sentence2", "label1"),
)
STSB_HEAD = (
    *("index", "genre", "filename", "year", "old_index"),
    *("source1", "source2", "sentence1", "sentence2", "score"),
)
MNLI_LABELS = ("contradiction", "entailment", "neutral")


def write_tsv(path: Path, rows: Sequence[Sequence[object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, **columns: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path


def _mnli(part: str, rows: range, labels: int) -> list[Sequence[object]]:
    extra = tuple(f"label{number}" for number in range(2, labels + 1))
    gold = labels > 0
    head = MNLI_HEAD if gold else MNLI_HEAD[:-1]
    lines: list[Sequence[object]] = [(*head, *extra, "gold_label") if gold else head]
    for row in rows:
        label = MNLI_LABELS[row % 3]
        texts = (f'{part} premise "{row}', f"{part} hypothesis {row}")
        lines.append((row, row, f"{row}e", "fiction", *PARSES, *texts, *[label] * (labels + gold)))
    return lines


def write_official(folder: Path) -> Path:
    """GLUE's folders as they are downloaded: stray quotes, files without header, tests without labels."""
    glue = folder / "glue_data"
    for part, count in (("train", 6), ("dev", 3)):
        rows = range(count)
        write_tsv(glue / "CoLA" / f"{part}.tsv", [("gj04", r % 2, "*", f'{part} "sentence {r}') for r in rows])
        write_tsv(
            glue / "SST-2" / f"{part}.tsv",
            [("sentence", "label"), *((f'" {part} film {r} ', r % 2) for r in rows)],
        )
        write_tsv(
            glue / "MRPC" / f"{part}.tsv",
            [
                ("\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
                *((r % 2, r, 9 + r, f'{part} "{r}', "other") for r in rows),
            ],
        )
        write_tsv(
            glue / "STS-B" / f"{part}.tsv",
            [
                STSB_HEAD,
                *((r, "g", "f", 2012, r, "n", "n", f"{part} a {r}", f"b {r}", f"{r / 2:.3f}") for r in rows),
            ],
        )
        write_tsv(
            glue / "QQP" / f"{part}.tsv",
            [
                ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
                *((r, r, r, f"{part} what is {r}?", f'why "{r}?', r % 2) for r in rows),
            ],
        )
        for name, first, second in (("QNLI", "question", "sentence"), ("RTE", "sentence1", "sentence2")):
            labels = ("entailment", "not_entailment")
            write_tsv(
                glue / name / f"{part}.tsv",
                [("index", first, second, "label"), *((r, f"{part} {r}", f"b {r}", labels[r % 2]) for r in rows)],
            )
    write_tsv(glue / "MNLI" / "train.tsv", _mnli("train", range(6), 1))
    for part in ("matched", "mismatched"):
        write_tsv(glue / "MNLI" / f"dev_{part}.tsv", _mnli(part, range(3), 5))
        write_tsv(glue / "MNLI" / f"test_{part}.tsv", _mnli(part, range(4), 0))
    write_tsv(glue / "CoLA" / "test.tsv", [("index", "sentence"), *((r, f"cola test {r}") for r in range(4))])
    write_tsv(glue / "SST-2" / "test.tsv", [("index", "sentence"), *((r, f"film test {r}") for r in range(4))])
    return glue
