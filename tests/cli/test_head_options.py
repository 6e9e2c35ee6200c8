"""`--head`, `--reuse`, `--projector` and `--allow-custom-head`, from the command to the exported student."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from stillery import methods
from stillery.jobs.kinds.classification import scores
from stillery.models.head import load_student
from stillery.models.projected_head import head_of
from stillery.train import checkpoint

NARROW = ("--layers", 2, "--width", 16, "--heads", 4)
SMALL = ("--max-steps", 2, "--batch-size", 8, "--lr", 0.01)


@pytest.fixture
def ask(tiny_teacher: Path, reviews: Path) -> tuple[object, ...]:
    return ("distill", "--teacher", tiny_teacher, "--data", reviews)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


def probabilities(model, student: Path, texts: list[str]) -> torch.Tensor:
    tokenizer = AutoTokenizer.from_pretrained(student)
    with torch.no_grad():
        logits = model(**tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=64)).logits
    return logits.softmax(-1)


def check_predictions(command, model, out: Path, texts: list[str], tmp_path: Path) -> None:
    """The run's own predictions are those of its exported student, and so are `stillery predict`'s."""
    data, labelled = tmp_path / "some.jsonl", tmp_path / "labelled.jsonl"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    done = command("predict", out, "--data", data, "--max-length", 64, "--out", labelled)
    assert done.code == 0, done.err
    said = [json.loads(line)["probability_positive"] for line in labelled.read_text().splitlines()]
    expected = probabilities(model, out, texts)[:, 1]
    torch.testing.assert_close(torch.tensor(said), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["ild-rtc", "kd", "tinybert", "rail-kd", "minilm"])
def test_a_narrower_student_reuses_the_classifier(command, ask, tiny_teacher, tmp_path, method):
    out = tmp_path / "run"
    done = command(*ask, "--method", method, *NARROW, "--head", "reuse-frozen", *SMALL, "--verbose", "--out", out)
    assert done.code == 0, done.err
    line = (
        "classifier replaced by the teacher's, frozen, behind a new linear projector 16 -> 32 that follows the "
        "student's own pooler; the projector is folded into the head on export"
    )
    assert line in " ".join(done.err.split())
    assert line in (out / "README.md").read_text()
    plain, info = AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert not any(info.values()), info
    count = sum(tensor.numel() for tensor in plain.parameters())
    assert json.loads((out / "metrics.json").read_text())["cost"]["parameters"] == count
    assert f"2 layers x 16, {count:,} parameters" in " ".join(done.err.split())
    assert weights(out)["classifier.weight"].shape == (2, 16)


def test_every_method_takes_a_reused_head(command, ask, tmp_path):
    names = [name for name in methods.names() if methods.build(name, {}).head == "fresh"]
    file = tmp_path / "run.toml"
    for name in names:
        values = {"teacher": ask[2], "data": ask[4], "method": name, "layers": 2, "head": "reuse-frozen"}
        file.write_text(
            "".join(f"{key} = {json.dumps(str(v) if isinstance(v, Path) else v)}\n" for key, v in values.items())
        )
        done = command("check", file)
        assert done.code == 0, done.err
        assert "pooler and classifier replaced by the teacher's, frozen" in done.out


def test_the_metrics_are_those_of_the_folded_student(command, ask, texts, tmp_path, monkeypatch):
    out, scored = tmp_path / "run", []
    score = scores.predict_logits

    def noted(model, *rest, **named):
        if (named["description"] or "").startswith("score "):  # not the scores during training
            scored.append(model)
        return score(model, *rest, **named)

    monkeypatch.setattr(scores, "predict_logits", noted)
    options = ("--method", "ild-rtc", *NARROW, *SMALL, "--keep", "best", "--eval-every", 1)
    done = command(*ask, *options, "--out", out)
    assert done.code == 0, done.err
    assert head_of(scored[0]) is None and "custom_head" not in json.loads((out / "metrics.json").read_text())
    assert all(torch.equal(tensor, weights(out)[name]) for name, tensor in scored[0].state_dict().items())
    plain = AutoModelForSequenceClassification.from_pretrained(out).eval()
    check_predictions(command, plain, out, texts[:5], tmp_path)


def test_run_file_and_resume_repeat_the_run(command, ask, tmp_path, monkeypatch):
    options = (*ask, "--method", "ild-rtc", *NARROW, "--head", "reuse-frozen", "--seed", 4, "--batch-size", 8,
               "--max-steps", 4, "--checkpoint-every", 2, "--eval-every", 2, "--lr", 0.01)  # fmt: skip
    whole, broken, repeated = (tmp_path / name for name in ("whole", "broken", "repeated"))
    assert command(*options, "--out", whole).code == 0
    values = tomllib.loads((whole / "run.toml").read_text())
    assert (values["head"], values["reuse"], values["projector"]) == ("reuse-frozen", "linear", "linear")

    save = checkpoint.save

    def save_and_stop(*arguments, **named):
        save(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        assert command(*options, "--out", broken).code == 130
    (held,) = (broken / "checkpoints").glob("step-2/weights.safetensors")
    assert {"student.classifier.projector.weight", "student.classifier.linear.weight"} <= load_file(held).keys()
    assert command(*options, "--out", broken, "--resume").code == 0
    assert command("distill", "--config", whole / "run.toml", "--out", repeated).code == 0
    for out in (broken, repeated):
        assert weights(out).keys() == weights(whole).keys()
        assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(out).items())
        for file in ("run.toml", "predictions.parquet"):
            assert (out / file).read_bytes() == (whole / file).read_bytes()


@pytest.mark.parametrize("reuse", ["linear", "pooler+linear"])
def test_a_frozen_head_is_the_teachers_to_the_bit(command, ask, tiny_teacher, tmp_path, reuse):
    out = tmp_path / "run"
    options = ("--layers", 2, "--head", "reuse-frozen", "--reuse", reuse, "--weight-decay", 0.5)
    done = command(*ask, *options, *SMALL, "--out", out)
    assert done.code == 0, done.err
    ours, theirs = weights(out), load_file(tiny_teacher / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        assert torch.equal(ours[name], theirs[name])
    pooler = "bert.pooler.dense.weight"
    assert torch.equal(ours[pooler], theirs[pooler]) == (reuse == "pooler+linear")


@pytest.mark.parametrize("options", [("--reuse", "pooler+linear"), ("--projector", "mlp")])
def test_a_custom_head_is_trained_exported_and_used(command, ask, texts, tmp_path, options):
    out = tmp_path / "run"
    asked = (*ask, "--method", "ild-rtc", *NARROW, *options, *SMALL)
    done = command(*asked, "--out", out)
    assert done.code == 2 and "does not fold into a plain model" in done.err and not out.exists()
    assert len([line for line in done.err.splitlines() if line.startswith("stillery: ")]) == 1
    done = command(*asked, "--allow-custom-head", "--out", out)
    assert done.code == 0, done.err
    assert "the student's head is custom" in done.err and "load_student" in done.out
    assert "AutoModelForSequenceClassification" not in done.out
    card = (out / "README.md").read_text()
    assert "from stillery.models.head import load_student" in card and "pipeline(" not in card
    assert json.loads((out / "metrics.json").read_text())["custom_head"] is True
    with pytest.raises(OSError, match=r"model\.safetensors"):
        AutoModelForSequenceClassification.from_pretrained(out)
    check_predictions(command, load_student(out), out, texts[:5], tmp_path)
    assert command("evaluate", out, "--data", ask[4]).code == 0
    # It is a teacher too, and its run file makes it again.
    follow = ("distill", "--teacher", out, "--data", ask[4], "--method", "kd", "--head", "reuse", "--layers", 1, *SMALL)
    done = command(*follow, "--verbose", "--out", tmp_path / "next")
    assert done.code == 0 and "classifier replaced by the teacher's" in done.err, done.err
    AutoModelForSequenceClassification.from_pretrained(tmp_path / "next")
    assert command("distill", "--config", out / "run.toml", "--out", tmp_path / "again").code == 0
    file = "student.safetensors"
    assert (tmp_path / "again" / file).read_bytes() == (out / file).read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--head", "fresh", "--reuse", "linear"), ["--reuse cannot go with --head fresh"]),
        (("--projector", "mlp"), ["--projector cannot go with --head fresh"]),
        (("--head", "reuse", "--reuse", "all"), ["--reuse is 'all': choose from pooler+linear, linear"]),
        (("--head", "new", "--projector", "linear"), ["--head is 'new'"]),
        (("--method", "simkd", "--width", 16, "--heads", 2), ["simkd: no loss of it reaches the head's projector"]),
        (
            ("--head", "reuse", "--reuse", "pooler+linear", "--projector", "mlp", "--width", 30, "--heads", 4),
            ["width 30 is not divisible", "--reuse pooler+linear: the student's width 30", "--projector mlp"],
        ),
    ],
)
def test_what_does_not_go_together_is_said_before_step_one(command, ask, tmp_path, options, words):
    done = command(*ask, "--layers", 2, *options, *SMALL, "--out", tmp_path / "run")
    lines = [line for line in done.err.splitlines() if line.startswith("stillery: ")]
    assert done.code == 2 and len(lines) == len(words) and not (tmp_path / "run").exists()
    assert all(any(word in line for line in lines) for word in words), done.err
