"""`stillery tasks`: the list, getting data, averages of runs."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stillery.data.tasks.load_task import GENERATION_TASKS, TASKS


@pytest.fixture(autouse=True)
def no_hub(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "RTE").mkdir(parents=True)
    (folder / "RTE" / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n")
    (folder / "sst2").mkdir()
    pq.write_table(pa.table({"sentence": ["a", "b"], "label": [0, 1]}), folder / "sst2" / "train.parquet")
    return folder


@pytest.fixture
def run_of(tmp_path):
    """A finished run as far as the average looks at it."""

    def make(name: str, task: str, **more: object):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        metrics = {key: value for key, value in more.items() if key != "also"}
        content = {"task": task, "metrics": metrics} | ({"also": more["also"]} if "also" in more else {})
        (folder / "metrics.json").write_text(json.dumps(content))
        return folder

    return make


def test_the_list(command, data):
    done = command("tasks", "--data-dir", data)
    assert (done.code, done.err) == (0, "")
    said = done.out
    assert all(f"\n{name} " in f"\n{said}" for name in (*TASKS, *GENERATION_TASKS))
    assert "f1, accuracy; data: not on this machine" in said
    assert "accuracy; data: dev from RTE in the data folder (dev.tsv)" in said
    assert "accuracy; out of domain for mnli models" in said
    listed = {task["name"]: task for task in command("tasks", "--data-dir", data, "--json").json}
    assert list(listed) == [*TASKS, *GENERATION_TASKS]
    assert [name for name, task in listed.items() if task["writes_text"]] == list(GENERATION_TASKS)
    assert listed["dart"]["metrics"] == ["bleu", "chrf"] and listed["dart"]["labels"] is None
    assert listed["sst2"]["splits"] == ["train"] and listed["sst2"]["labels"] == ["negative", "positive"]
    assert listed["stsb"]["labels"] is None and listed["cola"]["found"] is None
    done = command("tasks", "--data-dir", data / "nowhere")
    assert done.code == 2 and done.err.endswith("nowhere: no such folder\n")


def test_fetch_says_in_one_line_why_not(command):
    done = command("tasks", "fetch", "sst2")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "stillery: sst2 cannot be downloaded (HF_HUB_OFFLINE is set): give --data-dir DIR with DIR/SST-2/train.tsv "
        "or DIR/sst2/train.parquet\n"
    )
    done = command("tasks", "fetch", "paws", "stb2", "sst2")
    assert done.code == 2 and len(done.err.splitlines()) == 2
    assert "paws is not on the hub: give --data-dir" in done.err and "did you mean 'stsb'" in done.err


def test_a_task_without_data_is_one_line(command, tiny_teacher, tmp_path):
    done = command("finetune", "--model", tiny_teacher, "--task", "sst2", "--out", tmp_path / "out")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "stillery: sst2: no data found (HF_HUB_OFFLINE is set): give --data-dir DIR with DIR/SST-2/train.tsv or "
        "DIR/sst2/train.parquet, or download it with `stillery tasks fetch sst2`\n"
    )
    assert not (tmp_path / "out").exists()


def test_the_environment_of_the_hub_is_heeded(stillery, tmp_path):
    done = stillery("tasks", "fetch", "rte", HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "home"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("stillery: rte cannot be downloaded (HF_HUB_OFFLINE is set): give --data-dir DIR")


def test_the_average_of_runs(command, run_of):
    runs = [
        run_of("sst2-1", "sst2", accuracy=90.0),
        run_of("sst2-2", "sst2", accuracy=92.0),
        run_of("mrpc", "mrpc", f1=88.0, accuracy=84.0),
        run_of("mnli", "mnli", accuracy=80.0, also={"dev_mismatched": {"metrics": {"accuracy": 82.0}}}),
        run_of("own", "reviews.csv", accuracy=99.0),
    ]
    found = command("tasks", "average", *runs, "--json").json
    assert found["columns"] == {"sst2": 91, "mrpc": 86, "mnli": 81} and found["average"] == 86
    assert found["runs"] == {"sst2": 2, "mrpc": 1, "mnli": 1, "mnli-mm": 1}
    assert found["missing"] == ["cola", "stsb", "qqp", "qnli", "rte"]
    (left_out,) = found["left_out"]
    assert left_out.endswith("own (reviews.csv)")
    found = command("tasks", "average", *runs, "--style", "ild-rtc", "--json").json
    assert found["columns"] == {"sst2": 91, "mrpc": 88, "mnli": 80, "mnli-mm": 82} and found["average"] == 85.25
    done = command("tasks", "average", *runs)
    assert (done.code, done.err) == (0, "")
    assert "  sst2        91.00  (mean of 2 runs)\n" in done.out
    assert "  average     86.00  (of 3 columns)\n" in done.out
    assert "missing: cola, stsb, qqp, qnli, rte\n" in done.out


def test_evaluations_printed_as_json_can_be_averaged(command, tmp_path):
    files = []
    for task, value in (("scitail", 70.0), ("paws", 40.0), ("imdb", 85.0)):
        files.append(tmp_path / f"{task}.json")
        files[-1].write_text(json.dumps({"task": task, "metrics": {"accuracy": value}}))
    found = command("tasks", "average", *files, "--style", "out-of-domain", "--json").json
    assert (found["average"], found["missing"]) == (65, [])


def test_wrong_runs_are_one_line_each(command, run_of, tmp_path):
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    wrong = [tmp_path / "unfinished", tmp_path / "broken.json", tmp_path / "list.json", tmp_path / "nowhere"]
    done = command("tasks", "average", run_of("sst2", "sst2", accuracy=90.0), *wrong)
    said = done.err.splitlines()
    assert (done.code, done.out, len(said)) == (2, "", 4)
    for line, words in zip(said, ("no finished run", "as JSON", "no task with metrics", "no such run"), strict=True):
        assert words in line
    done = command("tasks", "average", run_of("own", "reviews.csv", accuracy=99.0))
    assert done.code == 2 and "no run on a task of the style glue" in done.err
    done = command("tasks", "average", run_of("old", "mrpc", accuracy=99.0))
    assert done.code == 2 and "mrpc: no f1 among its metrics (accuracy)" in done.err
    done = command("tasks", "average", run_of("one", "sst2", accuracy=99.0), "--style", "gluue")
    assert done.code == 2 and "did you mean 'glue'" in done.err


@pytest.mark.parametrize(("name", "options"), [("fetch", ("json",)), ("average", ("style", "json"))])
def test_help(command, name, options):
    said = command("tasks", name, "--help").out
    assert all(f"--{option}" in said for option in options)
    assert name in command("tasks", "--help").out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"task": "rte", "metrics": {"accuracy": "high"}}, "accuracy is 'high', not a number"),
        ({"task": "rte", "metrics": {"accuracy": None}}, "accuracy is 'None', not a number"),
        ({"task": "mnli", "metrics": {"accuracy": 80}, "also": {"dev_mismatched": {"metrics": [1]}}}, "not a number"),
    ],
)
def test_scores_that_are_no_numbers(command, tmp_path, content, said):
    (tmp_path / "scores.json").write_text(json.dumps(content))
    done = command("tasks", "average", tmp_path / "scores.json")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert said in done.err


def test_a_run_whose_metrics_are_broken(command, run_of):
    run = run_of("rte", "rte", accuracy=60.0)
    (run / "metrics.json").write_text('{"task": "r')
    done = command("tasks", "average", run)
    assert (done.code, len(done.err.splitlines())) == (2, 1) and "not as a run writes it" in done.err


def test_names_of_tasks_in_another_case(command, tiny_teacher, data):
    done = command("evaluate", tiny_teacher, "--task", "RTE", "--data-dir", data)
    assert done.code == 2 and "no task 'RTE'; did you mean 'rte'?" in done.err
    done = command("tasks", "fetch", "WebNLG")
    assert done.code == 2 and "no task 'WebNLG'; did you mean 'webnlg'?" in done.err


def test_which_of_two_models_does_not_fit(command, make_bert, tiny_teacher, data):
    labels = {0: "entailment", 1: "not_entailment"}
    model = make_bert(id2label=labels, label2id={name: index for index, name in labels.items()})
    done = command("evaluate", model, "--task", "rte", "--data-dir", data, "--against", tiny_teacher)
    assert done.code == 2 and f"--against {tiny_teacher}: the model's labels (negative, positive)" in done.err
