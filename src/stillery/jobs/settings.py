"""A run as settings: from the command line, a TOML file, or Python, all by the same names."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from stillery.faults import Fault, Gathered, nearest
from stillery.models.choices import HEADS, LAYER_CHOICES
from stillery.setting import make, setting
from stillery.train.settings import Training

__all__ = [
    "DataSettings",
    "Distill",
    "Finetune",
    "MethodSettings",
    "StudentSettings",
    "flat",
    "merged",
    "read_toml",
    "resolve",
    "to_toml",
]


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Which examples, and how they are read."""

    data: str | None = setting(
        None, "A CSV, TSV, JSON Lines or Parquet file, or a folder with train, dev and test files."
    )
    task: str | None = setting(None, "A named task instead of --data.")
    text: str | None = setting(None, "Column with the text.  [default: found by name]")
    text_pair: str | None = setting(None, "Column with the second text.  [default: found by name]")
    label: str | None = setting(None, "Column with the label.  [default: found by name]")
    regression: bool | None = setting(
        None, "Labels are numbers to predict, not classes.  [default: found from the labels]"
    )
    max_length: int = setting(128, "Tokens per example; longer texts are cut.", least=4)


@dataclass(frozen=True, kw_only=True)
class StudentSettings:
    """What the student is and where its weights come from."""

    layers: int | None = setting(None, "Layers of the student.", least=1)
    width: int | None = setting(None, "Hidden size of the student.  [default: the teacher's]", least=1)
    heads: int | None = setting(None, "Attention heads of the student.  [default: as the width asks for]", least=1)
    init: str | None = setting(
        None,
        f"{', '.join(LAYER_CHOICES)}: which layers to copy; random; or a checkpoint folder.  [default: the method's]",
    )
    copy_layers: tuple[int, ...] | None = setting(None, "Layers to copy, 1-based, such as 2,5,8.")
    init_from: str | None = setting(None, "Copy layers from this pretrained model, not from the teacher.")
    head: str | None = setting(
        None, f"{', '.join(HEADS)}: the student's classifier.  [default: the method's]", choices=HEADS
    )


@dataclass(frozen=True, kw_only=True)
class MethodSettings:
    """Which method, and what differs from its defaults."""

    method: str = setting("layer-forward", "Distillation method; see `stillery methods`.")
    hard_weight: float | None = setting(None, "Weight of the labels' loss.  [default: the method's]", least=0)
    temperature: float | None = setting(None, "Temperature of prediction matching.  [default: the method's]", above=0)
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "A method's own option, NAME=VALUE; may be given again."}
    )

    def method_options(self) -> dict[str, Any]:
        """Everything that is given to the method."""
        shared = {"hard_weight": self.hard_weight, "temperature": self.temperature}
        return {name: value for name, value in shared.items() if value is not None} | dict(self.options)


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """Train a pretrained model on labelled examples."""

    model: str
    data: DataSettings
    training: Training
    fingerprints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Distill:
    """Train a smaller student of a fine-tuned teacher."""

    teacher: str
    data: DataSettings
    student: StudentSettings
    method: MethodSettings
    training: Training
    fingerprints: Mapping[str, str] = field(default_factory=dict)


Run = TypeVar("Run", Finetune, Distill)

_GROUPS = {"data": DataSettings, "student": StudentSettings, "method": MethodSettings, "training": Training}
_PATHS = ("data", "teacher", "model", "init", "init_from")


def _groups(kind: type[Run]) -> dict[str, type]:
    return {item.name: _GROUPS[item.name] for item in dataclasses.fields(kind) if item.name in _GROUPS}


def _names(kind: type) -> list[str]:
    return [item.name for item in dataclasses.fields(kind)]


def resolve(kind: type[Run], values: Mapping[str, Any], where: str = "") -> Run:
    """The run that the given values ask for, all faults reported together; None means not given."""
    faults, given = Gathered(), {name: value for name, value in values.items() if value is not None}
    subject = "teacher" if kind is Distill else "model"
    job = given.pop("job", None)
    if job is not None and job != kind.__name__.lower():
        faults.add(f"{where}job is {job!r}: this command runs {kind.__name__.lower()!r}")
    groups: dict[str, type] = _groups(kind)
    known = {subject, "job", "fingerprints", *(name for group in groups.values() for name in _names(group))}
    for name in given:
        if name not in known:
            faults.add(f"{where}{name} is not a setting: {nearest(name, known)}")
    if not isinstance(given.get(subject), str):
        faults.add(f"{where}{subject} is not given: name a model folder")
    if ("data" in given) == ("task" in given):
        faults.add(f"{where}give either data (a file or folder) or task (a name)")
    if not isinstance(given.get("fingerprints", {}), dict):
        faults.add(f"{where}fingerprints is not a table")
    made: dict[str, Any] = {}
    for group_name, group in groups.items():
        part = {name: given[name] for name in _names(group) if name in given}
        inside = Gathered()
        made[group_name] = make(group, part, where, inside)
        for line in inside.lines:
            faults.add(line)
    faults.raise_any()
    return kind(**{subject: given[subject]}, **made, fingerprints=dict(given.get("fingerprints", {})))


def read_toml(path: Path) -> dict[str, Any]:
    """A run file's values; relative paths in it are taken from its own folder."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Fault(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Fault(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Fault(f"{path}: not a TOML file: {error}") from None
    for name in _PATHS:
        value = values.get(name)
        if isinstance(value, str) and (path.parent / value).exists():
            values[name] = str((path.parent / value).resolve())
    return values


def merged(config: Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run file, if there is one, with those given beside it in their place."""
    values = read_toml(config) if config is not None else {}
    said = {name: value for name, value in given.items() if value is not None}
    if said.keys() & {"data", "task"}:
        values.pop("data", None)
        values.pop("task", None)
    if "options" in said and isinstance(values.get("options"), dict):
        said["options"] = values["options"] | said["options"]
    return values | said


def flat(run: Finetune | Distill) -> dict[str, Any]:
    """A run's settings by their names, without those that are None."""
    values: dict[str, Any] = {"job": type(run).__name__.lower()}
    for item in dataclasses.fields(run):
        value = getattr(run, item.name)
        if item.name in _GROUPS:
            values |= {name: getattr(value, name) for name in _names(_GROUPS[item.name])}
        elif item.name != "fingerprints":
            values[item.name] = value
    tables = {"options": values.pop("options", {}), "fingerprints": dict(run.fingerprints)}
    kept = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {name: value for name, value in kept.items() if value is not None} | {
        name: table for name, table in tables.items() if table
    }


def to_toml(run: Finetune | Distill) -> str:
    """A run as a TOML file that `resolve` reads back; local paths are made absolute."""
    values = flat(run)
    for name in _PATHS:
        if isinstance(values.get(name), str) and Path(values[name]).exists():
            values[name] = str(Path(values[name]).resolve())
    return tomli_w.dumps(values)
