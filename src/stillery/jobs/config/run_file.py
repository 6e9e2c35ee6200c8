"""Run files: read a run's settings from TOML, merge them with the options given beside it, and write them."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from stillery import small_files
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
from stillery.models.model_folder import EXPORT, is_onnx, run_in
from stillery.near_names import missing_file
from stillery.progress import say
from stillery.setting import Named, make, option_name
from stillery.train.settings import Storing
from stillery.words import read_along

__all__ = [
    "AS_IT_BEGAN",
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
"""The settings that the choice of a model's important layers depends on."""


_STORED = (EXAMPLES | set(setting_names(ConditionSettings)) | set(setting_names(MethodSettings))) | {
    *setting_names(Storing), "teacher", "max_length", "epochs", "max_steps", "precision"
}  # fmt: skip
"""The settings that the choice of whether to use a teacher cache depends on."""


_IN_PLACE_OF = {name: {name} for name in ("teacher", "model", "recipe", "init", "init_from", "ild_teacher")} | {
    "data": {"data", "task"}, "data_dir": {"data_dir", "data"}, "ild_data": {"ild_data", "ild_task"}
}  # fmt: skip
"""The settings that may be given in place of one whose path a run file leaves out."""


AS_IT_BEGAN = Path("checkpoints") / "run.toml"
"""The copy of its run file that an unfinished run keeps, to find out what was edited."""


_MACHINE_HEAD = "# Paths of this machine: --config and --resume read them here. Leave it out when you share the folder."


_STAGED = ("cr-ild", "emd-ild", "l-ild", "u-ild", "minilm", "minilm-v2", "tinybert", "universal-kd")
_BEFORE: dict[str, dict[str, Any]] = {
    **{method: {"least_steps": 1} for method in _STAGED},
    **{method: {"projection_start": "literal"} for method in ("rail-kd", "rail-kd-concat")},
}
"""Option values implied by run files of these methods that were written before the options existed."""


def ask(kind: type[Run], given: Mapping[str, Any], config: Path | None = None, named: Named = str) -> Asked[Run]:
    """Build a run from the given values, its preset and a run file; `named` spells the name of a given value."""
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
    """Raise UserError for paths that are missing from the run file, from `machine.toml` and from the options."""
    if not unknown:
        return
    what = " and ".join(f"{name} {last!r}" for name, last in unknown.items())
    verb, its = ("lie", "their paths") if len(unknown) > 1 else ("lies", "its path")
    options = " ".join(f"{named(name)} {'FILE:FUNCTION' if name == 'recipe' else 'PATH'}" for name in unknown)
    raise UserError(
        f"{config}: {what} {verb} elsewhere, and {MACHINE} with {its} is not here: to run it, pass {options}"
    )


def ask_method(given: Mapping[str, Any]) -> MethodSettings:
    """Build the method settings from command-line options; None means not given."""
    said, errors = {name: value for name, value in given.items() if value is not None}, ErrorList()
    if isinstance(said.get("recipe"), str):
        read_along(Path(said["recipe"].rpartition(":")[0]))
    found, _ = make(MethodSettings, said, option_name, errors)
    errors.raise_any()
    return found


def _as_it_was(values: dict[str, Any]) -> dict[str, Any]:
    """Add options introduced since a run wrote its run file; one written by hand is left unchanged."""
    method, options = values.get("method"), values.get("options", {})
    if not values.get("fingerprints") or not isinstance(method, str) or not isinstance(options, dict):
        return values
    return values | {"options": _BEFORE.get(method, {}) | options}


def trained_reading(model: str) -> dict[str, Any]:
    """Return the lengths, prompt and prefix that a model was trained with, from the run file beside it."""
    names = ("max_length", "max_target_length", "prompt", "prefix")
    return {name: value for name, value in run_of(model).items() if name in names}


def trained_search(model: str) -> dict[str, Any]:
    """Return the search settings that a model's run was scored with, from the run file beside it."""
    names = setting_names(SearchSettings)
    return {name: value for name, value in run_of(model).items() if name in names}


def trained_length(model: str) -> dict[str, int]:
    """Return the max_length that a model was trained with, from the run file beside it; empty if not found."""
    length = run_of(model).get("max_length")
    return {"max_length": length} if isinstance(length, int) else {}


def trained_task(model: str) -> str | None:
    """Return the named task that a model was trained on, from the run file beside it; None if not found."""
    task = run_of(model).get("task")
    return task if isinstance(task, str) else None


def trained_on(model: str) -> Path | None:
    """Return the data file whose training split a model was trained on, from the run file beside it."""
    data = run_of(model).get("data")
    return Path(data).resolve() if isinstance(data, str) and Path(data).is_file() else None


def run_of(model: str) -> dict[str, Any]:
    """Return the values of the run file beside a model, of an export those that it keeps; empty if there is none."""
    folder = run_in(model)
    return _of_export(Path(model).expanduser()) if folder is None else read_toml(folder / "run.toml")


def _of_export(path: Path) -> dict[str, Any]:
    """Return the settings of the run that an exported model comes from, without paths; empty for any other model."""
    folder = path.parent if path.suffix == ".onnx" else path
    if not is_onnx(folder):
        return {}
    try:
        kept = small_files.read_json(folder / EXPORT).get("run")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{folder / EXPORT}: not as stillery export writes it ({error}); export again") from None
    return dict(kept) if isinstance(kept, dict) else {}


def file_to_resume(out: Path, resume: bool, given: Mapping[str, Any]) -> Path | None:
    """Return the run file of the folder to resume, where --resume and --out are the only options given.

    The only others allowed are those that divide its steps (`CUT`), and paths that the run file leaves out.
    """
    if not resume:
        return None
    written = out / "run.toml"
    unknown = _read_to_resume(out).get(ELSEWHERE, {}) if written.is_file() else {}
    if any(value is not None for name, value in given.items() if name not in {*CUT, *unknown}):
        return None
    if not written.is_file():
        raise UserError(f"--resume: there is no run in {out} to continue; name its folder, or what to run")
    return written


def _read_to_resume(out: Path) -> dict[str, Any]:
    """Read the run file of a run to continue; where it is damaged, the error says where a copy of it is."""
    written, copy = out / "run.toml", out / AS_IT_BEGAN
    try:
        return read_toml(written)
    except UserError as error:
        try:
            tomllib.loads(copy.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise error from None
        raise UserError(f"{error}; {copy} is a copy of it as the run began: put it in its place") from None


def _beside(values: dict[str, Any], said: dict[str, Any], unknown: Iterable[str] = ()) -> dict[str, Any]:
    """Override a run file's values with those given beside it; the `unknown` ones have no path in the file."""
    # A path given for one that the file leaves out names the same data or model, so what was derived from it is kept.
    instead = said.keys() - set(unknown)
    if said.keys() & {"data", "task"}:
        values = {name: value for name, value in values.items() if name not in ("data", "task")}
    if said.keys() & {"ild_data", "ild_task"}:
        values = {name: value for name, value in values.items() if name not in ("ild_data", "ild_task")}
    if "layers" in said:
        values = {name: value for name, value in values.items() if name not in ("encoder_layers", "decoder_layers")}
    if values.get("init") == "important" and instead & _MEASURED:
        # The layers in the file were chosen under settings that are now replaced.
        lists = ("copy_layers", "copy_encoder_layers", "copy_decoder_layers")
        values = {name: value for name, value in values.items() if name not in lists}
    if "method" in said and said["method"] != values.get("method"):
        # Options and weights of another method do not apply to this one.
        values = {
            name: value for name, value in values.items() if name not in ("options", "hard_weight", "temperature")
        }
    if instead & _STORED:
        values = {name: value for name, value in values.items() if name != "stored_stages"}
    if said.keys() & set(CUT):
        # The file's number of processes belongs to its own batch size, not to the one given.
        values = {name: value for name, value in values.items() if name != "processes"}
    if isinstance(values.get("options"), dict) and isinstance(said.get("options"), dict):
        said = said | {"options": values["options"] | said["options"]}
    if isinstance(values.get("fingerprints"), dict):
        # The file's fingerprints hold for its own data and models, not for those given in their place.
        replaced = instead & {"teacher", "model", "recipe", "init", "init_from", "ild_teacher"}
        replaced |= {"ild_data"} if instead & {"ild_data", "ild_task"} else set()
        replaced |= {"data"} if instead & (EXAMPLES | set(setting_names(ConditionSettings))) else set()
        replaced |= {f"{name}_{part}" for name in replaced for part in ("config", "tokenizer")}
        kept = {name: value for name, value in values["fingerprints"].items() if name not in replaced}
        values = values | {"fingerprints": kept}
    return values | said


def read_toml(path: Path, beside: Path | None = None) -> dict[str, Any]:
    """Read a run file's values; its relative paths start from its own folder (`stillery.jobs.config.run_paths`).

    A copy of a run file is read as if it lay `beside` the original.
    """
    try:
        values = small_files.read_toml(path)
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
    except ValueError as error:
        raise UserError(f"{path}: not a TOML file: {error}") from None
    return read_paths(values, beside or path)


def to_toml(run: Finetune | Distill, folder: Path) -> str:
    """Return a run as TOML for the run file in a folder, which `read_toml` reads back."""
    return tomli_w.dumps(written_paths(values_of(run), folder))


def machine_toml(run: Finetune | Distill, folder: Path) -> str | None:
    """Return the paths that the run file in a folder leaves out, as TOML; None if there are none."""
    paths = machine_paths(values_of(run), folder)
    return f"{_MACHINE_HEAD}\n{tomli_w.dumps(paths)}" if paths else None


def values_of(run: Finetune | Distill) -> dict[str, Any]:
    """Return a run as the values of a TOML file, with its paths as given; settings that are None are left out."""
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
