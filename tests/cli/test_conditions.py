"""Few samples, wrong labels, no labels, another teacher for the layers, and training again: through the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from csv_files import read_csv, write_csv
from old_runs import old_layout

SMALL = ("--max-steps", 2, "--batch-size", 8)


def read(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.fixture
def distill(command, tiny_teacher, reviews, tmp_path):
    def run(*options: object, out: str = "run"):
        return command("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, *SMALL, *options,
                       "--out", tmp_path / out)  # fmt: skip

    return run


def test_few_samples_are_the_same_for_every_method_and_for_the_teacher(distill, command, make_bert, reviews, tmp_path):
    assert distill("--samples", 20, "--method", "kd", "--seed", 1, out="kd").code == 0
    assert distill("--samples", 20, "--method", "pkd", "--seed", 2, out="pkd").code == 0
    assert distill("--samples", 20, "--sample-seed", 1, out="other").code == 0
    done = command("finetune", "--model", make_bert(), "--data", reviews, "--samples", 20, *SMALL,
                   "--verbose", "--out", tmp_path / "teacher")  # fmt: skip
    assert done.code == 0, done.err
    drawn = {name: read(tmp_path / name / "conditions.json")["samples"] for name in ("kd", "pkd", "other", "teacher")}
    assert drawn["kd"] == drawn["pkd"] == drawn["teacher"]
    assert drawn["kd"]["of"] == 128 and len(set(drawn["kd"]["ids"])) == 20
    assert drawn["other"]["ids"] != drawn["kd"]["ids"]
    assert "20 of 128 training examples drawn" in done.err
    # Scored on the whole test split, whatever was trained on.
    assert read(tmp_path / "kd" / "metrics.json")["examples"] == 16


def test_flipped_labels_are_written_down_and_only_in_the_training_part(distill, reviews, tmp_path):
    assert distill("--label-noise", 0.3, "--noise-seed", 4, "--method", "none").code == 0
    noise = read(tmp_path / "run" / "conditions.json")["label_noise"]
    assert noise["rate"] == 0.3 and noise["seed"] == 4 and 20 <= len(noise["flipped"]) <= 60
    assert all(one["from"] != one["to"] for one in noise["flipped"])
    rows = read_csv(reviews)
    assert all(rows[int(one["id"]) - 1]["label"] == one["from"] for one in noise["flipped"])
    tested = pq.read_table(tmp_path / "run" / "predictions.parquet").to_pylist()
    assert all(rows[int(one["id"]) - 1]["label"] == one["label"] for one in tested)
    assert not {one["id"] for one in noise["flipped"]} & {one["id"] for one in tested}


def test_a_run_under_conditions_goes_on_and_is_told_from_another(distill, tmp_path):
    assert distill("--samples", 30, "--label-noise", 0.2).code == 0
    assert distill("--samples", 30, "--label-noise", 0.2, "--resume").code == 0
    done = distill("--samples", 31, "--label-noise", 0.2, "--resume")
    assert done.code == 2 and "samples" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--samples", 1000], "--samples 1000: the training split has only 128 examples"),
        (["--samples", 0], "--samples is 0"),
        (["--label-noise", 1.5], "--label-noise is 1.5"),
        (["--samples", 1], "one label"),
    ],
)
def test_conditions_that_cannot_be(distill, tmp_path, options, said):
    done = distill(*options)
    assert done.code == 2 and said in done.err and "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_scores_cannot_be_flipped(command, make_bert, scores, tmp_path):
    done = command(
        "finetune", "--model", make_bert(), "--data", scores, "--label-noise", 0.1, "--out", tmp_path / "run"
    )
    assert done.code == 2 and "--label-noise: scores cannot be flipped" in done.err


def test_another_teacher_for_the_layers_changes_the_student(distill, make_bert, tmp_path):
    deeper = make_bert(num_hidden_layers=6, hidden_size=48, intermediate_size=64)
    last = ("--method", "tinybert", "--max-steps", 6)
    assert distill(*last, out="same").code == 0
    done = distill(*last, "--ild-teacher", deeper, "--verbose", out="other")
    assert done.code == 0, done.err
    assert f"teacher of the hidden-state stage: {deeper}" in done.err
    # Its 6 layers are what the student's two meet, through a projection from 32 to 48.
    assert "hidden: student-teacher layers 0-0, 1-3, 2-6" in done.err
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("same", "other")]
    assert weights[0] != weights[1]
    assert "ild_teacher" in (tmp_path / "other" / "run.toml").read_text()


def test_another_teacher_needs_a_stage_of_layers(distill, make_bert):
    done = distill("--method", "kd", "--ild-teacher", make_bert())
    assert done.code == 2 and "no hidden-state stage" in done.err
    done = distill("--method", "tinybert", "--ild-teacher", "nowhere")
    assert done.code == 2 and "nowhere" in done.err


@pytest.fixture
def raw(texts, tmp_path) -> Path:
    return write_csv(tmp_path / "raw.csv", ("text",), [(text,) for text in texts])


@pytest.mark.parametrize("method", ["kd", "layer-forward", "rail-kd", "tinybert", "cr-ild", "codir", "bert-emd"])
def test_distilling_on_texts_alone(command, tiny_teacher, raw, tmp_path, method):
    done = command("distill", "--teacher", tiny_teacher, "--data", raw, "--unlabelled", "--method", method,
                   "--layers", 2, "--max-steps", 6, "--batch-size", 8, "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    found = read(tmp_path / "run" / "metrics.json")
    assert found["metrics"].keys() == {"agreement"} and 0 <= found["metrics"]["agreement"] <= 100
    table = pq.read_table(tmp_path / "run" / "predictions.parquet").to_pylist()
    same = sum(row["prediction"] == row["teacher_prediction"] for row in table)
    assert found["metrics"]["agreement"] == pytest.approx(100 * same / len(table), abs=1e-3)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert all("hard" not in line["terms"] for line in log if "terms" in line)
    scored = [line["metrics"] for line in log if "metrics" in line]
    assert scored and all(one.keys() == {"agreement"} for one in scored)


def test_raw_texts_to_train_on_and_labels_to_score_with(command, tiny_teacher, raw, reviews, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    raw.rename(folder / "train.csv")
    (folder / "test.csv").write_bytes(reviews.read_bytes())
    done = command("distill", "--teacher", tiny_teacher, "--data", folder, "--unlabelled", "--method", "kd",
                   "--layers", 2, *SMALL, "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    assert "accuracy" in read(tmp_path / "run" / "metrics.json")["metrics"]


def test_what_needs_labels_is_refused_without(command, distill, make_bert, raw, tiny_teacher, tmp_path):
    done = distill("--unlabelled", "--method", "none")
    assert done.code == 2 and "none" in done.err
    done = distill("--unlabelled", "--method", "universal-kd")
    assert done.code == 2 and "learns from labels" in done.err
    done = distill("--unlabelled", "--hard-weight", 0.5)
    assert done.code == 2 and "--hard-weight" in done.err
    done = command("distill", "--teacher", tiny_teacher, "--data", raw, "--layers", 2, "--out", tmp_path / "run")
    assert done.code == 2 and "--unlabelled" in done.err
    done = command("finetune", "--model", make_bert(), "--data", raw, "--unlabelled", "--out", tmp_path / "run")
    assert done.code == 2 and "fine-tuning learns from labels" in done.err
    for name in ("finetune", "evaluate", "distill"):
        assert ("--unlabelled" in command(name, "--help").out) == (name == "distill"), "what is refused is not offered"
    assert not (tmp_path / "run").exists()


def test_a_model_that_learns_nothing_is_trained_again(command, make_bert, reviews, tmp_path):
    # With a learning rate of next to nothing every dev example keeps the answer of a new head.
    still = ("--lr", 1e-30, "--weight-decay", 0, *SMALL)
    model = make_bert(initializer_range=1e-4)
    done = command("finetune", "--model", model, "--data", reviews, "--restarts", 2, *still, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    found = read(tmp_path / "run" / "metrics.json")
    tried = found["restarts"]
    assert [one["seed"] for one in tried] == [0, 1, 2] and all(one["collapsed"] for one in tried)
    assert found["kept_seed"] == max(tried, key=lambda one: one["dev"])["seed"]
    assert "training again with seed 1" in done.err and "every one of 16 dev examples gets the class" in done.err
    card = (tmp_path / "run" / "README.md").read_text()
    assert "## Restarts" in card and f"seed {found['kept_seed']} is best" in card
    kept = tmp_path / "run" / f"seed-{found['kept_seed']}" / "model.safetensors"
    assert kept.read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()
    tops = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    seeds = {f"seed-{number}" for number in range(3)}
    assert {path.name for path in (tmp_path / "run").iterdir()} == tops.keys() | seeds
    assert tops.keys() == {path.name for path in kept.parent.iterdir()}
    again = command("finetune", "--resume", "--out", tmp_path / "run")
    assert again.code == 0 and "finished already" in again.err
    # Stopped before its end by a version that put models into `student`, it ends with the same files.
    for seed in seeds:
        old_layout(tmp_path / "run" / seed)
    old_layout(tmp_path / "run")
    (tmp_path / "run" / "metrics.json").unlink()
    assert command("finetune", "--resume", "--out", tmp_path / "run").code == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == tops.keys() | seeds
    assert tops == {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}


def test_a_model_that_learns_is_not_trained_again(command, make_bert, tmp_path):
    rows = [(f"{('awful', 'great')[row % 2]} film {row}", ("bad", "good")[row % 2]) for row in range(80)]
    data = write_csv(tmp_path / "easy.csv", ("text", "label"), rows)
    done = command("finetune", "--model", make_bert(), "--data", data, "--restarts", 2, "--max-steps", 60,
                   "--epochs", 20, "--lr", 3e-3, "--batch-size", 16, "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    found = read(tmp_path / "run" / "metrics.json")
    assert [one["seed"] for one in found["restarts"]] == [0] and found["metrics"]["accuracy"] > 90
    done = command("evaluate", tmp_path / "run", "--data", data, "--json")
    assert done.code == 0 and "was trained on rows of" in done.err
    assert "was trained on" not in command("evaluate", tmp_path / "run", "--data", data, "--split", "test").err


def test_best_and_last_are_told(command, make_bert, reviews, tmp_path):
    done = command("finetune", "--model", make_bert(), "--data", reviews, "--max-steps", 4, "--eval-every", 1,
                   "--batch-size", 8, "--lr", 1e-3, "--verbose", "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    training = read(tmp_path / "run" / "metrics.json")["training"]
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    scored = [line["metrics"]["accuracy"] for line in log if "metrics" in line]
    assert training["dev_best"]["accuracy"] == max(scored) and training["dev_last"]["accuracy"] == scored[-1]
    assert f"dev accuracy: best {max(scored):.2f}, last {scored[-1]:.2f}" in done.out


def test_a_teachers_preset_is_for_fine_tuning(command, make_bert, reviews, tiny_teacher, tmp_path):
    preset = ("--preset", "cr-ild-teacher", "--max-steps", 1)
    done = command("finetune", "--model", make_bert(), "--data", reviews, *preset, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    written = (tmp_path / "run" / "run.toml").read_text()
    assert "lr = 2e-05" in written and "epochs = 3" in written and "batch_size = 32" in written
    done = command("distill", "--teacher", tiny_teacher, "--data", reviews, *preset, "--out", tmp_path / "x")
    assert done.code == 2 and "is for stillery finetune" in done.err


@pytest.mark.parametrize("labels", [None, ("negative",), ("nobody", "knows")])
def test_a_tasks_train_part_needs_no_labels(command, tiny_teacher, texts, tmp_path, labels):
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    rows = [
        (text.replace("\t", " "), *([labels[row % len(labels)]] if labels else [])) for row, text in enumerate(texts)
    ]
    head = ("sentence", "label") if labels else ("sentence",)
    (folder / "train.tsv").write_text("".join("\t".join(row) + "\n" for row in [head, *rows]))
    (folder / "dev.tsv").write_text("sentence\tlabel\nfine\tpositive\ndull\tnegative\n")
    ask = ("distill", "--teacher", tiny_teacher, "--task", "sst2", "--data-dir", tmp_path / "glue", "--layers", 1,
           "--method", "kd", "--max-steps", 1, "--out", tmp_path / "run")  # fmt: skip
    assert command(*ask).code == 2
    done = command(*ask, "--unlabelled")
    assert done.code == 0, done.err
    assert "40 train, 2 dev" in done.err and "accuracy" in done.out
    if labels is None:
        # Without a dev file it is held out of train, and then has no labels either.
        (folder / "dev.tsv").unlink()
        done = command(*ask[:-1], tmp_path / "other", "--unlabelled")
        assert done.code == 0 and "  agreement " in done.out


def test_labels_that_are_not_the_teachers_beside_texts_alone(command, tiny_teacher, texts, tmp_path):
    data = write_csv(tmp_path / "other.csv", ("text", "label"), [(text, row % 2) for row, text in enumerate(texts)])
    done = command("distill", "--teacher", tiny_teacher, "--data", data, "--unlabelled", "--layers", 1,
                   "--method", "kd", "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 2 and "without a label column, against the teacher" in done.err
