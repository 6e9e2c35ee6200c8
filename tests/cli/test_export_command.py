"""`stillery export`: what is written, what the gate compares, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from csv_files import read_csv, write_csv
from hub_server import serving
from tagging_models import conll, tagged
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, BertConfig, GPT2Config
from transformers import GPT2LMHeadModel as Generator

import stillery
from stillery.deploy import speed
from stillery.deploy.onnx_model import OnnxModel
from stillery.errors import UserError
from stillery.jobs import push

pytest.importorskip("onnxruntime")

NAMES = {0: "negative", 1: "positive"}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}

Break = Callable[[Any], None]


@pytest.fixture(scope="module")
def exported(tiny_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny teacher as ONNX and int8."""
    out = tmp_path_factory.mktemp("exported") / "onnx"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "_SECONDS", 0.5)
        stillery.export(tiny_teacher, data=reviews, out=out, int8=True, quiet=True)
    return out


@pytest.fixture
def outliers(tmp_path: Path, tokenizer: Any, reviews: Path) -> Callable[[Break], Path]:
    """A BERT of 2 layers whose states are 0 in one place, where weights may be as large as one likes.

    It gives half of the reviews each class, by small differences.
    """
    texts = tokenizer([row["text"] for row in read_csv(reviews)], padding=True, truncation=True, max_length=64)

    def make(broken: Break) -> Path:
        torch.manual_seed(1)
        options = {"max_position_embeddings": 64, "id2label": NAMES, "label2id": {"negative": 0, "positive": 1}}
        model = AutoModelForSequenceClassification.from_config(BertConfig(**SMALL, **options, initializer_range=0.3))
        torch.nn.init.normal_(model.classifier.weight, std=1.0)
        norms = [model.bert.embeddings.LayerNorm]
        for layer in model.bert.encoder.layer:
            norms += [layer.attention.output.LayerNorm, layer.output.LayerNorm]
        with torch.no_grad():
            for norm in norms:
                norm.weight[0] = norm.bias[0] = 0
            broken(model)
            logits = model.eval()(**texts.convert_to_tensors("pt")).logits
            # Between the two examples in the middle, so that no example is on the border.
            model.classifier.bias[1] -= (logits[:, 1] - logits[:, 0]).sort().values[79:81].mean()
        model.save_pretrained(tmp_path / "outliers")
        tokenizer.save_pretrained(tmp_path / "outliers")
        return tmp_path / "outliers"

    return make


def pooler_alone(model: Any) -> None:
    model.bert.pooler.dense.weight[:, 0] = 1000


def every_layer(model: Any) -> None:
    pooler_alone(model)
    for layer in model.bert.encoder.layer:
        own = layer.attention.self
        for linear in (own.query, own.key, own.value, layer.intermediate.dense):
            linear.weight[:, 0] = 1000


def test_the_folder_has_what_is_needed_to_run_the_model(exported: Path) -> None:
    names = {path.name for path in exported.iterdir()}
    assert names == {
        "model.onnx", "model.int8.onnx", "tokenizer.json", "tokenizer_config.json", "config.json", "example.py",
        "export.json", "README.md",
    }  # fmt: skip
    assert json.loads((exported / "config.json").read_text())["id2label"] == {"0": "negative", "1": "positive"}
    for file in ("model.onnx", "model.int8.onnx", "export.json", "README.md"):
        assert str(Path(torch.__file__).parent.parent).encode() not in (exported / file).read_bytes()
    record = json.loads((exported / "export.json").read_text())
    assert record["onnx"]["agreement"] == 100 and record["onnx"]["largest_difference"] < 1e-4
    assert record["int8"]["agreement"] >= 98 and record["int8"]["largest_difference"] > 1e-4
    assert record["examples"] == {"task": "reviews.csv", "split": None, "count": 160}
    assert record["int8"]["megabytes"] < 0.5 * record["onnx"]["megabytes"]
    assert {one["batch"] for one in record["latency"]} == {1, 32}
    for one in record["latency"]:
        for model in ("checkpoint", "onnx", "int8"):
            assert 0 < one[model]["median_ms"] <= one[model]["p95_ms"] and one[model]["batches"] >= 5


def test_any_batch_and_length_gives_the_checkpoints_logits(exported: Path, tiny_teacher: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(tiny_teacher).eval()
    onnx = OnnxModel(exported / "model.onnx", model.config)
    random = torch.Generator().manual_seed(0)
    for size, length in [*((2, length) for length in range(1, 65)), *((size, 9) for size in range(1, 34))]:
        lengths = torch.randint(1, length + 1, (size, 1), generator=random)
        lengths[-1] = length
        mask = (torch.arange(length) < lengths).long()
        batch = {
            "input_ids": torch.randint(5, 999, (size, length), generator=random) * mask,
            "attention_mask": mask,
            "token_type_ids": (torch.arange(length) >= lengths // 2).long() * mask,
        }
        with torch.no_grad():
            assert torch.allclose(onnx(**batch).logits, model(**batch).logits, atol=1e-5), (size, length)


ALONE = """
import runpy, sys
for name in ("torch", "transformers", "stillery"):
    sys.modules[name] = None
runpy.run_path("example.py")
"""


def test_the_example_runs_without_torch(exported: Path, command: Any, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=exported, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    write_csv(tmp_path / "new.csv", ["text"], [["some text"], ["another text"]])
    given = command(
        "predict", exported / "model.int8.onnx", "--data", tmp_path / "new.csv", "--out", tmp_path / "out.csv"
    )
    assert given.code == 0, given.err
    assert done.stdout.strip() == str([row["prediction"] for row in read_csv(tmp_path / "out.csv")])


def test_tokenizer_json_alone_gives_the_tokens_of_the_checkpoint(exported: Path, reviews: Path, tokenizer: Any) -> None:
    from tokenizers import Tokenizer

    texts = [row["text"] * 2 for row in read_csv(reviews)][:20]
    alone = Tokenizer.from_file(str(exported / "tokenizer.json")).encode_batch(texts)
    both = tokenizer(texts, truncation=True, max_length=64, padding=True)
    assert [one.ids for one in alone] == both["input_ids"]
    assert [one.attention_mask for one in alone] == both["attention_mask"]


def test_exports_are_scored_and_compared_with_their_checkpoint(
    exported: Path, tiny_teacher: Path, reviews: Path, command: Any
) -> None:
    done = command("evaluate", exported, "--against", tiny_teacher, "--data", reviews, "--json")
    assert done.code == 0, done.err
    assert done.json["agreement"] == 100 and done.json["metrics"] == done.json["teacher_metrics"]
    files = [tiny_teacher, exported, exported / "model.int8.onnx"]
    done = command("evaluate", *files, "--data", reviews, "--json")
    assert done.code == 0, done.err
    rows = done.json["models"]
    assert [row["layers"] for row in rows] == [4, 4, 4] and len({row["parameters"] for row in rows}) == 1
    assert rows[2]["megabytes"] < rows[1]["megabytes"]


def test_layers_that_int8_breaks_are_left_in_float32(outliers: Any, reviews: Path, tmp_path: Path, capsys: Any) -> None:
    found = stillery.export(
        outliers(pooler_alone), data=reviews, out=tmp_path / "out", int8=True, min_agreement_int8=90, latency=False
    )
    int8 = found.record["int8"]
    tried = [one["agreement"] for one in int8["tried"]]
    assert len(tried) == 4 and max(tried[:-1]) < 90 <= tried[-1] == int8["agreement"]
    assert len(int8["excluded"]) == 1 and int8["setting"] == "per tensor, 1 of 17 layers in float32"
    said = capsys.readouterr().err
    assert "int8 per tensor: agreement" in said and "int8 per channel, reduced range: agreement" in said


def test_an_int8_file_that_fails_is_refused_with_numbers(
    outliers: Any, reviews: Path, tmp_path: Path, command: Any
) -> None:
    model, out = outliers(every_layer), tmp_path / "out"
    line = ("export", model, "--onnx", "--int8", "--data", reviews, "--out", out, "--no-latency")
    done = command(*line, "--min-agreement-int8", 100)
    assert done.code == 2 and not list(tmp_path.glob(".stillery*")) and not out.exists()
    last = done.err.strip().splitlines()[-1]
    assert "model.int8.onnx, the best of" in last and "largest logit difference" in last and "accuracy" in last
    assert "--force" in last and "--min-agreement-int8" in last
    done = command(*line, "--min-agreement-int8", 100, "--force")
    assert done.code == 0 and "warning" in done.err, done.err
    record = json.loads((out / "export.json").read_text())
    assert record["int8"]["agreement"] < 100 and record["thresholds"]["forced"]


def test_words_are_tagged_as_by_the_checkpoint(tokenizer: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    tags = {0: "O", 1: "B-LOC", 2: "I-LOC", 3: "B-PER", 4: "I-PER"}
    config = BertConfig(
        **SMALL, max_position_embeddings=64, id2label=tags, label2id={tag: place for place, tag in tags.items()}
    )
    model = AutoModelForTokenClassification.from_config(config)
    torch.nn.init.normal_(model.classifier.weight, std=1.0)
    data = conll(tmp_path / "words.conll", tagged())
    out = tmp_path / "out"
    found = stillery.export(model, tokenizer=tokenizer, data=data, out=out, int8=True, latency=False, quiet=True)
    assert found.record["onnx"]["agreement"] == 100
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=out, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    words = ["some", "text", "in", "words"]
    inputs = tokenizer([words], is_split_into_words=True, return_tensors="pt")
    int8 = OnnxModel(out / "model.int8.onnx", config)
    logits = int8(**inputs).logits[0]
    first = [inputs.word_ids(0).index(place) for place in range(4)]
    assert done.stdout.split("\n")[:4] == [f"{words[at]} {tags[int(logits[first[at]].argmax())]}" for at in range(4)]


def test_an_export_is_uploaded_without_other_files(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    folder = exported.parent / "with-notes"
    shutil.copytree(exported, folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "seed-1").mkdir()
    uploads: dict[str, dict[str, bytes]] = {}
    with serving({}, uploads) as (url, _):
        monkeypatch.setattr(push, "ask", lambda work, **_: work())
        monkeypatch.setattr("huggingface_hub.HfApi", lambda: HfApi(endpoint=url, token="hf_given"))
        push.push(folder, "tiny-onnx")
    sent = uploads["someone/tiny-onnx"]
    assert {path.name for path in exported.iterdir()} == set(sent) - {".gitattributes"}
    assert sent["model.int8.onnx"] == (exported / "model.int8.onnx").read_bytes()


@pytest.mark.parametrize(
    ("config", "label", "metric", "shown"),
    [
        ({"num_labels": 1, "problem_type": "regression"}, lambda row: row / 10, "pearson", r"\[-?[\d.]+ +-?[\d.]+\]"),
        (
            {"id2label": {0: "a", 1: "b", 2: "c"}, "problem_type": "multi_label_classification"},
            lambda row: ("a", "a|c", "b")[row % 3], "f1_micro", r"\[\[.*\], \[.*\]\]",
        ),
    ],
)  # fmt: skip
def test_scores_and_several_labels_are_exported(
    config: Any, label: Any, metric: str, shown: str, texts: list[str], tokenizer: Any, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    sizes = SMALL | {"num_hidden_layers": 1, "initializer_range": 0.3}
    model = AutoModelForSequenceClassification.from_config(BertConfig(**sizes, **config))
    several = True if metric == "f1_micro" else None
    write_csv(tmp_path / "data.csv", ["text", "label"], [[text, label(row)] for row, text in enumerate(texts)])
    out = tmp_path / "out"
    found = stillery.export(
        model, tokenizer=tokenizer, data=tmp_path / "data.csv", multi_label=several, out=out, latency=False, quiet=True
    )
    assert found.metric == metric and found.record["onnx"]["agreement"] > 99.99
    assert found.record["onnx"]["measure"] == ("agreement" if several else "correlation")
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=out, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and re.fullmatch(shown, done.stdout.strip()), (done.stdout, done.stderr)


def test_existing_folders_are_kept(exported: Path, tiny_teacher: Path, reviews: Path, command: Any) -> None:
    line = ("export", tiny_teacher, "--onnx", "--data", reviews, "--out")
    done = command(*line, exported)
    assert done.code == 2 and "--overwrite" in done.err and len(done.err.splitlines()) == 1
    done = command(*line, reviews.parent, "--overwrite")
    assert done.code == 2 and "holds no export" in done.err
    assert reviews.is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--onnx is missing"),
        (("--onnx",), "give examples with --data or --task"),
        (("--onnx", "--data", "nowhere.csv"), "no such file"),
    ],
)
def test_slips_are_one_line(options: Any, said: str, tiny_teacher: Path, tmp_path: Path, command: Any) -> None:
    done = command("export", tiny_teacher, *options, "--out", tmp_path / "out")
    assert done.code == 2 and said in done.err and len(done.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_models_that_generate_text_are_refused(tokenizer: Any, reviews: Path, tmp_path: Path) -> None:
    config = GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=len(tokenizer))
    Generator(config).save_pretrained(tmp_path / "writer")
    tokenizer.save_pretrained(tmp_path / "writer")
    with pytest.raises(
        UserError, match="it writes encoders for classification, embedding and token classification"
    ) as error:
        stillery.export(tmp_path / "writer", data=reviews, out=tmp_path / "out")
    assert len(error.value.lines) == 1


def test_an_export_is_no_teacher(exported: Path, reviews: Path, tmp_path: Path, command: Any) -> None:
    done = command("distill", "--teacher", exported, "--data", reviews, "--layers", 1, "--out", tmp_path / "run")
    assert done.code == 2 and "an ONNX export" in done.err
    (tmp_path / "copy").mkdir()
    for name in ("config.json", "export.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "copy" / name).write_bytes((exported / name).read_bytes())
    (tmp_path / "copy" / "model.onnx").write_bytes(b"no graph")
    done = command("evaluate", tmp_path / "copy", "--data", reviews)
    assert done.code == 2 and "onnxruntime cannot read it" in done.err and len(done.err.splitlines()) == 1


def test_a_missing_package_is_named(
    tiny_teacher: Path, reviews: Path, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "onnx" else found(name, *more))
    done = command("export", tiny_teacher, "--onnx", "--data", reviews, "--out", tmp_path / "out")
    assert done.code == 2
    assert done.err.strip().endswith('ONNX files need onnx, which is not installed: pip install "stillery[onnx]"')


def test_a_run_is_compared_with_its_exports(
    tiny_teacher: Path, reviews: Path, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    stillery.distill(teacher=tiny_teacher, data=reviews, layers=1, max_steps=2, max_length=24, out=out, quiet=True)
    stillery.export(out, out=tmp_path / "onnx", int8=True, min_agreement_int8=50, latency=False, quiet=True)
    done = command("compare", "onnx", "run", "--json")
    assert done.code == 0, done.err
    assert "all models are scored on the test examples of run" in done.err
    found, recorded = done.json, json.loads((out / "metrics.json").read_text())
    rows = {row["name"]: row for row in found["models"]}
    assert list(rows) == ["model.onnx", "model.int8.onnx", "run"] and found["baseline"] == "run"
    assert found["split"] == "test" and found["examples"] == recorded["examples"]
    assert rows["run"]["value"] == rows["model.onnx"]["value"] == recorded["metrics"]["accuracy"]
    assert rows["model.int8.onnx"]["megabytes"] < rows["model.onnx"]["megabytes"]
    assert all(row["latency_ms"] > 0 for row in rows.values())
    one, int8 = found["differences"]
    assert (one["value"], one["interval"]) == (0, [0, 0]) and int8["interval"][0] <= int8["value"] <= int8["interval"][
        1
    ]
    # One file, from Python, against another baseline.
    with_int8 = stillery.compare([out, "onnx/model.int8.onnx"], baseline="onnx/model.int8.onnx", metric="f1_macro")
    assert with_int8.baseline == "model.int8.onnx" and [row["name"] for row in with_int8.rows] == [
        "run",
        "model.int8.onnx",
    ]
    done = command("compare", "onnx")
    assert done.code == 2 and "name the run that it was made from too" in done.err and len(done.err.splitlines()) == 1
