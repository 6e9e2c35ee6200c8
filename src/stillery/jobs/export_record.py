"""What an export says about itself: the table, `export.json`, the model card and the Python example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from stillery.data.schema.labels import Labels
from stillery.deploy.gate import Check, Tried
from stillery.deploy.onnx_model import session
from stillery.deploy.speed import Latency, speeds
from stillery.evaluation.cost import megabytes, parameters
from stillery.jobs.config.run_file import run_of
from stillery.jobs.config.run_paths import names_only
from stillery.jobs.export_card import export_card
from stillery.jobs.export_examples import Subject
from stillery.jobs.exported import Exported, Row
from stillery.models.model_folder import model_folder
from stillery.progress import bar

__all__ = ["described", "example_code"]

_SIZES = (1, 32)
"""The batch sizes that latency is measured at."""

_MOST = {1: 50, 32: 8}
"""The number of batches of each size."""

_KEPT = ("job", "method", "recipe", "task")
"""Settings of the run that an export keeps; none of them is a path."""


def described(
    subject: Subject, fp32: Path, check: Check, int8: Tried | None, tried: Sequence[Tried], *, latency: bool
) -> tuple[Exported, str]:
    """Measure size and speed of checkpoint and export; return the result, whose record is complete, and the card."""
    files = [("ONNX", fp32, check), *([("int8", int8.file, int8.check)] if int8 else [])]
    model, encoding = subject.reader.loaded, subject.reader.encoding
    times: dict[tuple[int, int], list[Latency]] = {}
    if latency:
        with bar("measure latency", 1) as shown:
            times = speeds(model.model, [file for _, file, _ in files], _batches(subject))
            shown.advance()
    metric, value, interval = subject.score(subject.answers)
    rows = [
        Row(
            name="checkpoint", megabytes=_weights(model.name), score=_score(value, interval),
            latency={key: str(own[0]) for key, own in times.items()},
        ),
        *(
            Row(
                name=name, megabytes=_size(file), score=_score(own.value, own.interval), check=own,
                latency={key: str(each[place]) for key, each in times.items()},
            )
            for place, (name, file, own) in enumerate(files, 1)
        ),
    ]  # fmt: skip
    values = run_of(model.name)
    named = names_only(values) if values else {}
    record: dict[str, Any] = {
        "stillery": version("stillery"),
        "model": Path(model.name).name,
        "run": {name: named[name] for name in _KEPT if name in named} | {
            "max_length": encoding.max_length, "parameters": parameters(model.model),
        },
        "inputs": _inputs(fp32),
        "examples": {"task": subject.scored.task, "split": subject.scored.split, "count": len(subject.scored.examples)},
        "checkpoint": {
            "megabytes": rows[0].megabytes, "metric": metric, "value": value,
            "interval": None if interval is None else list(interval),
        },
        "onnx": {"file": fp32.name, "megabytes": _size(fp32)} | check.record(),
        "latency": [_latency(key, own) for key, own in sorted(times.items())],
    }  # fmt: skip
    if int8 is not None:
        record["int8"] = {"file": int8.file.name, "megabytes": _size(int8.file)} | _setting(int8) | int8.check.record()
        record["int8"]["tried"] = [_setting(one) | one.check.record() for one in tried]
    found = Exported(out=fp32.parent, record=record, metric=metric, rows=rows, examples=subject.where)
    usage = example_code(subject, (int8.file if int8 else fp32).name)
    tag = subject.exporting.tag
    facts = _facts(record, int8)
    return found, export_card(found, Path(model_folder(model.name)), tag=tag, facts=facts, usage=usage)


def example_code(subject: Subject, file: str) -> list[str]:
    """Return lines of Python that use a file of the export, in its folder and without torch."""
    loaded = subject.reader.loaded
    return subject.exporting.usage(file, subject.inputs, Labels.of_model(loaded.model.config), subject.pairs)


def _batches(subject: Subject) -> dict[int, list[dict[str, Any]]]:
    """Return real examples in batches of each size, padded to their longest."""
    data, count = subject.tokenised, len(subject.tokenised)
    rows = {size: min(_MOST[size], max(1, count // size)) for size in _SIZES}
    return {
        size: [
            data.batch((np.arange(size) + size * place) % count, pad_to=1).inputs for place in range(batches)
        ]
        for size, batches in rows.items()
    }  # fmt: skip


def _facts(record: Mapping[str, Any], int8: Tried | None) -> list[str]:
    """Return the lines at the top of the card."""
    facts = [f"`{record['onnx']['file']}`: float32, inputs {', '.join(record['inputs'])} of any batch size and length"]
    if int8 is not None:
        facts.append(f"`{int8.file.name}`: int8 weights, activations quantised as they come ({int8.setting})")
    facts.append(f"`tokenizer.json` cuts texts to {record['run']['max_length']} tokens and pads batches")
    return facts


def _inputs(file: Path) -> list[str]:
    return [one.name for one in session(file).get_inputs()]


def _weights(name: str) -> float:
    """Return the size of a checkpoint's weights, in 10^6 bytes."""
    folder = Path(model_folder(name))
    if any(folder.glob("*.safetensors")):
        return megabytes(folder)
    return sum(file.stat().st_size for file in folder.glob("*.bin")) / 1e6


def _size(file: Path) -> float:
    return sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*")) / 1e6


def _score(value: float, interval: tuple[float, float] | None) -> str:
    return f"{value:.1f}" if interval is None else f"{value:.1f} ({interval[0]:.1f}-{interval[1]:.1f})"


def _setting(one: Tried) -> dict[str, Any]:
    setting = one.setting
    return {
        "setting": str(setting), "per_channel": setting.per_channel, "reduce_range": setting.reduce_range,
        "excluded": list(setting.excluded),
    }  # fmt: skip


def _latency(key: tuple[int, int], own: Sequence[Latency]) -> dict[str, Any]:
    size, threads = key
    names = ("checkpoint", "onnx", "int8")
    times = {
        name: {"median_ms": round(one.median, 3), "p95_ms": round(one.p95, 3), "batches": one.batches}
        for name, one in zip(names, own, strict=False)
    }
    return {"batch": size, "threads": threads, **times}
