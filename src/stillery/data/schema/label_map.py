"""Label maps from names in a file to names of a model, such as `0=neg,1=pos`, and suggestions of one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from stillery.data.schema.label_mapping import meaning
from stillery.data.schema.labels import Labels
from stillery.errors import UserError
from stillery.lines import listed

__all__ = ["check_label_map", "parse_label_map", "suggested_label_map"]

INTEGER = re.compile(r"\d{1,4}")
MOST = 10


def parse_label_map(text: str | None) -> dict[str, str]:
    """Parse a map from names in a file to names of a model: `0=neg,1=pos`, or JSON for names with `,` or `=`.

    >>> parse_label_map("0=neg, 1=pos")
    {'0': 'neg', '1': 'pos'}
    """
    if text is None:
        return {}
    if text.strip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError:
            raise UserError(f"--label-map {text}: not a JSON object; give it as 0=neg,1=pos") from None
        return {str(name): str(value) for name, value in found.items()}
    names: dict[str, str] = {}
    for piece in text.split(","):
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or not name or not value:
            raise UserError(f"--label-map {text}: give the data's label and the model's for each, such as 0=neg,1=pos")
        if names.setdefault(name, value) != value:
            raise UserError(f"--label-map {text}: {name!r} appears twice; keep one")
    return names


def check_label_map(names: Mapping[str, str], labels: Labels) -> None:
    """Raise UserError for names in a label map that are not labels of the model."""
    if names and labels.regression:
        raise UserError("--label-map is for classes, and the model predicts a number; leave it out")
    unknown = [value for value in names.values() if labels.position(value) is None]
    if unknown:
        raise UserError(
            f"--label-map: {unknown[0]!r} is not a label of the model ({listed(labels.names, MOST)}); write "
            "the data's label first and the model's behind the ="
        )


def suggested_label_map(unseen: Iterable[str], labels: Labels) -> str:
    """Suggest a label map, as written on the command line, for labels unknown to a model; empty without a match.

    Names are matched by meaning, else by number if one side only has numbers: a guess for the user to confirm.

    >>> suggested_label_map(["1", "0"], Labels(names=("negative", "positive")))
    '0=negative,1=positive'
    """
    names = sorted(set(unseen))
    if not 0 < len(names) <= MOST:
        return ""
    meant = {meaning(name): name for name in labels.names}
    if all(meaning(name) in meant for name in names):
        return _written({name: meant[meaning(name)] for name in names})
    if all(map(INTEGER.fullmatch, names)):
        numbers = sorted(map(int, names))
        first = 1 if numbers[-1] == labels.count and numbers[0] > 0 else 0
        if numbers[-1] - first < labels.count:
            return _written({str(number): labels.names[number - first] for number in numbers})
    if labels.default_names and len(names) == labels.count:
        return _written({name: str(place) for place, name in enumerate(names)})
    return ""


def _written(names: Mapping[str, str]) -> str:
    if any(mark in part for pair in names.items() for part in pair for mark in ",="):
        return f"'{json.dumps(names, ensure_ascii=False)}'"
    found = ",".join(f"{name}={value}" for name, value in names.items())
    return f"'{found}'" if " " in found else found
