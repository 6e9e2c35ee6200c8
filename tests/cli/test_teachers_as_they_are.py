"""Models as people have them: of other tasks, adapters, folders of checkpoints, `.bin` weights."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from csv_files import read_csv, write_csv
from safetensors.torch import save_file
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForTokenClassification,
    BertModel,
    BitsAndBytesConfig,
    PreTrainedTokenizerBase,
    TorchAoConfig,
    Trainer,
    TrainingArguments,
)

from stillery.jobs.run_folder import model_files
from stillery.models.load_model import load_classifier

Save = Callable[..., Path]
Command = Callable[..., Any]

TAGS = ("O", "B-PER", "I-PER")
SENTENCES = "".join(f"Mary B-PER\nSmith I-PER\nsings O\nsong{number} O\n\n" for number in range(12))


@pytest.fixture
def save(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> Save:
    """Save a tiny BERT of a task as transformers does."""

    def write(name: str, task: Any, **changes: Any) -> Path:
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        folder = tmp_path / name
        torch.manual_seed(4)
        task(BertConfig(**shape, max_position_embeddings=64, **changes)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return write


@pytest.fixture
def tagger(save: Save) -> Path:
    names = dict(enumerate(TAGS))
    return save("tagger", BertForTokenClassification, id2label=names, label2id={tag: i for i, tag in names.items()})


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    path = tmp_path / "names.conll"
    path.write_text(SENTENCES, encoding="utf-8")
    return path


@pytest.fixture
def refused(command: Command, reviews: Path, tmp_path: Path) -> Callable[..., str]:
    """The one line that a model is refused with as a teacher, when it is scored, and when it predicts."""

    def line(model: Path, data: Path = reviews) -> str:
        lines = set()
        for arguments in (
            ("distill", "--teacher", model, "--data", data, "--layers", 1, "--out", tmp_path / "run"),
            ("evaluate", model, "--data", data),
            ("predict", model, "--data", data, "--out", tmp_path / "predicted.csv"),
        ):
            done = command(*arguments)
            assert done.code == 2, done.err
            (one,) = done.err.strip().splitlines()
            lines.add(one)
        assert not (tmp_path / "run").exists() and not (tmp_path / "predicted.csv").exists()
        (one,) = lines
        return one

    return line


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (BertForQuestionAnswering, "answers questions about a text (BertForQuestionAnswering), which is not supported"),
        (BertForMaskedLM, "is pretrained to fill in masked words (BertForMaskedLM)"),
    ],
)
def test_a_model_of_another_task(
    task: Any, said: str, save: Save, refused: Callable[..., str], command: Command, reviews: Path, tmp_path: Path
) -> None:
    model = save("model", task)
    line = refused(model)
    assert said in line and f"stillery finetune --model {model}" in line
    # What is advised works.
    run = command("finetune", "--model", model, "--data", reviews, "--max-steps", 1, "--out", tmp_path / "tuned")
    assert run.code == 0, run.err


def test_a_sentence_embedder(save: Save, refused: Callable[..., str]) -> None:
    """One that is read is tested in test_embedding.py."""
    model = save("embedder", BertModel)
    (model / "modules.json").write_text(json.dumps([{"idx": 0, "path": "", "type": "CLIPModel"}]), encoding="utf-8")
    assert "its modules are CLIPModel; supported are Transformer, Pooling" in refused(model)
    # In older folders the model is one below.
    inside = model / "0_Transformer"
    inside.mkdir()
    (model / "config.json").rename(inside / "config.json")
    assert "it holds models in 0_Transformer: give one of those" in refused(model)


def test_a_model_that_tags_words_is_given_whole_texts(
    tagger: Path, command: Command, reviews: Path, tmp_path: Path
) -> None:
    for arguments in (
        ("distill", "--teacher", tagger, "--data", reviews, "--layers", 1, "--out", tmp_path / "run"),
        ("evaluate", tagger, "--data", reviews),
    ):
        line = command(*arguments).err.strip()
        assert line.startswith(f"stillery: {tagger} tags words, and reviews.csv has no lists of words"), line
        assert f"stillery finetune --model {tagger}" in line and "\n" not in line
    line = command("predict", tagger, "--data", reviews, "--out", tmp_path / "predicted.csv").err.strip()
    assert line.startswith("stillery: the model tags words, and reviews.csv has no lists of words")


def test_a_head_for_tokens_is_no_start_of_one_for_texts(tagger: Path) -> None:
    loaded = load_classifier(str(tagger), labels=len(TAGS))
    assert {"classifier.weight", "classifier.bias"} <= loaded.missing


def test_a_classifier_is_given_tagged_words(tiny_teacher: Path, tagged: Path, command: Command, tmp_path: Path) -> None:
    for arguments in (
        ("distill", "--teacher", tiny_teacher, "--data", tagged, "--layers", 1, "--out", tmp_path / "run"),
        ("evaluate", tiny_teacher, "--data", tagged),
    ):
        line = command(*arguments).err.strip()
        assert "it classifies whole texts (BertForSequenceClassification)" in line, line
        assert "give labelled texts, or fine-tune it first on words with their tags" in line and "\n" not in line
    line = command("predict", tiny_teacher, "--data", tagged, "--out", tmp_path / "predicted.csv").err.strip()
    assert line.startswith(f"stillery: names.conll is for token classification, and {tiny_teacher} for classification")


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """A package is not installed."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == package else found(name, *more)
    )


def test_an_adapter_without_peft(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "peft")
    folder = tmp_path / "adapter"
    tokenizer.save_pretrained(folder)
    save_file({"base_model.model.x": torch.zeros(2)}, folder / "adapter_model.safetensors")
    described = {"peft_type": "LORA", "base_model_name_or_path": "bert-base-uncased", "task_type": "SEQ_CLS"}
    (folder / "adapter_config.json").write_text(json.dumps(described), encoding="utf-8")
    line = refused(folder)
    assert "a LORA adapter of bert-base-uncased, not a whole model; with peft installed it is merged" in line
    for damaged in ("[]", "{", "", "null", '{"peft_type": 3}'):
        (folder / "adapter_config.json").write_text(damaged, encoding="utf-8")
        assert f"{folder}: an adapter, not a whole model, and its adapter_config.json does not say" in refused(folder)


def test_an_adapter_is_merged_on_load(
    tiny_teacher: Path, tokenizer: PreTrainedTokenizerBase, reviews: Path, command: Command, tmp_path: Path,
    refused: Callable[..., str],
) -> None:  # fmt: skip
    peft = pytest.importorskip("peft")
    torch.manual_seed(3)
    # With a head of its own: three labels, where its base has two.
    base = AutoModelForSequenceClassification.from_pretrained(tiny_teacher, num_labels=3, ignore_mismatched_sizes=True)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    model = peft.get_peft_model(base, config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora" in name or "classifier" in name:
                weight.normal_(std=0.3)
    folder, whole = tmp_path / "adapter", tmp_path / "whole"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(whole)
    model.merge_and_unload().save_pretrained(whole)
    rows = [(row["text"], number % 3) for number, row in enumerate(read_csv(reviews))]
    data = write_csv(tmp_path / "three.csv", ("text", "label"), rows)
    found = [command("evaluate", one, "--data", data, "--json").json["metrics"] for one in (folder, whole)]
    assert found[0] == found[1]
    common = ("--data", data, "--layers", 1, "--max-steps", 1, "--max-length", 16)
    done = command("distill", "--teacher", folder, *common, "--out", tmp_path / "small")
    assert done.code == 0, done.err
    described = json.loads((folder / "adapter_config.json").read_text())
    for change, said in (
        ({"base_model_name_or_path": str(tmp_path / "no")}, "which is needed beside it"),
        ({"task_type": "QUESTION_ANS"}, "an adapter for QUESTION_ANS, which is no task of stillery"),
    ):
        (folder / "adapter_config.json").write_text(json.dumps(described | change))
        assert said in refused(folder, data)
    (folder / "adapter_config.json").write_text(json.dumps(described))
    (folder / "adapter_model.safetensors").write_bytes(b"no weights")
    assert "cannot be merged with" in refused(folder, data)


def test_a_checkpoint_of_a_plain_trainer(
    tiny_teacher: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, command: Command, reviews: Path
) -> None:
    Trainer(
        model=AutoModelForSequenceClassification.from_pretrained(tiny_teacher),
        args=TrainingArguments(tmp_path / "trained", max_steps=2, save_steps=1, report_to=[], use_cpu=True),
        train_dataset=[dict(tokenizer("some text"), labels=row % 2) for row in range(4)],
        processing_class=tokenizer,
    ).train()
    checkpoint = tmp_path / "trained" / "checkpoint-2"
    assert {"optimizer.pt", "trainer_state.json", "training_args.bin"} <= {path.name for path in checkpoint.iterdir()}
    common = ("--data", reviews, "--layers", 1, "--max-steps", 1, "--max-length", 16)
    done = command("distill", "--teacher", checkpoint, *common, "--out", tmp_path / "small")
    assert done.code == 0, done.err


@pytest.mark.parametrize("method", ["bitsandbytes", "torchao", "gptq"])
def test_quantised_weights_that_cannot_be_read(
    method: str, tiny_teacher: Path, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, method)
    folder = tmp_path / "quantised"
    shutil.copytree(tiny_teacher, folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "load_in_4bit": True, "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    line = refused(folder)
    assert "its weights are quantised" in line and "give the model that it was made from" in line
    assert ("pip install" in line) == (method != "gptq")


@pytest.mark.parametrize("method", ["bitsandbytes", "torchao"])
def test_a_quantised_teacher_is_read_as_float32(
    method: str, make_bert: Callable[..., Path], tokenizer: PreTrainedTokenizerBase, tmp_path: Path, command: Command,
    reviews: Path,
) -> None:  # fmt: skip
    pytest.importorskip(method)
    if method == "bitsandbytes":
        config: Any = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    else:
        quantization = pytest.importorskip("torchao.quantization")
        config = TorchAoConfig(quantization.Int8WeightOnlyConfig())
    names = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
    base = make_bert(hidden_size=64, intermediate_size=128, **names)
    folder, out = tmp_path / "quantised", tmp_path / "small"
    kept = AutoModelForSequenceClassification.from_pretrained(base, quantization_config=config, dtype=torch.float32)
    kept.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    loaded = load_classifier(str(folder))
    inputs = tokenizer(["some text", "another one"], return_tensors="pt", padding=True)
    # With gradients: bitsandbytes' products without them need layers of 32 outputs or more.
    assert torch.allclose(loaded.model(**inputs).logits, kept(**inputs).logits, atol=1e-3)
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float32}
    plain = AutoModelForSequenceClassification.from_pretrained(base).state_dict()
    query = "bert.encoder.layer.0.attention.self.query.weight"
    assert 0 < (loaded.model.state_dict()[query] - plain[query]).abs().max() < 0.02
    common = ("--data", reviews, "--layers", 1, "--width", 32, "--max-steps", 1, "--max-length", 16)
    done = command("distill", "--teacher", folder, *common, "--out", out)
    assert done.code == 0, done.err
    assert "quantization" not in (out / "config.json").read_text()
    assert command("evaluate", out, "--data", reviews, "--against", folder).code == 0


def test_a_folder_of_checkpoints(
    tmp_path: Path, tiny_teacher: Path, refused: Callable[..., str], command: Command, reviews: Path
) -> None:
    folder = tmp_path / "trained"
    for step in (30, 60, 200):
        shutil.copytree(tiny_teacher, folder / f"checkpoint-{step}")
    assert refused(folder).endswith(f"give one of them: {folder}/checkpoint-200 (the newest)")
    state = folder / "checkpoint-200" / "trainer_state.json"
    for best in ("/home/someone/trained/checkpoint-60", "C:\\\\trained\\\\checkpoint-60"):
        state.write_text(f'{{"best_model_checkpoint": "{best}"}}', encoding="utf-8")
        line = refused(folder)
        assert line.endswith(f"give one of them: {folder}/checkpoint-60 (the best by its trainer_state.json)")
    for gone in ('{"best_model_checkpoint": "/x/checkpoint-90"}', "{", '{"best_model_checkpoint": null}'):
        state.write_text(gone, encoding="utf-8")
        assert refused(folder).endswith(f"{folder}/checkpoint-200 (the newest)")
    assert command("evaluate", folder / "checkpoint-60", "--data", reviews).code == 0


def test_bin_weights_score_like_safetensors(
    tiny_teacher: Path, tmp_path: Path, command: Command, reviews: Path
) -> None:
    folder = tmp_path / "bin"
    shutil.copytree(tiny_teacher, folder)
    (folder / "model.safetensors").unlink()
    torch.save(
        AutoModelForSequenceClassification.from_pretrained(tiny_teacher).state_dict(), folder / "pytorch_model.bin"
    )
    found = [command("evaluate", one, "--data", reviews, "--json").json["metrics"] for one in (tiny_teacher, folder)]
    assert found[0] == found[1]
    out = tmp_path / "student"
    common = ("--data", reviews, "--layers", 1, "--max-steps", 1)
    done = command("distill", "--teacher", folder, *common, "--out", out)
    assert done.code == 0, done.err
    # What is written is safetensors, and a run file knows when the teacher's .bin has changed.
    assert {path.suffix for path in model_files(out)} <= {".safetensors", ".json", ".md", ".txt"}
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    weights["classifier.bias"] += 1
    torch.save(weights, folder / "pytorch_model.bin")
    again = command("distill", "--config", out / "run.toml", "--out", tmp_path / "again")
    assert again.code == 2 and "the teacher changed since this run file was written" in again.err


class _RunsCode:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.file}",)


def test_bin_weights_that_hold_code(tiny_teacher: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    folder = tmp_path / "bin"
    shutil.copytree(tiny_teacher, folder)
    (folder / "model.safetensors").unlink()
    torch.save({"classifier.bias": _RunsCode(tmp_path / "ran")}, folder / "pytorch_model.bin")
    assert "its .bin weights are damaged, or hold more than weights, which could run code" in refused(folder)
    assert not (tmp_path / "ran").exists()
