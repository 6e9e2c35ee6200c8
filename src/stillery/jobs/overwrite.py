"""`--overwrite`: remove an earlier run to make room for a new one, and never anything else."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from stillery.atomic import is_part
from stillery.errors import UserError
from stillery.jobs.config.run_file import read_toml, values_of
from stillery.jobs.config.run_paths import places
from stillery.jobs.config.settings import Distill, Finetune
from stillery.jobs.run_folder import RUN_FILES
from stillery.jobs.run_lock import LOCK
from stillery.setting import option_name

__all__ = ["check_replaceable", "is_model_file", "remove_run"]

_MODEL_FILES = re.compile(
    r"(generation_)?config\.json|model.*\.safetensors(\.index\.json)?|student\.safetensors|head\.json|README\.md"
    r"|(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template)\.\w+|merges\.txt|[\w.]+\.model"
    r"|modules\.json|sentence_bert_config\.json|config_sentence_transformers\.json"
)
"""Files of an exported model; any other file beside a run's own is the user's."""
_MODEL_FOLDERS = re.compile(r"additional_chat_templates|\d+_(Pooling|Dense|Normalize)")
"""Folders of an exported model: a tokenizer's, and those of an embedder's modules."""
_RUN_FOLDERS = re.compile(rf"{_MODEL_FOLDERS.pattern}|student|seed-\d+")
"""Folders of a run beside `RUN_FILES`: its model's, the model of an earlier version, the runs of --restarts."""
_SHOWN = 3


def check_replaceable(out: Path, run: Finetune | Distill | None = None) -> None:
    """Raise UserError for a folder that holds more than an earlier run, or inputs of the new run.

    A folder that is empty or does not exist is fine: there is nothing to replace.
    """
    written = out / "run.toml"
    if not written.is_file():
        return
    values = read_toml(written)
    # Every run writes these; a run file written by hand, such as one beside a user's data, has none.
    if values.get("job") not in ("distill", "finetune") or not values.get("fingerprints"):
        raise UserError(
            f"--out {out}: its run.toml was not written by a run, so it is not overwritten: give another folder"
        )
    others = sorted(entry.name for entry in out.iterdir() if not _is_of_a_run(entry))
    if others:
        shown = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        raise UserError(
            f"--out {out} is not overwritten, for it holds more than a run ({shown}): move that, or give another folder"
        )
    if run is None:
        return
    whole = out.resolve()
    for name, place in places(values_of(run)).items():
        if place.resolve().is_relative_to(whole):
            raise UserError(f"--out {out} is not overwritten, for {option_name(name)} is in it: give another folder")


def _is_of_a_run(entry: Path) -> bool:
    if entry.name in (*RUN_FILES, LOCK) or is_part(entry):
        return True
    if entry.name == "student" and (entry / "run.toml").is_file():
        # Not the model of a run by an earlier version, but another run.
        return False
    known = _RUN_FOLDERS if entry.is_dir() and not entry.is_symlink() else _MODEL_FILES
    return bool(known.fullmatch(entry.name))


def is_model_file(entry: Path) -> bool:
    """Return whether this is a file or folder of an exported model."""
    return bool((_MODEL_FOLDERS if entry.is_dir() else _MODEL_FILES).fullmatch(entry.name))


def remove_run(out: Path) -> None:
    """Empty the folder of an earlier run.

    If the process is killed meanwhile, an unfinished run is left, which can be overwritten again: the metrics are
    removed first, the run file last.
    """
    if not (out / "run.toml").is_file():
        return
    check_replaceable(out)
    try:
        (out / "metrics.json").unlink(missing_ok=True)
        for entry in sorted(out.iterdir(), key=lambda entry: entry.name == "run.toml"):
            if entry.name == LOCK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    except OSError as error:
        raise UserError(f"--out {out} cannot be overwritten ({error.strerror or error}): give another folder") from None
