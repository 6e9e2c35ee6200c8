from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from stillery.errors import UserError
from stillery.evaluation.text_metrics import TextScores, label_accuracy, perplexity, text_difference, text_scores

OUTPUTS = [
    "The cat sat on the mat .",
    "",
    "Aarhus Airport serves the city of Aarhus, Denmark.",
    '« Ça coûte 3,50 € » \u2013 it\'s 100% "naïve" & <b>odd</b>;',
    "日本語の文 mixed with ASCII\u00a0text\u2028\x0bon one\rline",
    "a b c d e f g h ",
    "the the the the",
]
FIRST = [
    "The cat sat on the mat.",
    "There is no output for this.",
    "Aarhus Airport serves the city of Aarhus in Denmark.",
    '« Ça coûte 3,50 € » \u2013 it is 100 % "naïve" & <b>odd</b>;',
    "日本語の文章 mixed with ASCII text",
    "a b c d e f g i",
    "the cat",
]
SECOND = [
    "A cat sat on a mat.",
    "Nothing was said.",
    "The airport of the city of Aarhus, Denmark, is Aarhus Airport.",
    "",
    "日本語",
    "h g f e d c b a",
    "the the cat is on the mat",
]


def command_line(folder: Path, *streams: list[str]) -> dict[str, dict[str, object]]:
    """What sacrebleu's command line says of OUTPUTS, by name of the metric."""
    files = []
    for number, lines in enumerate([OUTPUTS, *streams]):
        files.append(folder / f"{number}.txt")
        files[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = ["-i", files[0], "-m", "bleu", "chrf", "--format", "json", "--width", "12"]
    command = [sys.executable, "-m", "sacrebleu", *files[1:], *options]
    found = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True, timeout=60)
    return {score["name"]: score for score in json.loads(found.stdout)}


def numbers(scores: TextScores) -> list[float]:
    return [float(f"{scores.bleu:.12f}"), float(f"{scores.chrf:.12f}")]


@pytest.mark.parametrize("streams", [[FIRST], [FIRST, SECOND]], ids=["one reference", "two references"])
def test_numbers_and_signatures_are_those_of_the_command_line(tmp_path: Path, streams: list[list[str]]) -> None:
    expected = command_line(tmp_path, *streams)
    found = text_scores(OUTPUTS, list(zip(*streams, strict=True)))
    assert 10 < found.bleu < 90
    assert numbers(found) == [expected["BLEU"]["score"], expected["chrF2"]["score"]]
    assert found.signatures == {"bleu": expected["BLEU"]["signature"], "chrf": expected["chrF2"]["signature"]}


def test_examples_may_have_different_numbers_of_references(tmp_path: Path) -> None:
    references = [[one] if row % 2 else [one, two] for row, (one, two) in enumerate(zip(FIRST, SECOND, strict=True))]
    # A reference given twice changes neither metric, and so the command line can be asked too.
    again = [right[-1] for right in references]
    expected = command_line(tmp_path, FIRST, again)
    found = text_scores(OUTPUTS, references)
    assert numbers(found) == [expected["BLEU"]["score"], expected["chrF2"]["score"]]
    assert numbers(found) != numbers(text_scores(OUTPUTS, [[one] for one in FIRST]))
    assert "nrefs:var" in found.signatures["bleu"]
    # The example with fewer references may be the first one.
    assert numbers(text_scores(OUTPUTS[::-1], references[::-1])) == numbers(found)
    assert numbers(text_scores(OUTPUTS[1:] + OUTPUTS[:1], references[1:] + references[:1])) == numbers(found)


def test_an_empty_reference_is_one_and_a_missing_one_is_none() -> None:
    outputs, right = ["one two three four", "a"], ["one two three four", "a b c d e f"]
    alone = text_scores(outputs, [[text] for text in right])
    blank = text_scores(outputs, [[right[0]], [right[1], ""]])
    # Beside an output of one word, no words are the closer length: the corpus is too short no longer.
    assert alone.bleu < blank.bleu


def test_intervals_hold_every_resample_of_two_examples() -> None:
    outputs, references = OUTPUTS[:3:2], [[FIRST[0]], [FIRST[2]]]
    found = text_scores(outputs, references)
    # Two examples have three resamples, each at least a quarter of all: the middle 95% reach from lowest to highest.
    possible = [
        text_scores([outputs[i] for i in rows], [references[i] for i in rows]) for rows in [(0, 0), (1, 0), (1, 1)]
    ]
    for name in ("bleu", "chrf"):
        values = [getattr(scores, name) for scores in possible]
        assert found.intervals[name] == (pytest.approx(min(values)), pytest.approx(max(values)))
        assert found.intervals[name][0] < getattr(found, name) < found.intervals[name][1]


def test_paired_difference_on_the_same_resamples() -> None:
    references = [[FIRST[0]], [FIRST[2]]]
    student, teacher = OUTPUTS[:3:2], [SECOND[0], SECOND[2]]
    found = text_difference(student, teacher, references)
    rows = [(0, 0), (1, 0), (1, 1)]
    for name in ("bleu", "chrf"):
        values = [
            getattr(text_scores([student[i] for i in pair], [references[i] for i in pair]), name)
            - getattr(text_scores([teacher[i] for i in pair], [references[i] for i in pair]), name)
            for pair in rows
        ]
        assert getattr(found, name) == pytest.approx(values[1])
        assert found.intervals[name] == (pytest.approx(min(values)), pytest.approx(max(values)))
    same = text_difference(student, student, references)
    assert (same.bleu, same.chrf, same.intervals) == (0, 0, {"bleu": (0, 0), "chrf": (0, 0)})


def test_intervals_are_as_wide_as_those_of_sacrebleu() -> None:
    random = np.random.default_rng(0)
    words = np.array(["the", "a", "cat", "dog", "house", "runs", "on", "in", "under", "of", "tree"])
    right = [" ".join(random.choice(words, random.integers(4, 12))) for _ in range(150)]
    outputs = [" ".join(word for word in text.split() if random.random() < 0.8) for text in right]
    found = text_scores(outputs, [[text] for text in right], seed=1)
    for name, metric in {"bleu": BLEU(), "chrf": CHRF()}.items():
        score = metric.corpus_score(outputs, [right], n_bootstrap=1000)
        theirs = json.loads(score.format(width=6, signature=str(metric.get_signature()), is_json=True))
        low, high = found.intervals[name]
        assert (high - low) / 2 == pytest.approx(theirs["confidence_var"], rel=0.1)
        assert low < getattr(found, name) < high
    assert found == text_scores(outputs, [[text] for text in right], seed=1)
    assert found.intervals != text_scores(outputs, [[text] for text in right], seed=2).intervals


def test_nothing_is_said_about_outputs_that_look_tokenised(caplog: pytest.LogCaptureFixture) -> None:
    outputs = ["it is so ."] * 120
    assert text_scores(outputs, [["it is so ."]] * 120, draws=2).bleu == pytest.approx(100)
    assert not caplog.records


@pytest.mark.parametrize(
    ("outputs", "references", "says"),
    [
        (["a"], [["a"], ["b"]], "1 outputs cannot be compared with the references of 2 examples"),
        ([], [], "no outputs"),
        (["a", "b"], [["a"], []], "example 2 are empty"),
        (["a"], ["a"], "example 1 are a single text"),
    ],
)
def test_what_cannot_be_scored(outputs: list[str], references: list[list[str]], says: str) -> None:
    with pytest.raises(UserError, match=says):
        text_scores(outputs, references)


def test_without_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "sacrebleu"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UserError, match=r'install with: pip install "stillery\[generation\]"'):
        text_scores(["a"], [["a"]])
    assert label_accuracy(["a"], ["a"]).tolist() == [0]


def test_label_words() -> None:
    words = ["not_entailment", "entailment", "STRASSE"]
    outputs = ["entailment", " Not_Entailment\n", "entailment entailment", "", "Straße"]
    found = label_accuracy(outputs, words)
    assert found.dtype == np.int64
    assert found.tolist() == [1, 0, -1, -1, 2]
    assert (found == np.array([1, 0, 1, 0, 0])).mean() == pytest.approx(0.4)
    with pytest.raises(UserError, match="different and not empty"):
        label_accuracy([], ["yes", "Yes "])
    with pytest.raises(UserError, match="different and not empty"):
        label_accuracy([], ["yes", ""])


def test_perplexity() -> None:
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(709.0) < math.inf
    assert perplexity(710.0) == perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))
