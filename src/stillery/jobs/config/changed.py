"""What changed since a run began: the content of its inputs, by their fingerprints, and its run file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.jobs.config.run_file import AS_IT_BEGAN, read_toml
from stillery.jobs.config.run_paths import ELSEWHERE, comparable
from stillery.lines import listed

__all__ = ["changed_inputs", "check_unedited", "input_in_words"]

_MAY_CHANGE = {"checkpoint_seconds", "stored_stages", "given_in_python"}
_OF_A_MODEL = {"config": "configuration", "tokenizer": "tokenizer"}


def changed_inputs(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the fingerprints that differ, by name.

    Those of configurations and tokenizers are compared only if both are there and of the same versions: earlier
    versions did not write them, and another version of transformers may describe the same files in other words.
    """
    found = []
    for name in sorted(before.keys() | now.keys()):
        ours, theirs = before.get(name), now.get(name)
        if name.rpartition("_")[2] in _OF_A_MODEL and _version(ours) != _version(theirs):
            continue
        if ours != theirs:
            found.append(name)
    return found


def _version(print_: str | None) -> str | None:
    return None if print_ is None else str(print_).partition(" ")[2]


def input_in_words(name: str) -> str:
    """Name an input by its fingerprint.

    >>> input_in_words("data"), input_in_words("teacher_config")
    ('the data', "the teacher's configuration")
    """
    model, _, part = name.rpartition("_")
    return f"the {model}'s {_OF_A_MODEL[part]}" if part in _OF_A_MODEL else f"the {name}"


def check_unedited(out: Path) -> None:
    """Raise UserError if the run file of an unfinished run was edited since the run began, which would change it."""
    copy, written = out / AS_IT_BEGAN, out / "run.toml"
    if not copy.is_file() or not written.is_file():
        return
    try:
        before = comparable(read_toml(copy, beside=written))
    except UserError:
        # Without it nothing is known; the run file itself is still checked by everything else.
        return
    now = comparable(read_toml(written))
    unknown = {ELSEWHERE, *before.get(ELSEWHERE, {}), *now.get(ELSEWHERE, {})}
    names = sorted((before.keys() | now.keys()) - _MAY_CHANGE - unknown)
    edited = [_edit(name, before, now) for name in names if before.get(name) != now.get(name)]
    if edited:
        raise UserError(
            f"{written} was edited since the run began ({listed(edited)}): undo that to continue with --resume, or "
            "start again with --overwrite"
        )


def _edit(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if isinstance(before.get(name, {}), Mapping) and isinstance(now.get(name, {}), Mapping):
        ours, theirs = before.get(name, {}), now.get(name, {})
        inner = sorted(each for each in ours.keys() | theirs.keys() if ours.get(each) != theirs.get(each))
        return ", ".join(_edit(each, ours, theirs).replace(each, f"{name}.{each}", 1) for each in inner)
    ours, theirs = ("not there" if name not in values else f"{values[name]!r:.60}" for values in (before, now))
    return f"{name} was {ours}, now {theirs}"
