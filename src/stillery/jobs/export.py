"""Export a trained encoder to ONNX and int8, if it still predicts what its checkpoint predicts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from stillery.atomic import atomic_folder
from stillery.deploy.extra import check_installed
from stillery.deploy.folder import write_config, write_tokenizer
from stillery.deploy.gate import Check, Tried, first_that_passes
from stillery.deploy.onnx_export import write_onnx
from stillery.deploy.onnx_model import OnnxModel
from stillery.deploy.quantise import FIRST, Setting, quantise, with_layers_left_out
from stillery.deploy.sensitivity import most_changed
from stillery.errors import UserError
from stillery.jobs.export_examples import Subject, subject_of
from stillery.jobs.export_record import described, example_code
from stillery.jobs.exported import Exported
from stillery.jobs.output_paths import check_folder
from stillery.jobs.run_folder import write_json
from stillery.models.model_folder import EXPORT
from stillery.progress import bar, say
from stillery.setting import Named, option_name

__all__ = ["LEAST", "LEAST_INT8", "Request", "check_out", "run_export"]

LEAST, LEAST_INT8 = 99.9, 98.0
"""The agreement in percent that an ONNX file and an int8 file need by default."""

_FP32, _INT8 = "model.onnx", "model.int8.onnx"
_MEASURED = 16
"""The number of examples on which the error of each layer is measured."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for an export.

    Attributes:
        model: a run folder, a model folder, or a name on the hub.
        out: the folder to write.
        int8: whether an int8 file is written too.
        settings: the data settings of the examples to compare on; without data and task those of the model's run.
        split: the split of them; None for the dev split, of a whole file all of it.
        least: the agreement with the checkpoint, in percent, that the ONNX file needs.
        least_int8: the one that the int8 file needs.
        force: whether files below that are written nevertheless.
        overwrite: whether an earlier export in `out` is replaced.
        batch_size: examples at a time in the comparison.
        latency: whether latency is measured.
        named: spells the name of a setting in errors.
    """

    model: str
    out: Path
    int8: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    split: str | None = None
    least: float = LEAST
    least_int8: float = LEAST_INT8
    force: bool = False
    overwrite: bool = False
    batch_size: int = 64
    latency: bool = True
    named: Named = option_name


def run_export(request: Request) -> Exported:
    """Write a folder with the model as ONNX, its tokenizer, labels, an example and a card; refuse one that fails.

    Nothing is written where the gate refuses, and an existing folder is replaced once the new one is complete.
    """
    check_out(request.out, overwrite=request.overwrite)
    check_installed(write=True)
    subject = subject_of(request.model, request.settings, request.split, request.batch_size, request.named)
    with atomic_folder(request.out) as part:
        with bar("write ONNX", 1) as shown:
            write_onnx(subject.reader.loaded.model, part / _FP32, request.model, subject.inputs)
            shown.advance()
        check = _check(subject, part / _FP32)
        _gate(request, subject, f"{_FP32}: {check}", check, least=request.least)
        int8, tried = _quantised(request, subject, part) if request.int8 else (None, [])
        encoding, loaded = subject.reader.encoding, subject.reader.loaded
        write_config(loaded.model.config, part)
        write_tokenizer(loaded.tokenizer, part, encoding.max_length, request.model)
        found, card = described(subject, part / _FP32, check, int8, tried, latency=request.latency)
        found.record["thresholds"] = {"onnx": request.least, "int8": request.least_int8, "forced": request.force}
        (part / "README.md").write_text(card, encoding="utf-8")
        code = example_code(subject, _FP32 if int8 is None else _INT8)
        (part / "example.py").write_text("\n".join(code) + "\n", encoding="utf-8")
        write_json(part / EXPORT, found.record)
    return replace(found, out=request.out)


def check_out(out: Path, *, overwrite: bool) -> None:
    """Raise UserError for a folder that holds something; with `overwrite` for one that is no earlier export."""
    check_folder(out, "--out")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / EXPORT).is_file():
        raise UserError(f"--out {out} is not empty, and holds no export: give another folder")
    if not overwrite:
        raise UserError(f"--out {out} holds an export already: give another folder, or --overwrite to replace it")


def _gate(request: Request, subject: Subject, found: str, check: Check, *, least: float, option: str = "") -> None:
    """Raise UserError with the numbers for a file that does not pass; with `--force` warn."""
    if check.passes(least):
        return
    required = f"{check.agreement.name} of at least {check.agreement.least(least)} with {request.model}"
    line = f"{found}; required is {required} on {subject.where}"
    if not request.force:
        option = option or "--min-agreement"
        raise UserError(f"{line}: nothing is written; {option} asks for less, --force writes it as it is")
    say(f"warning: {line}; written, because of --force")


def _check(subject: Subject, file: Path) -> Check:
    """Compare an ONNX file with the checkpoint on all examples."""
    ours = subject.reader.loaded
    model = cast(PreTrainedModel, OnnxModel(file, ours.model.config))
    reader = replace(subject.reader, loaded=replace(ours, model=model), description=file.name)
    logits, answers = subject.exporting.outputs(reader, subject.scored, subject.tokenised)
    metric, value, interval = subject.score(answers)
    return Check(
        difference=float(np.nanmax(np.abs(logits - subject.logits))),
        agreement=subject.exporting.agreement(subject.scored, answers, subject.answers),
        metric=metric, value=value, interval=interval, output=subject.exporting.output,
    )  # fmt: skip


def _quantised(request: Request, subject: Subject, part: Path) -> tuple[Tried, list[Tried]]:
    """Write the int8 file with the first setting of the quantiser that passes, or by force with the best one."""
    attempts = 0

    def attempt(setting: Setting) -> Tried:
        nonlocal attempts
        attempts += 1
        place = part / f"attempt-{attempts}"
        place.mkdir()
        quantise(part / _FP32, place / _INT8, setting)
        found = Tried(setting=setting, file=place / _INT8, check=_check(subject, place / _INT8))
        if not found.check.passes(request.least_int8):
            say(f"int8 {setting}: {found.check}; below {found.check.agreement.least(request.least_int8)}")
        return found

    best, tried = first_that_passes(FIRST, attempt, request.least_int8)
    if not best.check.passes(request.least_int8):
        worst = most_changed(part / _FP32, _feeds(subject))
        others = with_layers_left_out(best.setting, worst)
        best, tried = first_that_passes(others, attempt, request.least_int8, tried)
    found = f"{_INT8}, the best of {len(tried)} settings ({best.setting}): {best.check}"
    _gate(request, subject, found, best.check, least=request.least_int8, option="--min-agreement-int8")
    for file in best.file.parent.iterdir():
        file.replace(part / file.name)
    shutil.rmtree(best.file.parent)
    return replace(best, file=part / _INT8), tried


def _feeds(subject: Subject) -> dict[str, NDArray[np.int64]]:
    """Return a few examples as the inputs of an ONNX file."""
    inputs = subject.tokenised.batch(np.arange(min(_MEASURED, len(subject.tokenised))), pad_to=1).inputs
    return {name: inputs[name].numpy() for name in subject.inputs}
