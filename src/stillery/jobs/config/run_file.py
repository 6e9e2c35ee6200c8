"""A run as a TOML file: read, merged with what is given beside it, and written."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from stillery.errors import ErrorList, UserError
from stillery.jobs.config.presets import preset
from stillery.jobs.config.run_paths import ELSEWHERE, MACHINE, machine_paths, read_paths, written_paths
from stillery.jobs.config.settings import (
    EXAMPLES,
    GROUPS,
    Asked,
    ConditionSettings,
    Distill,
    Finetune,
    MethodSettings,
    Run,
    SearchSettings,
    resolve,
    setting_names,
)
from stillery.jobs.config.step_size import CUT
from stillery.models.model_folder import run_in
from stillery.near_names import missing_file
from stillery.progress import say
from stillery.setting import Named, make, option_name
from stillery.train.settings import Storing
from stillery.words import read_along

__all__ = [
    "ask",
    "ask_method",
    "file_to_resume",
    "machine_toml",
    "read_toml",
    "run_of",
    "to_toml",
    "trained_length",
    "trained_on",
    "trained_reading",
    "trained_search",
    "trained_task",
    "values_of",
]

_MEASURED = (EXAMPLES | set(setting_names(ConditionSettings))) | {
    "teacher", "init", "init_from", "layers", "encoder_layers", "decoder_layers"
}  # fmt: skip
"""What the important layers of a model depend on."""


_STORED = (EXAMPLES | set(setting_names(ConditionSettings)) | set(setting_names(MethodSettings))) | {
    *setting_names(Storing), "teacher", "max_length", "epochs", "max_steps", "precision"
}  # fmt: skip
"""What it depends on whether a teacher cache is worth it."""


_IN_PLACE_OF = {name: {name} for name in ("teacher", "model", "recipe", "init", "init_from", "ild_teacher")} | {
    "data": {"data", "task"}, "data_dir": {"data_dir", "data"}, "ild_data": {"ild_data", "ild_task"}
}  # fmt: skip
"""The settings that may be given in place of one that a run file leaves out."""


_MACHINE_HEAD = "# Paths of this machine: --config and --resume read them here. Leave it out when you share the folder."


_STAGED = ("cr-ild", "emd-ild", "l-ild", "u-ild", "minilm", "minilm-v2", "tinybert", "universal-kd")
_BEFORE: dict[str, dict[str, Any]] = {
    **{method: {"least_steps": 1} for method in _STAGED},
    **{method: {"projection_start": "literal"} for method in ("rail-kd", "rail-kd-concat")},
}
"""What a run file of these methods meant that was written before they had these options."""


def ask(kind: type[Run], given: Mapping[str, Any], config: Path | None = None, named: Named = str) -> Asked[Run]:
    """The run of the given values and, where they are silent, of a run file; `named` spells a given value's name."""
    said = {name: value for name, value in given.items() if value is not None}
    values = dict(preset(said.pop("preset"), kind.__name__.lower()).settings) if "preset" in said else {}
    if config is None:
        said.pop("given_in_python", None)
        return resolve(kind, _beside(values, said), named)
    from_file = read_toml(config)
    unknown = from_file.pop(ELSEWHERE, {})
    _ask_where(config, {name: last for name, last in unknown.items() if not said.keys() & _IN_PLACE_OF[name]}, named)
    if "recipe" in from_file and "recipe" not in said:
        raise UserError(
            f"{config}: a run file may not start code; if you trust it, pass --recipe {from_file['recipe']}"
        )
    from_file = _as_it_was(from_file)
    functions = set(from_file.pop("given_in_python", [])) - set(said.pop("given_in_python", None) or [])
    if functions:
        say(f"{config}: its run had {', '.join(sorted(functions))} from Python, which this one has not")
    values = _beside(_beside(from_file, values), said, unknown)
    return resolve(kind, values, lambda name: named(name) if name in said else f"{config}: {name}")


def _ask_where(config: Path, unknown: Mapping[str, str], named: Named) -> None:
    """Refuse a run file with paths that neither it nor a file beside it has, and that are not given either."""
    if not unknown:
        return
    what = " and ".join(f"{name} {last!r}" for name, last in unknown.items())
    verb, its = ("lie", "their paths") if len(unknown) > 1 else ("lies", "its path")
    options = " ".join(f"{named(name)} {'FILE:FUNCTION' if name == 'recipe' else 'PATH'}" for name in unknown)
    raise UserError(
        f"{config}: {what} {verb} elsewhere, and {MACHINE} with {its} is not here: to run it, pass {options}"
    )


def ask_method(given: Mapping[str, Any]) -> MethodSettings:
    """Which method, by options of the command line; None means not given."""
    said, errors = {name: value for name, value in given.items() if value is not None}, ErrorList()
    if isinstance(said.get("recipe"), str):
        read_along(Path(said["recipe"].rpartition(":")[0]))
    found, _ = make(MethodSettings, said, option_name, errors)
    errors.raise_any()
    return found


def _as_it_was(values: dict[str, Any]) -> dict[str, Any]:
    """A run file that a run wrote, with the options its method has got since; one written by hand stays as it is."""
    method, options = values.get("method"), values.get("options", {})
    if not values.get("fingerprints") or not isinstance(method, str) or not isinstance(options, dict):
        return values
    return values | {"options": _BEFORE.get(method, {}) | options}


def trained_reading(model: str) -> dict[str, Any]:
    """How a model was shown texts in training, as settings, where its run file lies beside it."""
    names = ("max_length", "max_target_length", "prompt", "prefix")
    return {name: value for name, value in run_of(model).items() if name in names}


def trained_search(model: str) -> dict[str, Any]:
    """How a model's texts were searched for when its run was scored, as settings, where its run file lies beside it."""
    names = setting_names(SearchSettings)
    return {name: value for name, value in run_of(model).items() if name in names}


def trained_length(model: str) -> dict[str, int]:
    """The max_length a model was trained with, as a setting, where its run file lies beside it."""
    length = run_of(model).get("max_length")
    return {"max_length": length} if isinstance(length, int) else {}


def trained_task(model: str) -> str | None:
    """The named task a model was trained on, where its run file lies beside it."""
    task = run_of(model).get("task")
    return task if isinstance(task, str) else None


def trained_on(model: str) -> Path | None:
    """The file a model was trained on parts of, where its run file lies beside it."""
    data = run_of(model).get("data")
    return Path(data).resolve() if isinstance(data, str) and Path(data).is_file() else None


def run_of(model: str) -> dict[str, Any]:
    """The run file that lies beside a model; empty where there is none."""
    folder = run_in(model)
    return {} if folder is None else read_toml(folder / "run.toml")


def file_to_resume(out: Path, resume: bool, given: Mapping[str, Any]) -> Path | None:
    """The run file of the folder to go on with, where a user says --resume and --out and nothing else.

    Nothing but, at most, what its steps are cut into from now on, and paths that the file does not have.
    """
    if not resume:
        return None
    written = out / "run.toml"
    unknown = read_toml(written).get(ELSEWHERE, {}) if written.is_file() else {}
    if any(value is not None for name, value in given.items() if name not in {*CUT, *unknown}):
        return None
    if not written.is_file():
        raise UserError(f"--resume: there is no run in {out} to go on with; name its folder, or say what to run")
    return written


def _beside(values: dict[str, Any], said: dict[str, Any], unknown: Iterable[str] = ()) -> dict[str, Any]:
    """A run file's values with those said beside it in their place; of the `unknown` ones the file has no path."""
    # Where the file has no path, what is said has to be what it means, and all that was found with it stays.
    instead = said.keys() - set(unknown)
    if said.keys() & {"data", "task"}:
        values = {name: value for name, value in values.items() if name not in ("data", "task")}
    if said.keys() & {"ild_data", "ild_task"}:
        values = {name: value for name, value in values.items() if name not in ("ild_data", "ild_task")}
    if "layers" in said:
        values = {name: value for name, value in values.items() if name not in ("encoder_layers", "decoder_layers")}
    if values.get("init") == "important" and instead & _MEASURED:
        # The layers it names were found under what is now replaced.
        lists = ("copy_layers", "copy_encoder_layers", "copy_decoder_layers")
        values = {name: value for name, value in values.items() if name not in lists}
    if "method" in said and said["method"] != values.get("method"):
        # Another method's options and weights mean nothing to this one.
        values = {
            name: value for name, value in values.items() if name not in ("options", "hard_weight", "temperature")
        }
    if instead & _STORED:
        values = {name: value for name, value in values.items() if name != "stored_stages"}
    if said.keys() & set(CUT):
        # How many processes the file's own batch size was for says nothing about this one.
        values = {name: value for name, value in values.items() if name != "processes"}
    if isinstance(values.get("options"), dict) and isinstance(said.get("options"), dict):
        said = said | {"options": values["options"] | said["options"]}
    if isinstance(values.get("fingerprints"), dict):
        # The file vouches for what it names itself, not for what is said in its place.
        replaced = instead & {"teacher", "model", "recipe", "init", "init_from", "ild_teacher"}
        replaced |= {"ild_data"} if instead & {"ild_data", "ild_task"} else set()
        replaced |= {"data"} if instead & (EXAMPLES | set(setting_names(ConditionSettings))) else set()
        kept = {name: value for name, value in values["fingerprints"].items() if name not in replaced}
        values = values | {"fingerprints": kept}
    return values | said


def read_toml(path: Path) -> dict[str, Any]:
    """A run file's values; relative paths in it are taken from its own folder (`stillery.jobs.config.run_paths`)."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise missing_file(path) from None
    except IsADirectoryError:
        inside = path / "run.toml"
        cure = f"give {inside}" if inside.is_file() else "give a run file, such as the run.toml of a run folder"
        raise UserError(f"{path} is a folder: {cure}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text; save the file as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not a TOML file: {error}") from None
    return read_paths(values, path)


def to_toml(run: Finetune | Distill, folder: Path) -> str:
    """A run as the TOML file in a folder that `read_toml` reads back."""
    return tomli_w.dumps(written_paths(values_of(run), folder))


def machine_toml(run: Finetune | Distill, folder: Path) -> str | None:
    """The paths that the run file in a folder leaves out, as a TOML file; None where there are none."""
    paths = machine_paths(values_of(run), folder)
    return f"{_MACHINE_HEAD}\n{tomli_w.dumps(paths)}" if paths else None


def values_of(run: Finetune | Distill) -> dict[str, Any]:
    """A run as the values of a TOML file, with its paths as they were given; settings that are None are left out."""
    values: dict[str, Any] = {"job": type(run).__name__.lower()}
    for item in dataclasses.fields(run):
        value = getattr(run, item.name)
        in_group = setting_names(GROUPS[item.name]) if item.name in GROUPS else []
        values |= {name: getattr(value, name) for name in in_group} or {item.name: value}
    # In TOML, tables come after plain values.
    tables = {name: dict(values.pop(name, {})) for name in ("options", "fingerprints")}
    plain = {name: value for name, value in values.items() if value is not None}
    filled = {name: table for name, table in tables.items() if table}
    return tomllib.loads(tomli_w.dumps(plain | filled))
