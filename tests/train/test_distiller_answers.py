"""The labels' loss of every kind of model is that of transformers, in one process and in two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from stillery import Distiller

ROOT = Path(__file__).parent
BERT = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
BART = {"vocab_size": 60, "d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}  # fmt: skip


def model_of(kind: str, layers: int) -> PreTrainedModel:
    torch.manual_seed(layers)
    if kind == "causal":
        config = LlamaConfig(**BERT, num_hidden_layers=layers, num_key_value_heads=1, pad_token_id=0)
        return LlamaForCausalLM(config)
    if kind == "seq2seq":
        return BartForConditionalGeneration(BartConfig(**BART, encoder_layers=layers, decoder_layers=layers))
    if kind == "tags":
        return BertForTokenClassification(BertConfig(**BERT, num_hidden_layers=layers, num_labels=3))
    labels, problem = {"classes": (3, None), "score": (1, "regression"), "labels": (3, "multi_label_classification")}[
        kind
    ]
    config = BertConfig(**BERT, num_hidden_layers=layers, num_labels=labels, problem_type=problem)
    return BertForSequenceClassification(config)


def batch_of(kind: str) -> dict[str, Tensor]:
    torch.manual_seed(7)
    ids, mask = torch.randint(3, 60, (4, 6)), torch.ones(4, 6, dtype=torch.long)
    ids[0, 4:], mask[0, 4:] = 1, 0
    labels = {
        "classes": torch.tensor([0, 2, 1, 1]),
        "score": torch.tensor([0.5, 2.0, -1.0, 0.0]),
        "labels": torch.tensor([[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]]).float(),
        "tags": torch.where(mask == 1, ids % 3, -100),
        "causal": torch.where(mask == 1, ids, -100),
        "seq2seq": torch.where(mask == 1, ids, -100),
    }[kind]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@pytest.mark.parametrize("kind", ["classes", "score", "labels", "tags", "causal", "seq2seq"])
def test_the_loss_of_labels_is_that_of_transformers(kind: str) -> None:
    teacher, student, batch = model_of(kind, 4), model_of(kind, 2), batch_of(kind)
    distiller = Distiller("layer-forward", teacher, student).eval()
    found = distiller(batch)
    plain = student(**batch).loss
    assert float(found.terms["hard"]) == pytest.approx(float(plain.detach()), rel=1e-5)
    assert {"hard", "soft"} < found.terms.keys()
    weighed = sum(found.weights[name] * float(term) for name, term in found.terms.items())
    assert float(found.loss.detach()) == pytest.approx(weighed, rel=1e-5)
    distiller.train()
    halves = [{name: value[part] for name, value in batch.items()} for part in (slice(0, 1), slice(1, 4))]
    for module in student.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    rows = distiller.eval().rows(halves)
    parts = [distiller(half, rows) for half in halves]
    for name, term in found.terms.items():
        assert float(parts[0].terms[name] + parts[1].terms[name]) == pytest.approx(float(term), rel=1e-5, abs=1e-8)


SCRIPT = """
import json, sys, torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from stillery import Distiller
from test_distiller_answers import batch_of, model_of
accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
teacher, student = model_of("classes", 4), model_of("classes", 2)
student.config.hidden_dropout_prob = 0.0
for module in student.modules():
    if isinstance(module, torch.nn.Dropout):
        module.p = 0.0
distiller = Distiller("tinybert", teacher, student, steps=4)
module, optimizer = accelerator.prepare(distiller, torch.optim.SGD(distiller.parameters(), lr=0.1))
whole, steps = batch_of("classes"), []
for _ in range(4):
    batch = {name: value[accelerator.process_index::accelerator.num_processes] for name, value in whole.items()}
    found = module(batch, distiller.rows([batch]))
    accelerator.backward(found.loss)
    optimizer.step()
    optimizer.zero_grad()
    steps.append({name: float(accelerator.reduce(term, "sum")) for name, term in found.terms.items()})
if accelerator.is_main_process:
    weights = {name: value.double().norm().item() for name, value in distiller.state_dict().items()}
    json.dump([accelerator.num_processes, steps, weights], open(sys.argv[1], "w"))
"""


@pytest.mark.slow
def test_two_processes_train_like_one(tmp_path: Path) -> None:
    """The stage without predictions leaves the classifier without gradients, and unequal rows are weighed."""
    (tmp_path / "loop.py").write_text(SCRIPT)
    two = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    found: list[Any] = []
    for name, launcher in (("one", []), ("two", two)):
        subprocess.run(
            [sys.executable, *launcher, "loop.py", f"{name}.json"],
            check=True,
            cwd=tmp_path,
            env=os.environ
            | {
                "ACCELERATE_USE_CPU": "true",
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            },
            timeout=300,
        )
        found.append(json.loads((tmp_path / f"{name}.json").read_text()))
    (one, steps, weights), (several, others, theirs) = found
    assert (one, several) == (1, 2)
    for step, other in zip(steps, others, strict=True):
        assert other == pytest.approx(step, rel=1e-4, abs=1e-8)
    assert theirs == pytest.approx(weights, rel=1e-4)
