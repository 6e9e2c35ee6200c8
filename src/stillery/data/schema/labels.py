"""Label spaces: inference from data, encoding to numbers, and decoding to names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from stillery.data.readers.row_numbers import at_rows
from stillery.errors import ErrorList, UserError
from stillery.lines import listed

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = [
    "LARGEST_COUNT",
    "SEPARATOR",
    "Labels",
    "encode",
    "infer",
    "label_name",
    "missing_label",
    "refuse_constant",
    "refuse_joined",
]

MOST_CLASSES = 1000
LARGEST_COUNT = 100_000
"""More classes are not read back from a config.json, which may come from somebody else."""
LARGEST = float(np.finfo(np.float32).max)
FEW_ROWS = 20
LONGEST_NAME = 200
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
INTEGRAL = re.compile(r"([+-]?\d+)\.0+")
INTEGER = re.compile(r"[+-]?\d{1,1000}")
SEPARATOR = "|"
JOINED_BY = (SEPARATOR, ",", ";")
JOINED = "use --multi-label --label-separator {separator} if it is, or --no-multi-label if it is a class of its own"
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
PROBLEM_TYPES: dict[str, ProblemType] = {
    "classes": "single_label_classification",
    "labels": "multi_label_classification",
    "score": "regression",
}


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The classes of a task in the order of the model's outputs, or the score of a regression.

    With `multi`, a text may have any number of labels. `positive` is the positive class of f1; None is the second one.
    """

    names: tuple[str, ...] = ("score",)
    regression: bool = False
    multi: bool = False
    positive: str | None = None

    @property
    def count(self) -> int:
        """The number of outputs a model needs."""
        return 1 if self.regression else len(self.names)

    @property
    def kind(self) -> Literal["classes", "labels", "score"]:
        """The kind of prediction: one of several classes, any of several labels, or a score."""
        return "score" if self.regression else "labels" if self.multi else "classes"

    @property
    def problem_type(self) -> ProblemType:
        """The kind of prediction, as the `problem_type` of a transformers config."""
        return PROBLEM_TYPES[self.kind]

    @property
    def id2label(self) -> dict[int, str]:
        """The map from index to name, as in a transformers config."""
        return dict(enumerate(self.names))

    @property
    def label2id(self) -> dict[str, int]:
        """The map from name to index, as in a transformers config."""
        return {name: index for index, name in enumerate(self.names)}

    @property
    def default_names(self) -> bool:
        """Whether the classes only have transformers' default names LABEL_0, LABEL_1, ..."""
        return self.names == tuple(f"LABEL_{index}" for index in range(len(self.names)))

    def position(self, name: str) -> int | None:
        """The index of a name among the labels, ignoring case unless names only differ in case."""
        return self._index.get(name, self._folded.get(name.casefold()))

    @cached_property
    def _index(self) -> dict[str, int]:
        numbers = {str(position): position for position in range(self.count)} if self.default_names else {}
        return self.label2id | numbers

    @cached_property
    def _folded(self) -> dict[str, int]:
        # "POSITIVE" of a published teacher matches "positive" in a file.
        folded = {name.casefold(): position for name, position in self._index.items()}
        return folded if len(folded) == len(self._index) else {}

    @classmethod
    def of_model(cls, config: PretrainedConfig) -> Labels:
        """The labels of a classification model, from its config."""
        multi = config.problem_type == PROBLEM_TYPES["labels"]
        if not multi and (config.num_labels == 1 or config.problem_type == PROBLEM_TYPES["score"]):
            return cls(regression=True)
        # A config loaded from JSON may have strings as indices.
        names = {int(index): str(name) for index, name in (config.id2label or {}).items()}
        return cls(names=tuple(names[index] for index in sorted(names)), multi=multi)


def infer(
    values: Sequence[Any],
    where: str,
    regression: bool | None = None,
    multi: bool | None = None,
    max_classes: int | None = None,
    *,
    grades: bool = False,
) -> Labels:
    """Infer the label space of a training set: scores if most values are numbers and some are not integers.

    With `grades`, integers are scores too. With `multi`, each value is a set of names. With None, a name that looks
    like several joined ones is an error. More than `max_classes` names are an error; with None more than 1,000, and
    fewer than two rows for each.
    """
    values = _python(values)
    if multi:
        labels = Labels(names=_names_of_sets(values, where, max_classes), multi=True)
        refuse_constant(values, labels, where)
        return labels
    if regression is None:
        numbers = [number for number in map(_number, values) if number is not None]
        whole = all(number.is_integer() for number in numbers) and not any(map(_is_infinite, values))
        regression = 2 * len(numbers) > len(values) and (grades or not whole)
    labels = Labels(regression=True) if regression else Labels(names=_names(values, where, max_classes))
    if multi is None and not labels.regression:
        refuse_joined(labels.names, where, JOINED)
    refuse_constant(values, labels, where)
    return labels


def refuse_constant(values: Sequence[Any], labels: Labels, where: str) -> None:
    """Raise UserError for a training set whose labels are all the same, from which nothing can be learnt."""
    values = _python(values)
    if labels.multi:
        sets = {frozenset(names) for names in values if names is not None}
        if len(sets) == 1:
            shown = listed(sorted(sets.pop())) or "none"
            raise UserError(f"{where}: every row has the same labels ({shown}); training needs rows that differ")
        return
    found = {_number(value) if labels.regression else label_name(value) for value in values} - {None}
    if not found:
        raise UserError(f"{where}: no row has a label; choose another column with --label")
    if len(found) == 1:
        what = "score" if labels.regression else "class"
        raise UserError(f"{where}: all labels are the same {what} ({found.pop()!r}); training needs at least two")


def encode(values: Sequence[Any], labels: Labels, where: str, rows: Iterable[int] | None = None) -> NDArray[Any]:
    """Encode labels as int64 class indices, float32 scores, or float32 0 and 1 for several labels `[rows, labels]`.

    Every row needs a known label; with `rows`, indices from 0, only those are encoded and the others are 0.
    """
    values = _python(values)
    chosen = range(len(values)) if rows is None else rows
    if labels.regression:
        return _scores(values, where, chosen)
    encoded = np.zeros((len(values), labels.count), np.float32) if labels.multi else np.zeros(len(values), np.int64)
    position = labels.position
    missing: list[int] = []
    unseen: dict[str, list[int]] = {}
    for row in chosen:
        value = values[row]
        names: Sequence[Any] | None = value if labels.multi else (label_name(value),)
        if names is None or None in names:
            missing.append(row + 1)
            continue
        for name in names:
            place = position(name)
            if place is None:
                unseen.setdefault(name, []).append(row + 1)
            elif labels.multi:
                encoded[row, place] = 1
            else:
                encoded[row] = place
    errors = ErrorList()
    if missing:
        errors.add(f"{at_rows(where, missing)}: {missing_label(labels.multi)}")
    cure = _cure(unseen, labels)
    for name, at in list(unseen.items())[:5]:
        errors.add(f"{at_rows(where, at)}: the label {name!r} is not known; known labels: {listed(labels.names)}{cure}")
    if len(unseen) > 5:
        errors.add(f"{where}: {len(unseen) - 5} more labels are not known; is this the right column? (--label)")
    errors.raise_any()
    return encoded


def missing_label(several: bool) -> str:
    """The error message for rows whose label is missing."""
    none = " (a text without labels has an empty list or an empty cell)" if several else ""
    return f"the label is missing; fill it in or remove the row, or leave such rows out with --skip-empty{none}"


def _cure(unseen: Iterable[str], labels: Labels) -> str:
    """The remedy for names unknown to a model: a suggested label map, which the user has to confirm."""
    # Imported here, because label_map imports this module.
    from stillery.data.schema.label_map import suggested_label_map

    if not unseen:
        return ""
    suggested = suggested_label_map(unseen, labels)
    if all(map(INTEGER.fullmatch, unseen)) and not any(map(INTEGER.fullmatch, labels.names)):
        why = "; numbers are not names"
    else:
        why = "; the model has no names of its own" if labels.default_names else ""
    if suggested:
        return f"{why}; if that is what they mean, use --label-map {suggested}"
    return f"{why}; map them with --label-map" if why else ""


def label_name(value: Any) -> str | None:
    """The name of a class from a value in a file: 1, 1.0 and "1.0" are "1"; missing values and NaN are None."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value):
        return str(int(value))
    text = str(value).strip()
    integral = INTEGRAL.fullmatch(text)
    return None if text in ("", "nan", "NaN") else integral[1] if integral else text


def _scores(values: Sequence[Any], where: str, rows: Iterable[int]) -> NDArray[np.float32]:
    scores = np.zeros(len(values), dtype=np.float32)
    missing: list[int] = []
    wrong: list[int] = []
    for row in rows:
        number = _number(values[row])
        if number is not None:
            scores[row] = number
        else:
            (missing if label_name(values[row]) is None else wrong).append(row + 1)
    errors = ErrorList()
    if missing:
        errors.add(
            f"{at_rows(where, missing)}: the label is missing; a regression needs a number in every row; or use "
            "--skip-empty"
        )
    if wrong:
        shown = str(values[wrong[0] - 1])[:40]
        errors.add(f"{at_rows(where, wrong)}: the label {shown!r} is not a finite number; correct or remove the row")
    errors.raise_any()
    return scores


def _number(value: Any) -> float | None:
    """The finite number that a value represents, if any."""
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
    # Scores become float32, so a value that overflows it is not a number here.
    return number if abs(number) <= LARGEST else None


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def _names(values: Sequence[Any], where: str, most: int | None) -> tuple[str, ...]:
    names = {name for name in map(label_name, values) if name is not None}
    if any(len(name) > LONGEST_NAME for name in names):
        long = [row for row, value in enumerate(values, start=1) if len(label_name(value) or "") > LONGEST_NAME]
        raise UserError(
            f"{at_rows(where, long)}: a label of more than {LONGEST_NAME} characters; is it the right column? (--label)"
        )
    if _too_many(len(names), most, 2 * len(names) > len(values) >= FEW_ROWS):
        cure = "use --regression if they are scores, " if all(map(INTEGER.fullmatch, names)) else ""
        raise UserError(
            f"{where}: the label column holds {len(names)} different values in {len(values)} rows; {cure}choose "
            f"another column with --label{_cure_of_many(len(names))}"
        )
    return _in_order(names)


def _names_of_sets(sets: Sequence[Sequence[str] | None], where: str, most: int | None) -> tuple[str, ...]:
    names = {name for some in sets for name in some or ()}
    if not names:
        raise UserError(f"{where}: no row has a label; choose another column with --label")
    if _too_many(len(names), most, len(names) > len(sets) >= FEW_ROWS):
        raise UserError(
            f"{where}: the label column holds {len(names)} different labels in {len(sets)} rows; choose "
            f"another column with --label, another --label-separator{_cure_of_many(len(names))}"
        )
    return _in_order(names)


def _too_many(names: int, most: int | None, few_rows: bool) -> bool:
    """Return whether a column probably is no label; a user who says how many classes there may be knows that it is."""
    return names > most if most is not None else names > MOST_CLASSES or few_rows


def _cure_of_many(names: int) -> str:
    return f", or use --max-classes {names} if they are the classes" if names <= LARGEST_COUNT else ""


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    if all(map(INTEGER.fullmatch, names)):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def refuse_joined(names: Sequence[str], where: str, cure: str) -> None:
    """Raise UserError for a class name such as `a|b` or `a,b` if `a` and `b` occur in other labels too.

    `cure` is the remedy in the message, with `{separator}` for the separator.
    """
    for separator in JOINED_BY:
        pieces = {name: {piece.strip() for piece in name.split(separator)} - {""} for name in names}
        counts = Counter(piece for some in pieces.values() for piece in some)
        for name, some in pieces.items():
            if len(some) > 1 and all(counts[piece] > 1 for piece in some):
                raise UserError(
                    f"{where}: the label {name!r} looks like several of the other labels; "
                    f"{cure.format(separator=repr(separator))}"
                )


def _python(values: Sequence[Any]) -> Sequence[Any]:
    """Convert numpy and Arrow values to Python values."""
    for convert in ("to_pylist", "tolist"):
        if hasattr(values, convert):
            plain: list[Any] = getattr(values, convert)()
            return plain
    return values
