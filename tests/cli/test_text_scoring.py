"""How texts that a model wrote are scored and shown: checked first, named, and told apart from classes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from csv_files import read_csv, write_csv
from sklearn.metrics import accuracy_score, f1_score
from test_text_runs import SHORT, SMALL, ask, make_writer
from text_models import FAMILIES

from stillery.data.schema.examples import Examples
from stillery.data.tasks.glue import TASKS
from stillery.data.tasks.glue_as_text import label_words
from stillery.jobs.config.run_file import ask as asked_for
from stillery.jobs.config.settings import Finetune
from stillery.jobs.finetune import prepare_finetune
from stillery.jobs.kinds.base import Scored
from stillery.jobs.kinds.generation.scores import Written, text_evaluation
from stillery.jobs.prepared import tokenised


def write_tsv(path: Path, *rows: tuple[object, ...]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_writer(tmp_path_factory.mktemp("t5"), "t5", layers=2)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [(f"w{row} w{row + 1} w3", f"w3 w{row}") for row in range(60)]
    return write_csv(tmp_path_factory.mktemp("pairs") / "pairs.csv", ("source", "target"), rows)


@pytest.fixture(scope="module")
def rte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glue")
    for part in ("train", "dev"):
        rows = [(row, f"w{row} w2", f"w{row + 1}", ("entailment", "not_entailment")[row % 2]) for row in range(24)]
        write_tsv(folder / "RTE" / f"{part}.tsv", ("index", "sentence1", "sentence2", "label"), *rows)
    return folder


SEARCH = ("--beams", 1, "--max-new-tokens", 4, *SHORT)


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize(
    ("name", "said"),
    [("out.xlsx", "out.xlsx"), ("nowhere/out.csv", "does not exist"), ("out.txt", "no columns")],
)
def test_where_predictions_go_is_looked_at_first(
    command, t5, pairs, tiny_teacher, reviews, tmp_path, monkeypatch, writes, name, said
):
    def never(*_, **__):
        raise AssertionError("the model was asked before the file was looked at")

    monkeypatch.setattr("stillery.jobs.kinds.generation.scores.generate", never)
    monkeypatch.setattr("stillery.jobs.kinds.classification.scores.predict_logits", never)
    model, data = (t5, pairs) if writes else (tiny_teacher, reviews)
    done = command("evaluate", model, "--data", data, "--predictions", tmp_path / name)
    assert done.code == 2 and said in done.err and len(done.err.splitlines()) == 1
    done = command("evaluate", model, "--data", data, "--predictions", data)
    assert done.code == 2 and "is the input file" in done.err


def test_where_submissions_and_new_labels_go_is_looked_at_first(command, make_bert, rte, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("the model was asked before the place was looked at")

    monkeypatch.setattr("stillery.jobs.kinds.classification.scores.predict_logits", never)
    monkeypatch.setattr("stillery.jobs.kinds.classification.predicting.predict_logits", never)
    labels = {0: "entailment", 1: "not_entailment"}
    model = make_bert(id2label=labels, label2id={name: index for index, name in labels.items()})
    write_tsv(rte / "RTE" / "test.tsv", ("index", "sentence1", "sentence2"), (0, "a", "b"))
    (tmp_path / "file").write_text("x")
    done = command("evaluate", model, "--task", "rte", "--data-dir", rte, "--submission", tmp_path / "file" / "glue")
    assert done.code == 2 and "is a file; give a folder" in done.err
    (tmp_path / "RTE.tsv").write_text("years of work")
    done = command("evaluate", model, "--task", "rte", "--data-dir", rte, "--submission", tmp_path)
    assert done.code == 2 and f"--submission: {tmp_path / 'RTE.tsv'} is there already" in done.err
    with pytest.raises(AssertionError, match="before the place"):
        command("evaluate", model, "--task", "rte", "--data-dir", rte, "--submission", tmp_path, "--overwrite")
    data = write_csv(tmp_path / "in.csv", ("text",), [("some text",)])
    done = command("predict", model, "--data", data, "--out", tmp_path / "out.xlsx")
    assert done.code == 2 and "out.xlsx" in done.err


def test_a_classifiers_predictions_in_the_format_of_their_suffix(command, tiny_teacher, reviews, tmp_path):
    done = command("evaluate", tiny_teacher, "--data", reviews, "--predictions", tmp_path / "out.csv")
    assert done.code == 0, done.err
    rows = read_csv(tmp_path / "out.csv")
    assert len(rows) == 160 and rows[0].keys() == {"id", "label", "prediction", "probabilities"}
    assert {row["prediction"] for row in rows} <= {"negative", "positive"}


@pytest.mark.parametrize(
    "given",
    [
        ["--beams", 2], ["--max-new-tokens", 7], ["--min-new-tokens", 2], ["--length-penalty", 2],
        ["--no-repeat-ngram", 3], ["--source", "text"], ["--target", "label"], ["--prompt", "{source}"],
        ["--prefix", "say: "], ["--max-target-length", 9],
    ],
)  # fmt: skip
def test_a_classifier_is_not_told_how_to_write(command, tiny_teacher, reviews, given):
    done = command("evaluate", tiny_teacher, "--data", reviews, *given)
    assert done.code == 2 and len(done.err.splitlines()) == 1
    assert f"{given[0]} is for models that generate text" in done.err


def test_a_writer_is_not_told_about_labels(command, t5, pairs, rte, tmp_path):
    done = command("evaluate", t5, "--data", pairs, "--text", "source", "--label-separator", ";")
    assert done.code == 2
    assert "--text is for classifiers" in done.err and "--label-separator is for classifiers" in done.err
    done = command("evaluate", t5, "--data", pairs, "--submission", tmp_path / "glue")
    assert done.code == 2 and "--submission is for classifiers" in done.err
    done = command("evaluate", t5, "--data", pairs, "--unlabelled")
    assert done.code == 2 and "--unlabelled is for stillery distill" in done.err
    done = command("evaluate", t5, "--task", "rte", "--data-dir", rte, "--source", "sentence1")
    assert done.code == 2 and "--source cannot go with --task" in done.err


@pytest.mark.parametrize("size", [3, 40])
def test_the_dev_part_is_scored_in_batches_of_the_run(t5, pairs, size):
    given = {"model": str(t5), "data": str(pairs), "batch_size": size, "max_steps": 1, "beams": 1}
    prepared = prepare_finetune(asked_for(Finetune, given))
    rows = []
    prepared.model.register_forward_pre_hook(
        lambda module, args, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    score = prepared.kind.scorer(prepared, tokenised(prepared))
    assert score(prepared.model)["log_likelihood"] < 0
    assert sum(rows) == 6 and max(rows) == min(size, 6)


def test_the_part_is_named(command, t5, pairs, tmp_path):
    (tmp_path / "multi30k").mkdir()
    for part, count in (("train", 9), ("dev", 2), ("test", 3)):
        write_csv(tmp_path / "multi30k" / f"{part}.csv", ("en", "de"), [(f"w{row}", "w2") for row in range(count)])
        write_csv(tmp_path / f"{part}.csv", ("source", "target"), [(f"w{row}", "w1") for row in range(count)])
    task = ("--task", "multi30k-en-de", "--data-dir", tmp_path)
    done = command("evaluate", t5, *task, *SEARCH)
    assert done.code == 0 and done.out.startswith("multi30k-en-de: 3 test examples\n")
    assert "multi30k-en-de is read from multi30k in the data folder" in done.err
    assert command("evaluate", t5, *task, *SEARCH, "--split", "dev", "--json").json["split"] == "dev"
    (tmp_path / "multi30k" / "test.csv").unlink()
    assert command("evaluate", t5, *task, *SEARCH, "--json").json["split"] == "dev"
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "test.csv").rename(folder / "test.csv")
    assert command("evaluate", t5, "--data", folder, *SEARCH, "--json").json["split"] == "test"
    assert "split" not in command("evaluate", t5, "--data", folder / "test.csv", *SEARCH, "--json").json


def test_the_part_of_a_classifiers_folder_is_named(command, tiny_teacher, tmp_path):
    rows = [("fine", "positive"), ("dull", "negative")]
    write_csv(tmp_path / "dev.csv", ("text", "label"), rows)
    assert command("evaluate", tiny_teacher, "--data", tmp_path).out.splitlines()[0].endswith(": 2 dev examples")
    write_csv(tmp_path / "test.csv", ("text", "label"), [*rows, ("good", "positive")])
    assert command("evaluate", tiny_teacher, "--data", tmp_path, "--json").json["split"] == "test"


@pytest.mark.parametrize("task", ["rte", "mrpc", "sst2"])
def test_written_classes_are_scored_as_scikit_learn_does(task, tmp_path):
    words = {"rte": ("entailment", "not_entailment"), "mrpc": ("not_equivalent", "equivalent"),
             "sst2": ("negative", "positive")}[task]  # fmt: skip
    assert label_words(TASKS[task]) == words
    gold = np.array([0, 0, 0, 1, 1, 1, 1, 1, 0, 1])
    # Seven classes, two of them wrong, then three texts that name none and so are wrong whatever the class.
    outputs = [words[0], words[0], words[1], words[1], words[1], words[1], words[0], "rubbish", "", f"{words[1]} w1"]
    guess = np.array([0, 0, 1, 1, 1, 1, 0, 0, 1, 0])
    columns = {"source": pa.array(["x"] * 10, pa.large_string())}
    examples = Examples(ids=tuple(map(str, range(10))), columns=columns, source="made up")
    scored = Scored(task=task, split="dev", examples=examples, labels=TASKS[task].labels, words=words, gold=gold,
                        metrics=TASKS[task].metrics)  # fmt: skip
    found = text_evaluation(scored, Written(outputs=outputs, per_second=1.0, loss=None), None)
    assert found["metrics"]["accuracy"] == pytest.approx(50.0) == pytest.approx(100 * accuracy_score(gold, guess))
    if task == "mrpc":
        assert found["metrics"]["f1"] == pytest.approx(100 * f1_score(gold, guess), abs=1e-3)
    assert found["no_label"] == 3


def test_the_classes_of_a_file_are_those_of_its_labels(command, rte, tmp_path, monkeypatch):
    # A model that always writes the right word is always right, and one that writes the other never is.
    t5 = make_writer(tmp_path / "t5", "t5", layers=2, words=("entailment", "not_entailment"))
    words = ["entailment", "not_entailment"] * 12
    for right, accuracy in ((words, 100.0), (words[::-1], 0.0)):
        monkeypatch.setattr("stillery.jobs.kinds.generation.scores.generate", lambda *_, right=right, **__: list(right))
        done = command("evaluate", t5, "--task", "rte", "--data-dir", rte, *SEARCH, "--json")
        assert done.code == 0, done.err
        assert done.json["metrics"]["accuracy"] == accuracy and done.json["no_label"] == 0


def test_bleu_and_chrf_are_those_of_sacrebleus_own_command(command, t5, tmp_path):
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    rows = [{"source": f"w{row} w{row + 1}", "target": ["w1", "w2"]} for row in range(30)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ("evaluate", t5, "--data", data, "--beams", 2, "--max-new-tokens", 8, *SHORT)
    assert command(*asked, "--predictions", out).code == 0
    # Right texts near what the model writes, now the first of them, now the second.
    for row, line in zip(rows, out.read_text().splitlines(), strict=True):
        near, far = json.loads(line)["output"] + " w5 w6", f"w{len(line) % 7} w8"
        row["target"] = [near, far] if int(row["source"].split()[0][1:]) % 3 else [far, near]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = command(*asked, "--predictions", out, "--overwrite", "--json")
    assert done.code == 0, done.err
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["references"] for row in written] == [row["target"] for row in rows]
    (tmp_path / "system").write_text("".join(row["output"] + "\n" for row in written))
    for number in (0, 1):
        (tmp_path / f"reference{number}").write_text("".join(row["references"][number] + "\n" for row in written))
    command_line = [sys.executable, "-m", "sacrebleu", tmp_path / "reference0", tmp_path / "reference1", "-i",
                    tmp_path / "system", "-m", "bleu", "chrf", "-w", "6"]  # fmt: skip
    theirs = subprocess.run(command_line, capture_output=True, text=True, timeout=120)
    assert theirs.returncode == 0, theirs.stderr
    for metric in json.loads(theirs.stdout):
        name = metric["name"].lower().rstrip("2")
        assert done.json["metrics"][name] == pytest.approx(metric["score"], abs=1e-4), name
        assert 10 < metric["score"] < 100
        assert metric["signature"] in done.json["signatures"][name]
    shown = command(*asked, "--verbose").out
    assert all(signature in shown for signature in done.json["signatures"].values())


def test_speed_and_texts_that_name_no_class_are_shown(command, t5, pairs, rte, tmp_path):
    task = ("--task", "rte", "--data-dir", rte)
    done = command("finetune", "--model", t5, *task, *SMALL, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert f"counted as wrong: {found['no_label']}\n" in done.out
    # One forward pass says little of how fast a text is generated.
    cost = found["cost"]
    assert found["texts_per_second"] > 0 and (cost["generation_batch"], cost["generation_beams"]) == (8, 2)
    assert f" MB, {cost['texts_per_second']:.1f} texts a second (2 beams, batches of 8), trained" in done.out
    assert " ms " not in done.out
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"Texts that name no class, which count as wrong: {found['no_label']}." in card
    assert f"Speed: {cost['texts_per_second']:.1f} texts a second (2 beams, batches of 8)." in card
    done = command("evaluate", tmp_path / "run", *task, *SEARCH, "--against", t5)
    shown = [line for line in done.out.splitlines() if "teacher" in line]
    assert any("counted as wrong" in line for line in shown) and any("a second" in line for line in shown)
    done = command("evaluate", t5, "--data", pairs, *SEARCH)
    assert "texts written a second" in done.out and "name no class" not in done.out


@pytest.mark.parametrize("job", ["finetune", "distill", "evaluate"])
def test_what_scores_texts_is_looked_for_before_anything_is_trained(
    command, t5, pairs, rte, tmp_path, monkeypatch, job
):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    out = tmp_path / "run"
    if job == "evaluate":
        done = command("evaluate", t5, "--data", pairs, *SEARCH)
    else:
        more = ("--layers", 1) if job == "distill" else ()
        done = command(*ask(job, t5, pairs, out, *more))
    assert done.code == 2 and len(done.err.splitlines()) == 1 and not out.exists()
    assert 'pip install "stillery[generation]"' in done.err
    if job == "evaluate":
        # Texts that name classes need no BLEU.
        assert command("evaluate", t5, "--task", "rte", "--data-dir", rte, *SEARCH).code == 0


def test_a_run_that_goes_on_may_search_otherwise(command, t5, pairs, tmp_path):
    out = tmp_path / "run"
    assert command(*ask("finetune", t5, pairs, out)).code == 0
    weights = (out / "model.safetensors").read_bytes()
    done = command(*ask("finetune", t5, pairs, out, "--beams", 1, "--resume"))
    assert done.code == 2 and "finished with another --beams" in done.err and "stillery evaluate" in done.err
    (out / "metrics.json").unlink()
    done = command(*ask("finetune", t5, pairs, out, "--beams", 1, "--lr", 1, "--resume"))
    assert done.code == 2 and "holds another run (it differs in beams, lr)" in done.err
    done = command(*ask("finetune", t5, pairs, out, "--beams", 1))
    assert done.code == 2 and "holds another run (it differs in beams)" in done.err
    done = command(*ask("finetune", t5, pairs, out, "--beams", 1, "--resume"))
    assert done.code == 0, done.err
    assert "its texts are searched for with the --beams given now" in done.err
    assert json.loads((out / "metrics.json").read_text())["decoding"]["beams"] == 1
    assert "beams = 1\n" in (out / "run.toml").read_text()
    assert (out / "model.safetensors").read_bytes() == weights
    # A file that is older than a setting means its default.
    older = [line for line in (out / "run.toml").read_text().splitlines() if not line.startswith("no_repeat_ngram")]
    (out / "run.toml").write_text("\n".join(older) + "\n")
    assert command(*ask("finetune", t5, pairs, out, "--beams", 1, "--resume")).code == 0


def test_texts_to_learn_from_are_searched_for_as_before(command, t5, pairs, tmp_path):
    out = tmp_path / "run"
    run = ask("distill", t5, pairs, out, "--layers", 1, "--method", "none", "--sequence-level")
    assert command(*run).code == 0
    (out / "metrics.json").unlink()
    done = command(*run, "--beams", 1, "--resume")
    assert done.code == 2 and "holds another run (it differs in beams)" in done.err


@pytest.mark.parametrize("family", FAMILIES)
def test_a_models_card_shows_how_to_write_what_was_scored(command, pairs, tmp_path, capsys, family):
    # Weights so large that what is written depends on what is read.
    model = make_writer(tmp_path / "model", family, layers=2, initializer_range=0.5, init_std=0.5)
    settings = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps(settings | {"repetition_penalty": 3.0, "min_length": 3}))
    around = ("--prompt", "translate : {source} answer :") if family in ("gpt2", "llama") else ("--prefix", "answer : ")
    done = command("finetune", "--model", model, "--data", pairs, "--max-steps", 2,
                   "--beams", 2, "--max-new-tokens", 7, "--no-repeat-ngram", 2, *SHORT, *around,
                   "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"pipeline_tag: {'text-generation' if family in ('gpt2', 'llama') else 'text2text-generation'}\n" in card
    code = card.split("```python\n")[1].split("```")[0].replace("THIS_FOLDER", str(tmp_path / "run"))
    rows = pq.read_table(tmp_path / "run" / "predictions.parquet").to_pylist()
    assert len({row["output"] for row in rows}) > 1
    for row in rows[:4]:
        capsys.readouterr()
        exec(code.replace("some text", row["source"]), {})
        assert capsys.readouterr().out == f"{row['output']}\n"


def test_a_card_of_two_stacks_and_of_a_translation(command, t5, pairs, tmp_path):
    more = ("--method", "kd", "--beams", 1, "--max-new-tokens", 4, *SHORT, "--max-steps", 1, "--out")
    done = command("distill", "--teacher", t5, "--data", pairs, "--layers", 1, *more, tmp_path / "one")
    assert done.code == 0, done.err
    assert "# 1+1-layer student, distilled with kd" in (tmp_path / "one" / "README.md").read_text()
    (tmp_path / "multi30k").mkdir()
    for part in ("train", "val"):
        rows = [{"en": f"w{row} w3", "de": f"w{row}"} for row in range(8)]
        (tmp_path / "multi30k" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = command("distill", "--teacher", t5, "--task", "multi30k-en-de", "--data-dir", tmp_path, "--layers", 1,
                   *more, tmp_path / "two")  # fmt: skip
    assert done.code == 0, done.err
    card = (tmp_path / "two" / "README.md").read_text()
    assert "pipeline_tag: translation\n" in card and "'translate English to German: ' + source" in card


def test_rows_a_writer_was_trained_on_are_no_fair_score(command, t5, pairs, tmp_path):
    assert command(*ask("finetune", t5, pairs, tmp_path / "run", "--max-steps", 1)).code == 0
    for part, said in (((), 1), (("--split", "test"), 0)):
        done = command("evaluate", tmp_path / "run", "--data", pairs, *part, *SEARCH)
        assert done.code == 0, done.err
        assert done.err.count(f"was trained on rows of {pairs}; --split test scores those") == said
