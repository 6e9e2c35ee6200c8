"""`stillery tasks synth`: sentence pairs by size and length, ready for --ild-data."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from csv_files import read_csv, write_csv
from transformers import PreTrainedTokenizerBase

from stillery.data.tasks.load_task import load_task
from stillery.jobs.synthetic_pairs import run_synth


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of several sentences each: reviews joined by fours, and every tenth row twice."""
    reviews = [text for text in load_task("rotten-tomatoes").train["text"][:1200].to_pylist() if text[0].isalnum()]
    rows = [
        " ".join(f"{text[0].upper()}{text[1:].rstrip(' .')}." for text in reviews[i : i + 4]) for i in range(0, 1200, 4)
    ]
    rows = [row for row in rows if row]
    return write_csv(tmp_path_factory.mktemp("corpus") / "corpus.csv", ("text",), [(row,) for row in rows + rows[::10]])


def pairs(path: Path) -> list[tuple[str, str]]:
    table = pq.read_table(path)
    assert table.column_names == ["sentence1", "sentence2"]
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_pairs_are_as_long_as_asked(command, corpus: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    out = tmp_path / "pairs.parquet"
    done = command("tasks", "synth", "--from", corpus, "--size", 300, "--length", 60, "--out", out)
    assert done.code == 0, done.err
    made = pairs(out)
    lengths = [len(tokenizer(*pair)["input_ids"]) for pair in made]
    assert len(made) == 300 and min(lengths) >= 54 and max(lengths) <= 66
    assert done.out.startswith("300 pairs out of ") and f"{sum(lengths) / 300:.1f} tokens in the mean" in done.out
    assert len({frozenset(pair) for pair in made}) == 300 and all(one != other for one, other in made)
    assert all(len(sentence.split()) > 10 for pair in made for sentence in pair)
    whole = " ".join(row["text"] for row in read_csv(corpus))
    assert all(sentence in whole for pair in made for sentence in pair)


def test_it_is_a_function_of_the_seed_and_the_sentences(corpus: Path, tmp_path: Path) -> None:
    def made(name: str, source: Path = corpus, **changes: object) -> bytes:
        run_synth(source, tmp_path / name, **({"size": 50, "length": 50, "seed": 3} | changes))  # type: ignore[arg-type]
        return (tmp_path / name).read_bytes()

    rows = [(row["text"],) for row in read_csv(corpus)][::-1]
    first = made("one.csv")
    assert made("two.csv") == first
    assert made("three.csv", write_csv(tmp_path / "reversed.csv", ("text",), rows)) == first
    assert made("four.csv", seed=4) != first


def test_any_length_other_formats_and_other_columns(command, tmp_path: Path) -> None:
    words = "one two three four five six seven eight nine ten"
    rows = [(f"{words} {name}.", f"{name} comes last. Short: {name}.") for name in ("Ada", "Bob", "Cyd")]
    source = write_csv(tmp_path / "two.csv", ("premise", "hypothesis"), rows)
    done = command("tasks", "synth", "--from", source, "--size", 3, "--out", tmp_path / "out.csv")
    assert done.code == 0, done.err
    made = {frozenset(row.values()) for row in read_csv(tmp_path / "out.csv")}
    assert made == {
        frozenset({f"{words} {one}.", f"{words} {other}."})
        for one, other in (("Ada", "Bob"), ("Ada", "Cyd"), ("Bob", "Cyd"))
    }
    done = command(
        *("tasks", "synth", "--from", source, "--size", 15, "--min-words", 2, "--text", "hypothesis"),
        *("--out", tmp_path / "out.jsonl"),
    )
    assert done.code == 0 and len((tmp_path / "out.jsonl").read_text().splitlines()) == 15, done.err


def test_too_small_a_corpus_is_one_line(command, corpus: Path, tmp_path: Path) -> None:
    small = write_csv(tmp_path / "small.csv", ("text",), [("Too short. Really.",)])
    cases = [
        ((corpus, "--size", 10**9, "--length", 60), "pairs of 54 to 66 tokens, and --size asks for 1,000,000,000"),
        ((corpus, "--size", 1, "--length", 500, "--tolerance", 0), "sentences make 0 pairs of 500 to 500 tokens"),
        ((small, "--size", 1), "small.csv: no sentence has 11 words or more; lower --min-words"),
    ]
    for arguments, line in cases:
        done = command("tasks", "synth", "--from", *arguments, "--out", tmp_path / "out.csv")
        assert done.code == 2 and line in done.err.splitlines()[-1], done.err
    assert not (tmp_path / "out.csv").exists()


def test_all_bad_options_are_said_at_once(command, tmp_path: Path) -> None:
    done = command(
        *("tasks", "synth", "--from", tmp_path / "none.csv", "--size", 0, "--length", 600, "--min-words", 0),
        *("--tolerance", "nan", "--out", tmp_path / "nowhere" / "out.csv"),
    )
    assert (done.code, done.out) == (2, "")
    said = [line.split(":")[1].split()[0] for line in done.err.splitlines()]
    assert said[:3] == ["--size", "--min-words", "--tolerance"] and len(said) == 6, done.err
    done = command("tasks", "synth", "--from", "a.csv", "--size", 1, "--tokenizer", tmp_path, "--out", "a.csv")
    assert "--out a.csv is the corpus" in done.err and "holds no model" in done.err


def test_the_pairs_train_a_student(command, corpus: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "pairs.parquet"
    assert command("tasks", "synth", "--from", corpus, "--size", 40, "--length", 50, "--out", out).code == 0
    arguments = ["--teacher", tiny_teacher, "--data", reviews, "--method", "cr-ild", "--layers", 2, "--max-steps", 2]
    done = command("distill", *arguments, "--ild-data", out, "--out", tmp_path / "run")
    assert done.code == 0 and "pairs.parquet, 40 texts" in done.err, done.err
