"""Text from files (labels, names, ids) on the terminal, in model cards and in tables: never a command of its own."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from csv_files import write_csv

RED = "\x1b[31mred\x1b[0m"
HTML = "<img src=x onerror=alert(1)>"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_no_control_character_of_a_file_reaches_the_terminal(texts, make_bert, tiny_teacher: Path, command) -> None:
    labels = (RED, "\x9b2Jblue\u202e")
    model = make_bert(id2label=dict(enumerate(labels)), label2id={label: place for place, label in enumerate(labels)})
    named = Path(f"a{RED}.csv")
    write_csv(named, ("text", "label"), [(text, labels[row % 2]) for row, text in enumerate(texts)])
    write_csv(Path("ids.csv"), ("id", "text", "label"), [(RED, text, "positive") for text in texts])
    lines = [
        ("evaluate", model, "--data", named, "--per-class"),
        ("evaluate", tiny_teacher, "--data", named),
        ("evaluate", tiny_teacher, "--data", "ids.csv"),
        ("evaluate", RED, "--data", named),
        ("layers", model),
        ("finetune", "--model", model, "--data", named, "--out", f"out{RED}", "--max-steps", "1"),
        ("distill", "--teacher", model, "--data", named, "--out", "new", "--method", RED),
        ("study", f"{RED}.toml", "--out", "new"),
    ]
    for line in lines:
        done = command(*line)
        assert "[31mred" in done.out + done.err, line
        assert not CONTROL.search(done.out + done.err), line


FORMULA = "=cmd('calc')!A1"


def test_html_in_names_does_not_reach_a_card_and_a_formula_not_a_table_for_people(texts, make_bert, command) -> None:
    model = Path(make_bert()).rename(f"a`{HTML}`")
    data = Path(f"[x](javascript:1) {HTML}.csv")
    write_csv(data, ("text", "label"), [(text, ("bad", HTML)[row % 2]) for row, text in enumerate(texts)])
    done = command("finetune", "--model", model, "--data", data, "--out", FORMULA, "--max-steps", "1")
    assert done.code == 0, done.err
    card = (Path(FORMULA) / "README.md").read_text(encoding="utf-8")
    shown = re.sub(r"(?s)```.*?```|`[^`\n]*`", "", card)
    assert "&lt;img src=x" in shown
    assert "<img" not in shown and "](" not in shown

    shutil.copytree(FORMULA, "plain")
    done = command("compare", FORMULA, "plain", "--out", "table.csv")
    assert done.code == 0, done.err
    with Path("table.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.reader(file))
    assert table[1][0] == f"'{FORMULA}"
    assert command("compare", FORMULA, "plain", "--out", "table.jsonl").code == 0
    assert json.loads(Path("table.jsonl").read_text().splitlines()[0])["name"] == FORMULA


def test_predictions_hold_a_text_as_it_is(tiny_teacher: Path, command) -> None:
    write_csv(Path("new.csv"), ("text",), [(FORMULA,), ("a dull film",)])
    done = command("predict", tiny_teacher, "--data", "new.csv", "--out", "predicted.csv")
    assert done.code == 0, done.err
    with Path("predicted.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.DictReader(file))["text"] == FORMULA


def test_more_than_a_thousand_classes_are_right_if_the_user_says_so(texts, make_bert, command) -> None:
    rows = [(f"{texts[row % 40]} {row}", f"class {row % 1100}") for row in range(3300)]
    write_csv(Path("many.csv"), ("text", "label"), rows)
    asked = ("finetune", "--model", make_bert(), "--data", "many.csv", "--max-steps", "1", "--out")
    done = command(*asked, "out")
    assert done.code == 2 and done.err == (
        "stillery: many.csv: the label column holds 1100 different values in 3300 rows; choose another "
        "column with --label, or use --max-classes 1100 if they are the classes\n"
    )
    assert command(*asked, "out", "--max-classes", "1000").code == 2
    done = command(*asked, "out", "--max-classes", "1100")
    assert done.code == 0, done.err
    assert len(json.loads(Path("out/config.json").read_text())["id2label"]) == 1100
