"""`--pair similar`: measured once, printed, logged, kept with the run and found again by it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from text_models import make_writer, write_pairs
from transformers import AutoModelForSequenceClassification

from stillery.jobs import layer_similarity as similar
from stillery.models.similarity import layer_means, layer_similarity
from stillery.models.trace import trace


def ask(teacher: Path, data: Path, out: Path, *more: object) -> list[object]:
    return [
        "distill", "--teacher", teacher, "--data", data, "--out", out, "--layers", 2, "--max-steps", 4,
        "--pair", "similar", "--log-every", 1, "--cache", "off", *more,
    ]  # fmt: skip


def read(out: Path) -> dict:
    return json.loads((out / "similarity.json").read_text())


@pytest.fixture(scope="module")
def teacher(tiny_teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny teacher with a third layer that is the second one again, and so with layers that are alike."""
    folder = tmp_path_factory.mktemp("similar")
    model = AutoModelForSequenceClassification.from_pretrained(tiny_teacher)
    for name in ("attention.output.dense", "output.dense"):
        torch.nn.init.zeros_(model.bert.encoder.layer[2].get_submodule(name).weight)
    model.save_pretrained(folder)
    for file in tiny_teacher.glob("token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_run_says_logs_keeps_and_repeats_what_it_chose(command, teacher: Path, reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command(*ask(teacher, reviews, out, "--init", "last", "--verbose"))
    assert done.code == 0, done.err
    kept = read(out)
    (met,) = kept["pairs"].values()
    said = "hidden: student-teacher layers " + ", ".join(f"{ours}-{theirs}" for ours, theirs in met)
    assert said + " (by CKA similarity)" in done.err
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert events[0] == {"event": "pairs", "step": 0, "pairs": {"hidden": met}}
    matrix = np.array(kept["similarity"]["task"]["encoder"])
    assert matrix.shape == (3, 5) and matrix[0, 0] == 1, "the student's embeddings are the teacher's"
    assert 'pair = "similar"' in (out / "run.toml").read_text()
    again = tmp_path / "again"
    assert command("distill", "--config", out / "run.toml", "--out", again).code == 0
    assert read(again) == kept
    weights = [(run / "model.safetensors").read_bytes() for run in (out, again)]
    assert weights[0] == weights[1]


def test_a_run_that_goes_on_takes_what_it_began_with(
    command, teacher: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stillery.train import checkpoint

    out = tmp_path / "out"
    asked = ask(teacher, reviews, out, "--init", "even", "--checkpoint-every", 1)
    saved = checkpoint.save

    def save(*given, **more):
        saved(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save", save)
        assert command(*asked).code == 130
    before = read(out)
    # What the folder says holds, not what would be measured now.
    other = before | {"similarity": {"task": {"encoder": np.eye(3, 5).tolist()}}}
    (out / "similarity.json").write_text(json.dumps(other))
    monkeypatch.setattr(similar, "measured", lambda *given: pytest.fail("it was measured anew"))
    done = command(*asked, "--resume", "--verbose")
    assert done.code == 0, done.err
    assert "hidden: student-teacher layers 0-0, 1-1, 2-2 (as this run began)" in done.err
    events = [json.loads(line)["event"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert events.count("pairs") == 1 and events.count("train") == 4


def test_pairs_shows_them(command, teacher: Path, reviews: Path, tmp_path: Path) -> None:
    asked = ("pairs", "--teacher", teacher, "--layers", 2, "--pair", "similar", "--init", "last")
    done = command(*asked, "--data", reviews, "--json")
    assert done.code == 0 and "--init last, on 64 texts of" in done.err
    out = tmp_path / "out"
    assert command(*ask(teacher, reviews, out, "--init", "last", "--max-length", 128)).code == 0
    assert done.json == next(iter(read(out)["pairs"].values()))
    # Of a teacher that a run made its texts are known, of another one sentences stand for them.
    assert "made-up sentences" in command(*asked).err
    assert "texts of" in command("pairs", "--teacher", out, "--layers", 1, "--pair", "similar").err
    wanting = command("pairs", "--teacher-layers", 4, "--layers", 2, "--pair", "similar")
    assert (
        wanting.code == 2
        and "needs the similarity of layers: give --teacher" in wanting.err
        and wanting.err.count("\n") == 1
    )
    plain = command("pairs", "--teacher", teacher, "--layers", 2, "--method", "pkd", "--json")
    assert plain.json == [[1, 2]] and plain.err == ""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--teacher-layers", 4, "--teacher", "x"), "give one"),
        ((), "--teacher-layers"),
        (("--teacher-layers", 4, "--width", 16), "--width is for a student of a --teacher"),
        (("--teacher-layers", 4, "--pair", "simlar"), "choose from"),
    ],
)
def test_what_pairs_cannot_show(command, more: tuple[object, ...], words: str) -> None:
    done = command("pairs", "--layers", 2, *more)
    assert done.code == 2 and words in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize("family", ["t5", "gpt2"])
def test_models_that_write_text(family: str, command, tmp_path: Path) -> None:
    teacher, data, out = make_writer(tmp_path / family, family), write_pairs(tmp_path / "pairs.csv"), tmp_path / "out"
    done = command(*ask(teacher, data, out, "--init", "first", "--max-length", 16, "--max-target-length", 8))
    assert done.code == 0, done.err
    stacks = {"t5": {"encoder", "decoder"}, "gpt2": {"decoder"}}[family]
    kept = read(out)
    assert set(kept["similarity"]["task"]) == stacks and len(kept["pairs"]) == len(stacks)
    shown = command("pairs", "--teacher", teacher, "--layers", 1, "--pair", "similar")
    assert shown.code == 0 and "made-up sentences" in shown.err


def test_padding_and_batches_change_no_similarity(teacher: Path, tokenizer) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(teacher).train()
    texts = ["a short one", "a text that is quite a bit longer than the other one", "the third", "one more of them"]
    whole = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    single = [dict(tokenizer(text, return_tensors="pt")) for text in texts]
    first, second = (layer_means(model, batches) for batches in ([whole], single))
    np.testing.assert_allclose(first["encoder"], second["encoder"], atol=1e-5)
    assert model.training, "it is left as it was"
    hidden = trace(model.eval(), single[0], range(5)).stack().hidden
    np.testing.assert_allclose(
        second["encoder"][:, 0], [hidden[i][0].mean(0).detach().numpy() for i in range(5)], atol=1e-5
    )
    matrix = np.array(layer_similarity(first, second)["encoder"])
    np.testing.assert_allclose(np.diag(matrix), 1, atol=1e-3)
