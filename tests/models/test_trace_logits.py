"""The logits of models that generate text: in the precision of their head, and nothing kept for a next token."""

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

from stillery.models.load_model import Loaded
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Wanted

FAMILIES = ("t5", "bart", "gpt2", "llama")

CHILD = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
from stillery.models.wanted_outputs import Wanted
from stillery.models.trace import trace
ids = torch.tensor([[5, 6, 7, 8]])
inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
found = {}
for folder in sys.argv[1:]:
    name = folder.rpartition("/")[2]
    auto = AutoModelForSeq2SeqLM if name in ("t5", "bart") else AutoModelForCausalLM
    model = auto.from_pretrained(folder)
    with torch.autocast("cpu", torch.bfloat16):
        logits = trace(model, inputs, {"decoder": Wanted(hidden=[1])}).logits
    logits.float().logsumexp(-1).sum().backward()
    found[name] = [str(logits.dtype), model.get_output_embeddings().weight.grad.abs().sum().item() > 0]
print(json.dumps(found))
"""


def test_logits_of_half_precision_stay_so(make_writer: Any, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in FAMILIES]
    for folder in folders:
        make_writer(folder.name).save_pretrained(folder)
    # Some machines die of their own half precision; it must not take the tests with it.
    limited = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    done = subprocess.run([sys.executable, "-c", CHILD, *folders], capture_output=True, text=True, env=limited)
    if done.returncode < 0:
        pytest.skip(f"this machine cannot multiply in bfloat16 (signal {-done.returncode})")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: ["torch.bfloat16", True] for name in FAMILIES}


def test_barts_bias_is_part_of_its_logits(make_writer: Any) -> None:
    bart = make_writer("bart")
    before = bart.final_logits_bias.normal_().clone()
    ids = torch.tensor([[5, 6, 7]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    found = []
    for logits in (trace(bart, inputs).logits, bart(**inputs).logits):
        bart.zero_grad()
        logits.square().sum().backward()
        found.append([logits.detach(), *(parameter.grad.clone() for parameter in bart.parameters())])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))
    assert torch.equal(bart.final_logits_bias, before) and bart.final_logits_bias.dtype == torch.float32


def test_nothing_is_kept_for_a_next_token(writer: Loaded, texts: dict[str, Tensor]) -> None:
    kept: list[Any] = []
    handle = writer.model.base_model.register_forward_hook(lambda _, __, output: kept.append(output.past_key_values))
    try:
        trace(writer.model, texts, {"decoder": Wanted(hidden=[1])})
    finally:
        handle.remove()
    assert kept == [None]
