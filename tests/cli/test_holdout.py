"""Part of the training split chooses the weights, and dev chooses nothing (`--holdout`)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from csv_files import read_csv, write_csv
from tagging_models import conll, tagged
from text_models import SHORT, make_writer, write_pairs
from text_models import SMALL as SMALL_TEXT

from stillery.models.model_folder import model_folder

TRAINING = ("--max-steps", 5, "--batch-size", 8, "--eval-every", 1, "--lr", 0.01)


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def weights(run: Path) -> bytes:
    return (Path(model_folder(str(run))) / "model.safetensors").read_bytes()


@pytest.fixture
def folders(reviews, tmp_path) -> tuple[Path, Path]:
    """The same train file with the same dev texts, once with their labels and once with the other ones."""
    rows = [(row["text"], row["label"]) for row in read_csv(reviews)]
    other = {"negative": "positive", "positive": "negative"}
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
        write_csv(tmp_path / name / "train.csv", ("text", "label"), rows[::2])
        dev = [(text, label if name == "right" else other[label]) for text, label in rows[1::2]]
        write_csv(tmp_path / name / "dev.csv", ("text", "label"), dev)
    return tmp_path / "right", tmp_path / "wrong"


def test_labels_of_dev_decide_nothing(command, tiny_teacher, folders, tmp_path):
    """With other dev labels the same weights are kept, and only the score differs."""
    kept = {}
    for share in (("--holdout", 0.2), ()):
        for folder in folders:
            out = tmp_path / f"{folder.name}{len(share)}"
            done = command("distill", "--teacher", tiny_teacher, "--data", folder, "--layers", 2, "--method", "none",
                           *TRAINING, *share, "--patience", 3, "--out", out)  # fmt: skip
            assert done.code == 0, done.err
            kept[folder.name, bool(share)] = (read(out / "metrics.json"), weights(out))
    for metrics, _ in (kept["right", True], kept["wrong", True]):
        assert metrics["split"] == "dev" and metrics["examples"] == 80
        assert metrics["training"]["selected_on"] == "holdout"
    assert kept["right", True][1] == kept["wrong", True][1]
    right, wrong = (kept[name, True][0] for name in ("right", "wrong"))
    assert right["training"] == wrong["training"]
    assert right["metrics"]["accuracy"] == pytest.approx(100 - wrong["metrics"]["accuracy"])
    # What the test would see if dev chose: without the share it does.
    assert kept["right", False][0]["training"] != kept["wrong", False][0]["training"]
    assert "selected_on" not in kept["right", False][0]["training"]


def test_what_is_held_out_depends_on_texts_alone(command, tiny_teacher, make_bert, reviews, tmp_path):
    """A teacher of the whole split and a student of few samples never train on what the other holds out."""
    small = ("--max-steps", 2, "--batch-size", 8, "--holdout", 0.2)
    for name, options in (
        ("teacher", ("finetune", "--model", make_bert())),
        ("student", ("distill", "--teacher", tiny_teacher, "--layers", 2, "--samples", 60, "--label-noise", 0.2)),
    ):
        done = command(*options, "--data", reviews, *small, "--out", tmp_path / name)
        assert done.code == 0, done.err
    whole, few = (read(tmp_path / name / "conditions.json") for name in ("teacher", "student"))
    drawn = set(few["samples"]["ids"])
    assert set(few["holdout"]["ids"]) == set(whole["holdout"]["ids"]) & drawn
    assert 5 <= len(few["holdout"]["ids"]) <= 20 and whole["holdout"]["of"] == 128
    assert {one["id"] for one in few["label_noise"]["flipped"]} & set(few["holdout"]["ids"])
    # There is a test split, so that is scored.
    assert read(tmp_path / "student" / "metrics.json")["split"] == "test"
    assert f"{60 - len(few['holdout']['ids'])} train, {len(few['holdout']['ids'])} holdout, 16 test" in done.err
    assert "holdout = 0.2" in (tmp_path / "student" / "run.toml").read_text()


def test_repeated_texts_stay_together(reviews):
    from stillery.data.schema.answer_labels import classification
    from stillery.data.schema.load_splits import load
    from stillery.jobs.holdout import holdout_rows

    train = load(reviews, classification()).train
    twice = train.take(np.concatenate([np.arange(len(train)), np.arange(len(train))]))
    rows = holdout_rows(twice, 0.1)
    assert (rows[: len(train)] == rows[len(train) :]).all()
    assert 0.03 <= rows.mean() <= 0.2
    assert (holdout_rows(train, 0.1, seed=1) != holdout_rows(train, 0.1)).any()
    # However small the share and the split, one text is held out and one is left.
    two = train.take([0, 1])
    assert holdout_rows(two, 1e-6).sum() == 1 == holdout_rows(two, 0.5).sum()


def test_taggers_and_models_that_generate_text_hold_out_too(command, make_bert, tmp_path):
    sentences = conll(tmp_path / "tags.conll", tagged())
    done = command("finetune", "--model", make_bert(), "--data", sentences, "--max-steps", 2, "--max-length", 32,
                   "--holdout", 0.2, "--out", tmp_path / "tagger")  # fmt: skip
    assert done.code == 0, done.err
    pairs, writer = write_pairs(tmp_path / "pairs.csv"), make_writer(tmp_path / "t5", "t5", layers=2)
    done = command("finetune", "--model", writer, "--data", pairs, *SMALL_TEXT, *SHORT, "--holdout", 0.2,
                   "--out", tmp_path / "writer")  # fmt: skip
    assert done.code == 0, done.err
    for name in ("tagger", "writer"):
        held = read(tmp_path / name / "conditions.json")["holdout"]
        assert held["of"] == 48 and 1 <= len(held["ids"]) <= 20
        metrics = read(tmp_path / name / "metrics.json")
        assert metrics["split"] == "test" and metrics["training"]["selected_on"] == "holdout"


def test_a_run_file_of_before_goes_on_and_another_share_is_another_run(command, tiny_teacher, reviews, tmp_path):
    common = ("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--max-steps", 2)
    assert command(*common, "--out", tmp_path / "old").code == 0
    file = tmp_path / "old" / "run.toml"
    older = [line for line in file.read_text().splitlines() if not line.startswith("holdout")]
    file.write_text("\n".join(older), encoding="utf-8")
    assert command(*common, "--out", tmp_path / "old", "--resume").code == 0
    done = command(*common, "--out", tmp_path / "old", "--resume", "--holdout", 0.1)
    assert done.code == 2 and "it differs in holdout" in done.err


@pytest.mark.parametrize(("share", "said"), [(0, "--holdout is 0.0: it must be more than 0"), (0.7, "at most 0.5")])
def test_shares_that_cannot_be(command, tiny_teacher, reviews, tmp_path, share, said):
    done = command("distill", "--teacher", tiny_teacher, "--data", reviews, "--holdout", share, "--out", tmp_path / "r")
    assert done.code == 2 and said in done.err
    shutil.rmtree(tmp_path / "r", ignore_errors=True)
