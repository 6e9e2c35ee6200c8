"""The loops of docs/own-loop.md run as written."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, TrainingArguments

from stillery import DistillationTrainer, Distiller

PAGE = (Path(__file__).parent.parent / "docs/own-loop.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_loops_of_the_page_run(
    tiny_teacher: Path, tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, accumulated, trainer = BLOCKS
    monkeypatch.chdir(tmp_path)
    (tmp_path / "teacher").symlink_to(tiny_teacher)
    texts = ["a quiet triumph", "two hours i want back", "funny and sad", "it goes nowhere, slowly and without wit"]
    train = [{**tokenizer(text), "labels": number % 2} for number, text in enumerate(texts)]
    collator = DataCollatorWithPadding(tokenizer)
    loader = DataLoader(train, batch_size=2, collate_fn=collator)
    names: dict[str, object] = {"loader": loader}
    # Imports and models are named once; the loop itself has ten lines.
    loop = first[first.index("distiller =") :]
    assert len(loop.splitlines()) <= 10
    exec(first, names)
    distiller = names["distiller"]
    assert isinstance(distiller, Distiller) and distiller.step == 2
    assert AutoModelForSequenceClassification.from_pretrained("small").config.num_hidden_layers == 2
    exec(accumulated, names | {"steps": [list(loader), list(loader)]})
    assert distiller.step == 4

    short = partial(
        TrainingArguments, max_steps=2, report_to="none", disable_tqdm=True, use_cpu=True, save_strategy="no"
    )
    names |= {"train": train, "collator": collator}
    # The page's import would bring the slow defaults back.
    exec(trainer.replace("from transformers import TrainingArguments\n", ""), names | {"TrainingArguments": short})
    weights = [
        AutoModelForSequenceClassification.from_pretrained(folder).classifier.weight for folder in ("teacher", "small")
    ]
    assert not torch.equal(*weights)
    assert DistillationTrainer.__name__ in trainer
