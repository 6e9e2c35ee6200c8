"""An exported student is a plain checkpoint, whole or not there at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from stillery.atomic import remove_leftovers
from stillery.errors import UserError
from stillery.models.export import export
from stillery.models.family import sizes
from stillery.models.fingerprint import weights_fingerprint
from stillery.models.head import reuse_head
from stillery.models.load_model import Loaded, fingerprint, load_classifier
from stillery.models.model_inputs import accepted_inputs
from stillery.models.student import build
from stillery.models.trace import trace

KINDS = ["albert", "bert", "camembert", "deberta-v2", "deberta-v2-conv", "distilbert", "electra", "mpnet", "roberta",
         "xlm-roberta"]  # fmt: skip

_RELOAD = """
import sys
from pathlib import Path
from safetensors.torch import load_file
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
for folder in map(Path, sys.argv[1:]):
    asked = load_file(folder.with_suffix(".asked"))
    expected = asked.pop("logits")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    for parameter in model.parameters():
        # Mapped from a file, tensors may lie unaligned in memory, which moves the last bit of a product.
        parameter.data = parameter.data.clone()
    with torch.no_grad():
        logits = model(**asked).logits
    print(folder.name, torch.equal(logits, expected), AutoTokenizer.from_pretrained(folder)("a film")["input_ids"],
          list(model.config.id2label.values()), model.config.problem_type)
assert not any(name.split(".")[0] == "stillery" for name in sys.modules)
"""

_KILLED = """
import os, signal, sys
from pathlib import Path
from transformers import BertConfig, BertForSequenceClassification
from stillery.models.export import export
class Killed:
    def save_pretrained(self, folder):
        assert (folder / "model.safetensors").is_file()
        os.kill(os.getpid(), signal.SIGKILL)
small = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
export(BertForSequenceClassification(small), Killed(), Path(sys.argv[1]), "card")
"""


class Failing:
    def save_pretrained(self, folder: Path) -> None:
        assert (folder / "model.safetensors").is_file()
        raise OSError("no space left on device")


def students(make: Any, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Of every kind a student with the teacher's head; the RoBERTas of regression."""
    made = {}
    for name in KINDS:
        options = {"num_labels": 1, "problem_type": "regression"} if "roberta" in name else {}
        teacher = Loaded(model=make(name, **options), tokenizer=tokenizer, name=name, missing=frozenset())
        wanted = sizes(teacher.model.config)
        made[name] = build(teacher=teacher, source=teacher, wanted=wanted, init="even").model.eval()
        reuse_head(made[name], teacher, freeze=True)
    return made


def ragged(pad: int) -> dict[str, Tensor]:
    mask = (torch.arange(9) < torch.tensor([[9], [4]])).long()
    ids = torch.randint(5, 99, (2, 9), generator=torch.Generator().manual_seed(3))
    return {
        "input_ids": ids * mask + pad * (1 - mask),
        "attention_mask": mask,
        "token_type_ids": torch.zeros_like(mask),
    }


def test_students_of_every_family_reload_without_stillery(
    make: Any, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, model in students(make, tokenizer).items():
        export(model, tokenizer, tmp_path / name, f"# {name}\n")
        inputs = ragged(model.config.pad_token_id)
        with torch.no_grad():
            logits = model(**accepted_inputs(model, inputs)).logits
        save_file(accepted_inputs(model, inputs) | {"logits": logits}, tmp_path / f"{name}.asked")
        files = {file.name for file in (tmp_path / name).iterdir()}
        assert files >= {"config.json", "model.safetensors", "README.md", "tokenizer.json", "tokenizer_config.json"}
        assert not any(file.startswith(".") for file in files)
        assert (tmp_path / name / "README.md").read_text(encoding="utf-8") == f"# {name}\n"
    said = capfd.readouterr()
    assert said.out + said.err == ""
    done = subprocess.run(
        [sys.executable, "-c", _RELOAD, *(str(tmp_path / name) for name in KINDS)],
        capture_output=True, text=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ids = tokenizer("a film")["input_ids"]
    for name, line in zip(KINDS, done.stdout.splitlines(), strict=True):
        labels = "['LABEL_0'] regression" if "roberta" in name else "['LABEL_0', 'LABEL_1', 'LABEL_2'] None"
        assert line == f"{name} True {ids} {labels}"


def test_a_reloaded_student_gives_the_same_logits(teacher: Loaded, make: Any, save: Any) -> None:
    model = make(teacher.name.removeprefix("teacher-"), vocab_size=30522, num_labels=1)
    inputs = ragged(model.config.pad_token_id)
    with torch.no_grad():
        expected = trace(model, inputs).logits
        assert torch.equal(trace(load_classifier(str(save("saved", model))).model, inputs).logits, expected)


def test_only_the_students_own_weights_are_inside(
    teacher: Loaded, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    folder = tmp_path / "student"
    export(teacher.model, tokenizer, folder, "card")
    with safe_open(folder / "model.safetensors", "pt") as held:
        names = set(held.keys())
    assert names == set(teacher.model.state_dict())
    assert str(tmp_path) not in (folder / "config.json").read_text(encoding="utf-8")
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"] == [
        type(teacher.model).__name__
    ]


def test_a_failed_export_leaves_nothing(make: Any, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no space left"):
        export(make("bert"), Failing(), tmp_path, "card")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_failed_export_leaves_the_older_one(make: Any, tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    folder = tmp_path / "student"
    export(make("bert"), tokenizer, folder, "older")
    (folder / "log.jsonl").write_text("of the run")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(OSError, match="no space left"):
        export(make("bert", seed=1), Failing(), folder, "newer")  # type: ignore[arg-type]
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    export(make("bert", seed=1), tokenizer, folder, "newer")
    assert (folder / "README.md").read_text(encoding="utf-8") == "newer"
    assert (folder / "log.jsonl").read_text(encoding="utf-8") == "of the run"
    assert {path.name for path in folder.iterdir()} == before.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["student"]


def test_a_killed_export_leaves_no_student(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not [path for path in tmp_path.iterdir() if ".stillery-part-" not in path.name]
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stopped_at", ["README.md", "model.safetensors", "config.json"])
def test_an_export_over_an_older_one_is_no_model_until_it_is_whole(
    make: Any, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_at: str
) -> None:
    older, newer = (make("bert", vocab_size=30522, seed=seed) for seed in (0, 1))
    export(older, tokenizer, tmp_path, "older")
    names = {path.name for path in tmp_path.iterdir()}
    replace = Path.replace

    def stop(path: Path, place: Path) -> Path:
        if place == tmp_path / stopped_at:
            raise KeyboardInterrupt
        return replace(path, place)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            export(newer, tokenizer, tmp_path, "newer")
    with pytest.raises(UserError, match=r"no config\.json"):
        load_classifier(str(tmp_path))
    export(newer, tokenizer, tmp_path, "newer")
    assert {path.name for path in tmp_path.iterdir()} == names
    assert fingerprint(load_classifier(str(tmp_path))) == weights_fingerprint(newer)


@pytest.mark.skipif(os.name == "nt", reason="no umask")
@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_all_files_of_an_export_are_as_readable_as_the_umask_says(
    make: Any, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        export(make("bert"), tokenizer, tmp_path / "student", "card")
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "student").iterdir()}
    assert modes == dict.fromkeys(modes, 0o666 & ~umask) and "model.safetensors" in modes


def test_an_export_that_finds_no_room_names_the_folder(
    make: Any, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as full:
            export(make("bert"), tokenizer, tmp_path, "card")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert full.value.filename == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
