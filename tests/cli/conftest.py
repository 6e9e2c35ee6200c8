"""Commands run in this process, and the small files and models they are run on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from csv_files import read_csv, write_csv
from transformers import AutoModelForSequenceClassification, BertConfig, PreTrainedTokenizerBase

from stillery.cli.main import main


@dataclass(frozen=True)
class Done:
    """What a command printed and the code it ended with."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process."""

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def texts(reviews: Path) -> list[str]:
    """Forty real sentences."""
    return [row["text"] for row in read_csv(reviews)][:40]


@pytest.fixture(scope="session")
def scores(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """A CSV with a score between 0 and 5 for each sentence."""
    rows = [(text, round(5 * row / len(texts), 2)) for row, text in enumerate(texts)]
    return write_csv(tmp_path_factory.mktemp("scores") / "scores.csv", ("sentence", "score"), rows)


@pytest.fixture(scope="session")
def make_bert(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerBase) -> Callable[..., Path]:
    """A tiny BERT classifier with random weights, in a folder of its own."""

    def make(**changes: Any) -> Path:
        folder = tmp_path_factory.mktemp("model")
        torch.manual_seed(2)
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        config = BertConfig(**(shape | {"max_position_embeddings": 64, "vocab_size": len(tokenizer)} | changes))
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make
