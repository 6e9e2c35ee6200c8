"""Model folders from somebody else: nothing outside of the folder is read, no code runs, and every refusal is one line.

Sizes that no model has would be minutes and gigabytes; each is refused within the seconds that a test may take.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from stillery.errors import UserError
from stillery.models.sentence_folder import read_dense

MARK = "code-was-here"
DEEP = '{"a":' * 3000 + "1" + "}" * 3000

Change = Callable[[Path], None]


def put(file: str, content: str | bytes) -> Change:
    return lambda folder: (
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode()) and None
    )


def values(file: str, **changes: Any) -> Change:
    """The file with other values; NaN, Infinity and any number of digits are written as Python writes them."""

    def change(folder: Path) -> None:
        found = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(found | changes))

    return change


def config(**changes: Any) -> Change:
    return values("config.json", **changes)


def index(target: str, *, link: str | None = None, pickled: bool = False) -> Change:
    """An index of weights instead of the weights, which points to one file for all of them."""

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        if pickled:
            torch.save(weights, folder / target)
        if link is not None:
            (folder / target).symlink_to(folder / link)
        record = {"metadata": {}, "weight_map": dict.fromkeys(weights, target)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(record))

    return change


def header(change: Callable[[dict[str, Any]], Any], *, size: int | None = None) -> Change:
    """The weights with another header, and maybe another length said of it."""

    def rewrite(folder: Path) -> None:
        file = folder / "model.safetensors"
        whole = file.read_bytes()
        (length,) = struct.unpack("<Q", whole[:8])
        found = json.loads(whole[8 : 8 + length])
        changed = change(found)
        text = changed if isinstance(changed, bytes) else json.dumps(found if changed is None else changed).encode()
        file.write_bytes(struct.pack("<Q", len(text) if size is None else size) + text + whole[8 + length :])

    return rewrite


def of_first(**said: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found[min(set(found) - {"__metadata__"})].update(said)


def pipe(file: str) -> Change:
    def change(folder: Path) -> None:
        (folder / file).unlink(missing_ok=True)
        os.mkfifo(folder / file)

    return change


def linked(file: str) -> Change:
    def change(folder: Path) -> None:
        (folder / file).rename(folder.parent / file)
        (folder / file).symlink_to(folder.parent / file)

    return change


def hole(file: str, size: int) -> Change:
    """A file of this size, of which nothing is on the disk."""

    def change(folder: Path) -> None:
        with (folder / file).open("wb") as opened:
            opened.truncate(size)

    return change


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {MARK}",)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Runs()))


def adapter(**said: Any) -> Change:
    """The folder holds an adapter of a model beside it."""

    def change(folder: Path) -> None:
        folder.rename(folder.parent / "base")
        folder.mkdir()
        described = {"peft_type": "LORA", "task_type": "SEQ_CLS", "base_model_name_or_path": "base"}
        (folder / "adapter_config.json").write_text(json.dumps(described | said))

    return change


REFUSED: dict[str, tuple[Change, str]] = {
    "index to a pickle": (index("weights.bin", pickled=True), "index.json points to 'weights.bin' no .safetensors"),
    "index upwards": (index("../outside.safetensors"), "index.json points outside"),
    "index to an absolute path": (index("/etc/hostname"), "index.json points outside"),
    "index to a link outwards": (
        index("a.safetensors", link="../outside.safetensors"),
        "a.safetensors is a link outside",
    ),
    "index without a map": (put("model.safetensors.index.json", '{"weight_map": 5}'), "no weight_map"),
    "weights are a link outwards": (linked("model.safetensors"), "model.safetensors is a link outside"),
    "weights are a pipe": (pipe("model.safetensors"), "model.safetensors is a named pipe"),
    "configuration is a pipe": (pipe("config.json"), "config.json"),
    "tokenizer is a pipe": (pipe("tokenizer_config.json"), "tokenizer_config.json is a named pipe"),
    "header longer than the file": (header(lambda _: None, size=2**63), "header model.safetensors damaged"),
    "header of a gigabyte": (header(lambda _: None, size=2**30), "header model.safetensors damaged"),
    "header nested deeply": (header(lambda _: DEEP.encode()), "header model.safetensors damaged"),
    "header with a lying shape": (header(of_first(shape=[10**9, 10**9])), "cannot read the model damaged"),
    "header with lying offsets": (header(of_first(data_offsets=[0, 10**15])), "cannot read the model damaged"),
    "header with a negative shape": (header(of_first(shape=[-4])), "header model.safetensors damaged"),
    "pickle": (pickled, "could run code"),
    "weights named in the configuration": (config(transformers_weights="../x.safetensors"), "transformers_weights"),
    "other configuration": (config(configuration_files=["config.4/../../x.json"]), "configuration_files"),
    "10^9 layers": (config(num_hidden_layers=10**9), "num_hidden_layers more than 10,000"),
    "more layers than weights": (config(num_hidden_layers=9000), "9,000 layers tensors"),
    "layers of 400 digits": (config(num_hidden_layers=10**400), "num_hidden_layers more than 10,000"),
    "10^9 labels": (config(num_labels=10**9), "num_labels more than 100,000"),
    "negative labels": (config(num_labels=-1), "num_labels not a number of labels"),
    "width of 10^9": (config(hidden_size=10**9), "describes a model of parameters its weights hold"),
    "inner width of 10^9": (config(intermediate_size=10**9), "describes a model of parameters its weights hold"),
    "vocabulary of 10^10": (config(vocab_size=10**10), "describes a model of parameters its weights hold"),
    "10^10 positions": (config(max_position_embeddings=10**10), "describes a model of parameters its weights hold"),
    "negative heads": (config(num_attention_heads=-4), "-4 as attention heads"),
    "NaN": (config(layer_norm_eps=float("nan")), "layer_norm_eps not a finite number"),
    "architectures of numbers": (config(architectures=[5]), "architectures not a list of names"),
    "inputs that are no list": (values("tokenizer_config.json", model_input_names=5), "model_input_names not a list"),
    "rank of 10^9": (adapter(r=10**9), "adapter_config.json a rank of 1000000000"),
    "a layer's rank": (adapter(r=4, rank_pattern={"query": 10**9}), "adapter_config.json a rank of 1000000000"),
    "5,000 digits": (put("config.json", f'{{"vocab_size": {"9" * 5000}}}'), "config.json too many digits"),
    "nested deeply": (put("config.json", DEEP), "config.json nested too deeply"),
    "500 MB": (hole("config.json", 500 * 10**6), "config.json larger than 32 MB"),
    "length of 2.5": (values("tokenizer_config.json", model_max_length=2.5), "model_max_length 2.5 not a length"),
    "length in words": (values("tokenizer_config.json", model_max_length="long"), "model_max_length long not a length"),
    "length below 1": (values("tokenizer_config.json", model_max_length=-3), "model_max_length -3 not a length"),
    "tokenizer nested deeply": (put("tokenizer_config.json", DEEP), "tokenizer_config.json nested too deeply"),
    "tokenizer of a gigabyte": (hole("tokenizer.json", 2**30), "tokenizer.json larger than 256 MB"),
}


@pytest.fixture
def folder(tmp_path: Path, tiny_teacher: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(tiny_teacher, tmp_path / "model"))


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_folder_is_refused_in_one_line(name: str, folder: Path, reviews: Path, command) -> None:
    change, words = REFUSED[name]
    change(folder)
    before, memory = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = command("finetune", "--model", "model", "--data", reviews, "--out", "new")
    assert done.code == 2 and done.err.count("\n") == 1 and done.out == "", done.err
    assert done.err.startswith("stillery: model: ")
    missing = [word for word in words.split() if word not in done.err]
    assert not missing, (missing, done.err)
    assert time.monotonic() - before < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 500_000
    assert not Path("new").exists() and not Path(MARK).exists()


def test_remote_code_does_not_run_and_how_a_model_is_called_is_ours(folder: Path, reviews: Path, command) -> None:
    plain = command("evaluate", "model", "--data", reviews)
    names = {"AutoConfig": "evil.C", "AutoModelForSequenceClassification": "evil.M", "AutoTokenizer": ["evil.T", None]}
    (folder / "evil.py").write_text(f"open({MARK!r}, 'w')\nclass C: pass\nclass M: pass\nclass T: pass\n")
    config(auto_map=names, return_dict=False, chunk_size_feed_forward=7, output_attentions=True)(folder)
    values("tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", None]})(folder)
    done = command("evaluate", "model", "--data", reviews)
    assert (plain.code, done.code) == (0, 0), done.err
    assert done.out == plain.out
    assert not Path(MARK).exists()


def test_links_of_the_hubs_cache_are_followed(folder: Path, reviews: Path, command) -> None:
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        file.rename(blobs / f"{number:064x}")
        file.symlink_to(f"../blobs/{number:064x}")
    assert command("evaluate", "model", "--data", reviews).code == 0


def test_sharded_weights_in_the_folder_are_read(folder: Path, reviews: Path, command) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    halves = [sorted(weights)[::2], sorted(weights)[1::2]]
    places = {}
    for number, names in enumerate(halves, 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: weights[name] for name in names}, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert command("evaluate", "model", "--data", reviews).code == 0


@pytest.mark.parametrize(
    ("path", "sizes", "words"),
    [
        ("../outside", {}, "modules.json points outside of the folder"),
        ("/etc", {}, "modules.json points outside of the folder"),
        ("2_Dense", {"in_features": 10**6, "out_features": 10**6}, "weights are not of the sizes in its config.json"),
    ],
)
def test_modules_of_a_sentence_model_lie_in_its_folder(
    path: str, sizes: dict[str, int], words: str, folder: Path
) -> None:
    dense = folder / "2_Dense"
    dense.mkdir()
    (dense / "config.json").write_text(json.dumps({"in_features": 4, "out_features": 4} | sizes))
    save_file({"linear.weight": torch.zeros(4, 4), "linear.bias": torch.zeros(4)}, dense / "model.safetensors")
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense", "path": path}]))
    with pytest.raises(UserError, match=words):
        read_dense(folder, "model")
