"""Names of other libraries lead to the setting they stand for, or to the reason why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

import stillery
from stillery.errors import UserError
from stillery.jobs.config.other_names import OTHER_NAMES, REASONS
from stillery.jobs.config.settings import GROUPS, setting_names
from stillery.train.settings import Training

LED = {
    "learning_rate": "it is called lr here",
    "num_train_epochs": "it is called epochs here",
    "per_device_train_batch_size": "it is called batch_size here",
    "gradient_accumulation_steps": "it is called accumulate here",
    "warmup_ratio": "it is called warmup here",
    "random_state": "it is called seed here",
    "output_dir": "it is called out here",
    "num_hidden_layers": "it is called layers here",
    "fp16": 'say precision "fp16"',
    "bf16": 'say precision "bf16"',
    "callbacks": "in Python give on_step or on_score",
    "compute_metrics": "in Python give metric",
    "train_dataset": "give all splits as data",
    "eval_dataset": "give all splits as data",
    "warmup_steps": "warmup is a share of the steps",
}


@pytest.mark.parametrize("name", LED)
def test_a_wrong_keyword_leads_to_the_right_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        stillery.distill(teacher="t", data="d.csv", out=tmp_path / "x", **{name: 1})
    (line,) = (line for line in raised.value.lines if "is not a setting" in line)
    assert line.startswith(f"{name} is not a setting: {LED[name]}")


def test_the_key_of_a_run_file_does_too(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('teacher = "t"\ndata = "d.csv"\nlearning_rate = 0.1\noverwrite = true\n', encoding="utf-8")
    with pytest.raises(UserError) as raised:
        stillery.distill(config=file, out=tmp_path / "x")
    assert f"{file}: learning_rate is not a setting: it is called lr here" in raised.value.lines
    assert any("overwrite is not a setting: a run file never replaces a run" in line for line in raised.value.lines)


def test_evaluate_and_predict_lead_there_too(tiny_teacher: Path, reviews: Path) -> None:
    with pytest.raises(UserError, match="max_seq_length is not a setting: it is called max_length here"):
        stillery.evaluate(tiny_teacher, data=reviews, max_seq_length=64)
    with pytest.raises(UserError, match="num_beams is not a setting: it is called beams here"):
        stillery.predict(tiny_teacher, data=reviews, num_beams=2)
    with pytest.raises(UserError, match="beem is not a setting: did you mean 'beams'"):
        stillery.predict(tiny_teacher, data=reviews, beem=2)


def test_names_that_are_settings_are_not_explained_away() -> None:
    known = {name for group in GROUPS.values() for name in setting_names(group)} | {
        "teacher",
        "model",
        "out",
        "resume",
        "config",
    }
    assert not (OTHER_NAMES.keys() | REASONS.keys()) & known
    known |= {"overwrite"}
    assert set(OTHER_NAMES.values()) <= known
    assert not OTHER_NAMES.keys() & REASONS.keys()
    assert "weight_decay" in setting_names(Training)
