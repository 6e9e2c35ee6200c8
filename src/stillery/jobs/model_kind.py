"""Whether a job is about a model that writes text, and what then does not go together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from stillery.errors import ErrorList, UserError
from stillery.jobs.config.settings import (
    Asked,
    DataSettings,
    Distill,
    GenerationSettings,
    Run,
    SearchSettings,
    setting_names,
)
from stillery.models.load import model_kind
from stillery.setting import option_name

__all__ = ["check_no_classes", "check_no_search", "check_no_text", "refuse_text", "writes_text"]


def writes_text(model: str) -> bool | None:
    """Whether a model is an encoder-decoder or a decoder; None where it cannot be read, which its loader has to say."""
    try:
        return model_kind(model) != "encoder"
    except UserError:
        return None


def check_no_text(asked: Asked[Run], errors: ErrorList) -> None:
    """Note every setting of a classifier's run that is for models that write text."""
    run, given = asked.run, _said(asked)
    check_no_search(run.generation, run.search, errors)
    names = [name for group in (GenerationSettings, SearchSettings) for name in setting_names(group) if name in given]
    if isinstance(run, Distill):
        student, method = run.student, run.method
        extra = {"encoder_layers": student.encoder_layers, "decoder_layers": student.decoder_layers,
                 "copy_encoder_layers": student.copy_encoder_layers, "copy_decoder_layers": student.copy_decoder_layers,
                 "freeze_embeddings": student.freeze_embeddings, "tie_embeddings": student.tie_embeddings,
                 "copy_embeddings": student.copy_embeddings, "cross_attention": method.cross_attention or None,
                 "sequence_level": method.sequence_level or None, "on_policy": method.on_policy or None,
                 "drop_start": method.drop_start or None,
                 "stacks": method.stacks if method.stacks != "both" else None}  # fmt: skip
        names += [name for name, value in extra.items() if value is not None or name in given]
    refuse_text(names, errors)


def _said(asked: Asked[Run]) -> frozenset[str]:
    """The settings that somebody gave; a run file that a run wrote has them all, and nobody gave those."""
    return frozenset() if "job" in asked.given else asked.given


def check_no_search(writing: GenerationSettings, decoding: SearchSettings, errors: ErrorList) -> None:
    """Note what is said to a classifier about texts to write, and how they are searched for."""
    refuse_text(_changed(writing) + _changed(decoding), errors)


def check_no_classes(data: DataSettings, errors: ErrorList) -> None:
    """Note what is said about labels to a model that writes text."""
    given = {"text": data.text, "text_pair": data.text_pair, "label": data.label, "regression": data.regression,
             "multi_label": data.multi_label, "label_separator": data.label_separator}  # fmt: skip
    for name in (name for name, value in given.items() if value is not None):
        errors.add(f"{option_name(name)} is for classifiers: a model that writes text has --source and --target")


def refuse_text(names: Sequence[str], errors: ErrorList) -> None:
    """Note settings, by name, that are given to a classifier and are for models that write text."""
    for name in names:
        errors.add(f"{option_name(name)} is for models that write text, such as T5 or Llama; this one is a classifier")


def _changed(given: GenerationSettings | SearchSettings) -> list[str]:
    default = type(given)()
    return [item.name for item in dataclasses.fields(given) if getattr(given, item.name) != getattr(default, item.name)]
