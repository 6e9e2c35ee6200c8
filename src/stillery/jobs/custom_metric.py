"""A user-defined metric beside those of the kind of model; its first number selects the best weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from transformers import PreTrainedModel

from stillery.errors import UserError
from stillery.evaluation.inference_mode import device_of
from stillery.jobs.from_python import MetricFunction
from stillery.jobs.kinds.base import Answers, Kind, Reader, Scored
from stillery.jobs.prepared import Data, Prepared
from stillery.models.load_model import Loaded
from stillery.progress import quiet
from stillery.train.validation import Scores

__all__ = ["check_metric", "with_metric", "with_metrics"]

Score = Callable[[PreTrainedModel], Mapping[str, float]]


def check_metric(kind: Kind, scored: Scored) -> None:
    """Raise UserError for a metric where there are no labels, or no predictions to pass to it."""
    if kind.compared is None:
        raise UserError(f"metric cannot be used for {kind.name}: use on_score, which sees the usual metrics")
    if scored.labels is not None and scored.gold is None:
        where = "data" if scored.split is None else f"{scored.split} split"
        raise UserError(f"metric compares predictions with labels, and the {where} has none: add labels, or drop it")


def with_metric(metric: MetricFunction | None, prepared: Prepared, data: Data, score: Score) -> Score:
    """Wrap the scoring of the dev split so that the numbers of the user's metric come first."""
    if metric is None:
        return score
    kind, (dev, tokens) = prepared.kind, data.splits["dev"]

    def scores(model: PreTrainedModel) -> Mapping[str, float]:
        usual = score(model)
        student = Loaded(model=model, tokenizer=prepared.tokenizer, name="student", missing=frozenset())
        size = kind.batch_size(prepared.run.training, device_of(model))
        reader = Reader(loaded=student, encoding=prepared.encoding, batch_size=size, description="dev")
        with quiet():
            answers = kind.answers(reader, dev, tokens)
        found = _first(_numbers(metric, kind, dev, answers), usual)
        return Scores(found, usual.one_answer if isinstance(usual, Scores) else None)

    return scores


def with_metrics(
    metric: MetricFunction | None,
    kind: Kind,
    scored: Scored,
    answers: tuple[Answers, Answers | None],
    found: dict[str, Any],
) -> dict[str, Any]:
    """Put the numbers of the user's metric first in an evaluation, for the model and its teacher."""
    if metric is None or (scored.labels is not None and scored.gold is None):
        return found
    added = dict(found)
    for key, one in zip(("metrics", "teacher_metrics"), answers, strict=True):
        if one is not None:
            added[key] = _first(_numbers(metric, kind, scored, one), found.get(key, {}))
    # An interval belongs to the library's metric of that name, not to the user's.
    own = added["metrics"].keys() - found["metrics"].keys() if "metrics" in found else set()
    same = {name for name in added["metrics"] if name in own or added["metrics"][name] == found["metrics"].get(name)}
    return added | {"intervals": {name: pair for name, pair in found["intervals"].items() if name in same}}


def _first(own: Mapping[str, float], usual: Mapping[str, float]) -> dict[str, float]:
    return {**own, **{name: value for name, value in usual.items() if name not in own}}


def _numbers(metric: MetricFunction, kind: Kind, scored: Scored, answers: Answers) -> dict[str, float]:
    """Call the metric on the predictions, and return its numbers by name."""
    assert kind.compared is not None
    found = metric(*kind.compared(scored, answers))
    named = found if isinstance(found, Mapping) else {_name(metric): found}
    wrong = [value for value in named.values() if not isinstance(value, Real) or isinstance(value, bool)]
    if wrong or not named:
        raise UserError(f"metric returned {found!r}: return a number, or a dict of numbers by name")
    return {str(name): float(value) for name, value in named.items()}


def _name(metric: MetricFunction) -> str:
    """Return the name of a metric that returns one number."""
    name = getattr(metric, "__name__", "metric")
    return "metric" if name == "<lambda>" else name
