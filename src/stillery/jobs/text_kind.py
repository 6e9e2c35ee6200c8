"""Whether a job is about a model that writes text, and what then does not go together."""

from __future__ import annotations

import dataclasses

from stillery.faults import Fault, Gathered
from stillery.jobs.settings import DecodingSettings, Distill, Finetune, TextSettings
from stillery.models.load import model_kind
from stillery.setting import option_name

__all__ = ["check_no_text", "writes_text"]


def writes_text(model: str) -> bool | None:
    """Whether a model is an encoder-decoder or a decoder; None where it cannot be read, which its loader has to say."""
    try:
        return model_kind(model) != "encoder"
    except Fault:
        return None


def check_no_text(run: Finetune | Distill, faults: Gathered) -> None:
    """Note every setting of a classifier's run that is for models that write text."""
    names = _changed(run.writing) + _changed(run.decoding)
    if isinstance(run, Distill):
        student, method = run.student, run.method
        extra = {"encoder_layers": student.encoder_layers, "decoder_layers": student.decoder_layers,
                 "copy_encoder_layers": student.copy_encoder_layers, "copy_decoder_layers": student.copy_decoder_layers,
                 "freeze_embeddings": student.freeze_embeddings, "tie_embeddings": student.tie_embeddings,
                 "copy_embeddings": student.copy_embeddings, "cross_attention": method.cross_attention or None,
                 "sequence_level": method.sequence_level or None, "on_policy": method.on_policy or None}  # fmt: skip
        names += [name for name, value in extra.items() if value is not None]
    for name in names:
        faults.add(f"{option_name(name)} is for models that write text, such as T5 or Llama; this one is a classifier")


def _changed(given: TextSettings | DecodingSettings) -> list[str]:
    default = type(given)()
    return [item.name for item in dataclasses.fields(given) if getattr(given, item.name) != getattr(default, item.name)]
