"""Labels: from what a file says to the numbers a model learns, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PretrainedConfig

from stillery.data.rows import at_rows
from stillery.faults import Fault, Gathered

__all__ = ["Labels", "encode", "infer", "label_name", "refuse_constant"]

MOST_CLASSES = 1000
LARGEST = float(np.finfo(np.float32).max)
FEW_ROWS = 20
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
INTEGRAL = re.compile(r"([+-]?\d+)\.0+")
INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The classes of a task in the order of the model's outputs, or the one score of a regression."""

    names: tuple[str, ...] = ("score",)
    regression: bool = False

    @property
    def count(self) -> int:
        """The number of outputs a model needs."""
        return 1 if self.regression else len(self.names)

    @property
    def id2label(self) -> dict[int, str]:
        """Index to name, as a transformers config holds it."""
        return dict(enumerate(self.names))

    @property
    def label2id(self) -> dict[str, int]:
        """Name to index, as a transformers config holds it."""
        return {name: index for index, name in enumerate(self.names)}

    @property
    def default_names(self) -> bool:
        """Whether the classes have no names of their own, only transformers' LABEL_0, LABEL_1, ..."""
        return self.names == tuple(f"LABEL_{index}" for index in range(len(self.names)))

    @classmethod
    def of_model(cls, config: PretrainedConfig) -> Labels:
        """The labels a classification model was made for."""
        if config.problem_type == "multi_label_classification":
            raise Fault("the model gives several labels per text (multi-label); use one with a single label per text")
        if config.num_labels == 1 or config.problem_type == "regression":
            return cls(regression=True)
        # A config read from JSON may have kept its indices as strings.
        names = {int(index): str(name) for index, name in (config.id2label or {}).items()}
        return cls(names=tuple(names[index] for index in sorted(names)))


def infer(values: Sequence[Any], where: str, regression: bool | None = None) -> Labels:
    """The label space of a training set; scores when most values are numbers and some are not whole."""
    values = _python(values)
    if regression is None:
        numbers = [number for number in map(_number, values) if number is not None]
        regression = 2 * len(numbers) > len(values) and not all(number.is_integer() for number in numbers)
    labels = Labels(regression=True) if regression else Labels(names=_names(values, where))
    refuse_constant(values, labels, where)
    return labels


def refuse_constant(values: Sequence[Any], labels: Labels, where: str) -> None:
    """Refuse a training set from which nothing can be learnt, because its labels are all the same."""
    values = _python(values)
    found = {_number(value) if labels.regression else label_name(value) for value in values} - {None}
    if not found:
        raise Fault(f"{where}: no row has a label; choose another column with --label")
    if len(found) == 1:
        what = "score" if labels.regression else "class"
        raise Fault(f"{where}: all labels are the same {what} ({found.pop()!r}); training needs at least two")


def encode(values: Sequence[Any], labels: Labels, where: str) -> NDArray[Any]:
    """Labels as int64 class indices or float32 scores; every row must have one that is known."""
    values = _python(values)
    if labels.regression:
        return _scores(values, where)
    index = dict(labels.label2id)
    if labels.default_names:
        index |= {str(position): position for position in range(labels.count)}
    # "POSITIVE" of a published teacher is the "positive" of a file, unless the names differ in case only.
    folded = {name.casefold(): position for name, position in index.items()}
    if len(folded) < len(index):
        folded = {}
    known: dict[str | None, int | None] = {None: None}
    encoded = np.zeros(len(values), dtype=np.int64)
    missing: list[int] = []
    unseen: dict[str, list[int]] = {}
    for row, value in enumerate(values, start=1):
        name = label_name(value)
        if name not in known:
            known[name] = index.get(str(name), folded.get(str(name).casefold()))
        position = known[name]
        if position is not None:
            encoded[row - 1] = position
        elif name is None:
            missing.append(row)
        else:
            unseen.setdefault(name, []).append(row)
    faults = Gathered()
    if missing:
        faults.add(f"{at_rows(where, missing)}: the label is missing; fill it in or remove the row")
    for name, rows in list(unseen.items())[:5]:
        faults.add(f"{at_rows(where, rows)}: the label {name!r} is not known; known labels: {_listed(labels.names)}")
    if len(unseen) > 5:
        faults.add(f"{where}: {len(unseen) - 5} more labels are not known; is this the right column? (--label)")
    faults.raise_any()
    return encoded


def label_name(value: Any) -> str | None:
    """The name of a class as written in a file: 1, 1.0 and "1.0" are "1"; nothing and NaN are None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value):
        return str(int(value))
    text = str(value).strip()
    integral = INTEGRAL.fullmatch(text)
    return (integral[1] if integral else text) or None


def _scores(values: Sequence[Any], where: str) -> NDArray[np.float32]:
    scores = np.zeros(len(values), dtype=np.float32)
    missing: list[int] = []
    wrong: list[int] = []
    for row, value in enumerate(values, start=1):
        number = _number(value)
        if number is not None:
            scores[row - 1] = number
        else:
            (missing if label_name(value) is None else wrong).append(row)
    faults = Gathered()
    if missing:
        faults.add(f"{at_rows(where, missing)}: the label is missing; a regression needs a number in every row")
    if wrong:
        shown = str(values[wrong[0] - 1])[:40]
        faults.add(f"{at_rows(where, wrong)}: the label {shown!r} is not a finite number; correct or remove the row")
    faults.raise_any()
    return scores


def _number(value: Any) -> float | None:
    """The finite number a value stands for, if it does."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        text = value.strip()
        if not NUMBER.fullmatch(text):
            return None
        value = text
    elif not isinstance(value, (int, float, Decimal)):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    # Scores become float32, so what overflows there is no number here.
    return number if abs(number) <= LARGEST else None


def _names(values: Sequence[Any], where: str) -> tuple[str, ...]:
    names = {name for name in map(label_name, values) if name is not None}
    if len(names) > MOST_CLASSES or (len(values) >= FEW_ROWS and 2 * len(names) > len(values)):
        cure = "say --regression if they are scores" if all(map(INTEGER.fullmatch, names)) else "is it the right one?"
        raise Fault(
            f"{where}: the label column holds {len(names)} different values in {len(values)} rows; {cure}, "
            "or choose another column with --label"
        )
    if all(map(INTEGER.fullmatch, names)):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"


def _python(values: Sequence[Any]) -> Sequence[Any]:
    """Numpy and Arrow values as Python values."""
    for convert in ("to_pylist", "tolist"):
        if hasattr(values, convert):
            plain: list[Any] = getattr(values, convert)()
            return plain
    return values
