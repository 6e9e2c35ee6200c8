"""Generate the table of model families of docs/families.md: `make docs`.

A tiny model of every family is distilled for two steps in every way, and exported; what is refused is written down
with its reason.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from stillery.api.loop.distiller import Distiller
from stillery.deploy.extra import check_installed
from stillery.deploy.onnx_export import write_onnx
from stillery.deploy.onnx_model import OnnxModel
from stillery.errors import UserError
from stillery.jobs.export_examples import exporting_of
from stillery.models.family import FAMILIES, kind_of, sizes
from stillery.models.generator_student import build_generator, generator_sizes
from stillery.models.importance import measure
from stillery.models.load_model import Loaded
from stillery.models.quiet import quiet
from stillery.models.slicing import is_narrower
from stillery.models.stack_layout import GENERATORS
from stillery.models.student import StudentShape, build, student_sizes

__all__ = ["PAGE", "WAYS", "Row", "row_of", "table", "tried"]

PAGE = Path(__file__).parents[4] / "docs" / "families.md"

_TABLE = re.compile(r"(?s)(?<=<!-- generated: make docs -->\n).*?(?=<!-- end -->)")
_SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48}
_POSITIONS = {"vocab_size": 99, "max_position_embeddings": 24}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_T5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 4, "num_heads": 4,
       "decoder_start_token_id": 0}  # fmt: skip
_BART = {"d_model": 32, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}  # fmt: skip
_CONFIGS: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 16},
    "bart": _POSITIONS | _BART,
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    "distilbert": _POSITIONS | {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 48},
    "electra": {"embedding_size": 16},
    "gpt2": {"vocab_size": 99, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 24} | _TOKENS,
    "mistral": {"sliding_window": None},
    "modernbert": _TOKENS | {"local_attention": 4, "cls_token_id": 1, "sep_token_id": 2},
    "mt5": _T5,
    "t5": _T5,
}
"""Sizes of families that name them in their own way, or that have more of them."""

_ALSO_ASKED_FOR = ("deberta", "gemma2", "gemma3_text", "gpt_neox", "mbart", "olmo3", "opt", "phi3")
"""Families of transformers that are not supported, with what is said of them."""

_CLOSE = 1e-4
"""How far apart the logits of a model and of its export may be."""

_CALLED = {
    "bert": "BERT, MiniLM", "deberta-v2": "DeBERTa-v2, v3", "llama": "Llama, SmolLM2, TinyLlama",
    "mt5": "mT5", "qwen2": "Qwen2, Qwen2.5", "t5": "T5, FLAN-T5", "xlm-roberta": "XLM-RoBERTa",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to distil: the heading of its column, the method, and the student's shape."""

    heading: str
    method: str
    shape: StudentShape


WAYS = (
    Way(heading="fewer layers", method="layer-forward", shape=StudentShape(layers=2)),
    Way(heading="narrower", method="layer-forward", shape=StudentShape(layers=2, width=16)),
    Way(heading="attention", method="tinybert", shape=StudentShape(layers=2)),
    Way(heading="relations", method="minilm-v2", shape=StudentShape(layers=2)),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A family, its kind, and for each way and for its export the reason why it is refused, or None."""

    family: str
    kind: str
    refused: tuple[str | None, ...]
    not_exported: str | None = None

    @property
    def cells(self) -> tuple[str | None, ...]:
        """The reasons of all columns."""
        return (*self.refused, self.not_exported)


def tried() -> list[str]:
    """The families of the table: all that are supported, and some that are not."""
    return [*FAMILIES, *GENERATORS, *_ALSO_ASKED_FOR]


def row_of(family: str) -> Row:
    """Distil a tiny model of a family in every way, export it, and note what is refused."""
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoConfig.for_model(family, **_common(family) | _CONFIGS.get(family, {}))
        try:
            kind = kind_of(config, family)
        except UserError as error:
            return Row(family=family, kind="none", refused=(str(error),) * len(WAYS), not_exported=str(error))
        auto: Any = {"encoder": AutoModelForSequenceClassification, "decoder": AutoModelForCausalLM}.get(
            kind, AutoModelForSeq2SeqLM
        )
        tokenizer: Any = None
        model: PreTrainedModel = auto.from_config(config)
        teacher = Loaded(model=model, tokenizer=tokenizer, name=family, missing=frozenset())
        not_exported = _not_exported(model)
        return Row(
            family=family, kind=kind, refused=tuple(_refused(way, teacher) for way in WAYS), not_exported=not_exported
        )


def _common(family: str) -> dict[str, Any]:
    """The sizes that most families name alike; none for a family with names of its own."""
    own = _CONFIGS.get(family, {})
    if {"vocab_size", "d_model"} & own.keys():
        return {}
    return _SIZES | _POSITIONS | (_TOKENS | {"num_key_value_heads": 2} if family not in FAMILIES else {})


def _refused(way: Way, teacher: Loaded) -> str | None:
    """Train a student for two steps; return why it is refused, or None."""
    try:
        distiller = Distiller(way.method, teacher.model, _student(teacher, way.shape), steps=2)
    except UserError as error:
        return error.lines[0]
    optimiser = torch.optim.AdamW(distiller.parameters(), lr=1e-3)
    for _ in range(2):
        found = distiller(_batch(teacher.model))
        found.loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if not bool(torch.isfinite(found.loss)):
            raise RuntimeError(f"{teacher.name}, {way.method}: the loss is not finite")
    return None


def _not_exported(model: PreTrainedModel) -> str | None:
    """Export a model and compare its logits with the file's; return why it is refused, or None."""
    check_installed(write=True)
    with tempfile.TemporaryDirectory(prefix="stillery-families-") as folder:
        model.save_pretrained(folder)
        try:
            exporting_of(folder)
            file = Path(folder) / "model.onnx"
            write_onnx(model, file, folder)
        except UserError as error:
            return error.lines[0].removeprefix(f"{folder}: ")
        model.eval()
        for tokens in (9, 4):
            inputs = {name: tensor[:, :tokens] for name, tensor in _batch(model).items() if name != "labels"}
            with torch.no_grad():
                apart = (OnnxModel(file, model.config)(**inputs).logits - model(**inputs).logits).abs().max()
            if not apart < _CLOSE:
                raise RuntimeError(f"{model.config.model_type}: the logits of its ONNX file are {apart:.2g} apart")
        model.train()
    return None


def _student(teacher: Loaded, shape: StudentShape) -> PreTrainedModel:
    """A student that starts from the teacher's layers, sliced where it is narrower."""
    config, name = teacher.model.config, teacher.name
    if kind_of(config) == "encoder":
        size = student_sizes(shape, config, name)
        found = measure(teacher.model, [_batch(teacher.model)]) if is_narrower(size, sizes(config)) else None
        return build(teacher=teacher, source=teacher, wanted=size, init="even", importance=found).model
    wanted = generator_sizes(shape, config, name)
    found = measure(teacher.model, [_batch(teacher.model)]) if shape.width else None
    return build_generator(source=teacher, wanted=wanted, init="even", importance=found).model


def _batch(model: PreTrainedModel) -> dict[str, Tensor]:
    """Three texts of 9, 5 and 2 tokens, padded, with labels."""
    mask = (torch.arange(9) < torch.tensor([[9], [5], [2]])).long()
    ids = torch.randint(5, 99, mask.shape, generator=torch.Generator().manual_seed(3))
    labels = torch.tensor([0, 1, 1]) if kind_of(model.config) == "encoder" else torch.where(mask == 1, ids, -100)
    pad = int(model.config.pad_token_id or 0)
    return {"input_ids": ids * mask + pad * (1 - mask), "attention_mask": mask, "labels": labels}


def table(rows: Sequence[Row]) -> str:
    """Return the table of families, with the reasons of what is refused below it."""
    reasons: list[str] = []

    def cell(reason: str | None) -> str:
        if reason is None:
            return "yes"
        if reason not in reasons:
            reasons.append(reason)
        return f"no ({reasons.index(reason) + 1})"

    supported = [row for row in rows if row.kind != "none"]
    headings = [*(way.heading for way in WAYS), "ONNX"]
    lines = [f"| family | kind | {' | '.join(headings)} |", "|---" * (len(headings) + 2) + "|"]
    for row in supported:
        called = f" ({_CALLED[row.family]})" if row.family in _CALLED else ""
        lines.append(f"| `{row.family}`{called} | {row.kind} | {' | '.join(map(cell, row.cells))} |")
    lines += ["", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]
    others = [f"`{row.family}`" for row in rows if row.kind == "none"]
    if others:
        lines += ["", f"Not supported, and refused by name: {', '.join(others)}, and every other type."]
    return "\n".join(lines) + "\n"


def written(page: str, rows: Sequence[Row]) -> str:
    """Return the page with its table renewed."""
    return _TABLE.sub(lambda _: table(rows), page)


def main(row: Callable[[str], Row] = row_of) -> None:
    """Write the page if it is out of date, and print its path."""
    before = PAGE.read_text(encoding="utf-8")
    after = written(before, [row(family) for family in tried()])
    if after != before:
        PAGE.write_text(after, encoding="utf-8")
        print(f"{PAGE}: written", file=sys.stderr)


if __name__ == "__main__":
    main()
