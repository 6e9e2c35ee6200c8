"""Paths of a run's files and folders, as written in its run file and in a model card.

A run file written by a run has the line `paths = "relative to this file"`, and its paths are relative to its own
folder, always with `./` or `../` first. So it holds no absolute path, and still works after the whole project is moved.
A path that shares only the root with that folder is written relative to the home folder (`~/`). For one outside of
that too, the run file has the last name and lists the setting under `elsewhere`, and `machine.toml` beside it has the
absolute path. Without that file these paths have to be given again.
Names of models, tasks and hub repositories stay names. In a file without that line a relative path that exists from
the file's folder is resolved there, and everything else is treated as if it were typed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.models.option_words import STARTS
from stillery.small_files import read_toml

__all__ = [
    "ELSEWHERE",
    "MACHINE",
    "comparable",
    "machine_paths",
    "names_only",
    "places",
    "read_paths",
    "shortened",
    "written_paths",
]

_FILES = ("data", "data_dir", "ild_data")
"""Settings that are always a path."""

_MODELS = ("teacher", "model", "init", "init_from", "ild_teacher")
"""Settings that are a folder or a model name."""

_SETTINGS = (*_MODELS, *_FILES)

MARK = "relative to this file"

ELSEWHERE = "elsewhere"
"""The line of a run file that lists the settings whose paths are in `machine.toml`."""

MACHINE = "machine.toml"
"""The one file of a run folder that holds absolute paths."""


def read_paths(values: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the values of a run file with absolute paths.

    Settings whose path is in neither file are left out, and `elsewhere` is then a table of them and their last names.
    """
    values = dict(values)
    mark = values.pop("paths", None)
    if mark not in (None, MARK):
        raise UserError(f"{file}: paths is {mark!r}: write {MARK!r}, or leave the line out")
    found, unknown = _from_machine(values, values.pop(ELSEWHERE, []), file)
    values = {name: value for name, value in values.items() if name not in unknown}
    given = (_written(values) if mark else {}) | found
    # A model's name is never taken for a folder of the same name where the two can be distinguished.
    others = [name for name in (_FILES if mark else _SETTINGS) if _is_set(values, name) and name not in given]
    beside = {name: file.parent / values[name] for name in others}
    folder = file.resolve().parent
    return (
        values
        | ({ELSEWHERE: unknown} if unknown else {})
        | {name: str(path.resolve()) for name, path in beside.items() if path.exists()}
        | {name: _like(values[name], name, os.path.normpath(folder / _from_home(path))) for name, path in given.items()}
    )


def _from_machine(values: Mapping[str, Any], names: Any, file: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the paths of the settings under `elsewhere`, and the last names of those whose path is unknown here."""
    if not isinstance(names, list) or any(name not in (*_SETTINGS, "recipe") for name in names):
        raise UserError(f"{file}: {ELSEWHERE} is {names!r}: list settings that are paths, or leave the line out")
    paths = _machine_file(file.parent / MACHINE) if names else {}
    # A path in the run file itself was edited in by hand, and takes precedence.
    last_names = {name: values[name] for name in names if name in values and not _is_path(str(values[name]))}
    found = {name: paths[name] for name, last in last_names.items() if Path(paths.get(name, "")).name == last}
    unknown = {name: last for name, last in last_names.items() if name not in paths}
    files = {name: path.rpartition(":")[0] if name == "recipe" else path for name, path in found.items()}
    return files, unknown


def _machine_file(path: Path) -> dict[str, str]:
    try:
        values = read_toml(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason}); remove it, and name the paths again") from None
    return {name: value for name, value in values.items() if isinstance(value, str)}


def written_paths(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the values of a run as written in its run file in `folder`."""
    far = machine_paths(values, folder)
    there = {name: _like(values[name], name, _seen_from(folder, path)) for name, path in places(values).items()}
    there |= {name: Path(path).name for name, path in far.items()}
    return {"job": values["job"], "paths": MARK} | ({ELSEWHERE: sorted(far)} if far else {}) | dict(values) | there


def machine_paths(values: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the paths that the run file in `folder` leaves out, by setting, as written in `machine.toml` there."""
    seen = {name: _seen_from(folder, path) for name, path in places(values).items()}
    return {name: _like(values[name], name, path) for name, path in seen.items() if Path(path).is_absolute()}


def comparable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a run with every path resolved, so that two runs can be compared."""
    there = {name: _like(values[name], name, str(path.resolve())) for name, path in places(values).items()}
    return dict(values) | there


def names_only(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a run with only the last name of each path, for a model card."""
    there = {name: _like(values[name], name, _last(path)) for name, path in places(values).items()}
    return dict(values) | there


def shortened(text: str, values: Mapping[str, Any]) -> str:
    """Replace the run's paths in a text by their last names."""
    typed = {str(values[name]): _last(path) for name, path in places(values).items() if name != "recipe"}
    for path in sorted((one for one in typed if Path(one).name != one), key=len, reverse=True):
        text = text.replace(path, typed[path])
    return text


def places(values: Mapping[str, Any]) -> dict[str, Path]:
    """Return the settings that name an existing file or folder, with its path."""
    found = {name: _from_home(values[name]) for name in _SETTINGS if _is_set(values, name)}
    if (file := _recipe_file(values)) is not None:
        found["recipe"] = file
    return {name: path for name, path in found.items() if path.exists()}


def _written(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that are a path in a run file with the `paths` line, with the path."""
    found = {name: values[name] for name in _SETTINGS if _is_set(values, name) and _is_path(values[name])}
    file = _recipe_file(values)
    return found if file is None else found | {"recipe": str(file)}


def _from_home(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # `~user` of an unknown user
        return Path(path)


def _is_path(value: str) -> bool:
    """Return whether a value is written as a path; no name of a model or hub repository begins this way."""
    return value.startswith((".", "~")) or Path(value).is_absolute()


def _is_set(values: Mapping[str, Any], name: str) -> bool:
    """Return whether a setting may name a file or folder; the keywords of `init` do not."""
    value = values.get(name)
    return isinstance(value, str) and not (name == "init" and value in STARTS)


def _recipe_file(values: Mapping[str, Any]) -> Path | None:
    """Return the file of a recipe `FILE.py:FUNCTION`, or None."""
    where = values.get("recipe")
    file = Path(where.rpartition(":")[0]) if isinstance(where, str) else Path()
    return file if file.suffix == ".py" else None


def _like(value: str, name: str, path: str) -> str:
    """Return the path in the form of the setting's value: a recipe has a function name after its file."""
    return f"{path}:{value.rpartition(':')[2]}" if name == "recipe" else path


def _last(path: Path) -> str:
    return _as_named(path).name


def _seen_from(folder: Path, path: Path) -> str:
    """Return a path as written in the run file in a folder."""
    base, ways = folder.resolve(), [_as_named(path), path.resolve()]
    # A symbolic link is written by its own name, unless its target is nearer.
    near = [os.path.relpath(way, base) for way in ways if _common(base, way) is not None]
    if near:
        nearest = min(near, key=lambda way: Path(way).parts.count(".."))
        return Path(nearest).as_posix() if Path(nearest).parts[:1] == ("..",) else f"./{Path(nearest).as_posix()}"
    home = _home()
    if home is not None and ways[0].is_relative_to(home):
        return f"~/{ways[0].relative_to(home).as_posix()}"
    return str(ways[0])


def _as_named(path: Path) -> Path:
    """Return a path as an absolute one without resolving symbolic links."""
    named = Path(os.path.normpath(path.absolute()))
    # After a symbolic link, `..` is not the folder that holds the link.
    return named if named.resolve() == path.resolve() else path.resolve()


def _common(one: Path, other: Path) -> Path | None:
    """Return the folder that two absolute paths share; None if that is only the root."""
    try:
        common = Path(os.path.commonpath([one, other]))
    except ValueError:  # two drives
        return None
    return None if common == Path(common.anchor) else common


def _home() -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return None if home == Path(home.anchor) else home
