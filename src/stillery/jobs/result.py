"""The result of a run: its folder, its metrics, and the trained model."""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillery.jobs.card_usage import generation_speed_in_words

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from stillery.models.load_model import Loaded

__all__ = ["Result", "as_frame", "speed"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A finished run: its folder, the folder of the trained model, and its metrics.

    Both are the same folder, except for runs by an earlier version, which wrote the model to `student` inside it.
    The model, its tokenizer and its predictions are read from the folder on first access.
    """

    out: Path
    student: Path
    metrics: dict[str, Any]

    @property
    def model(self) -> PreTrainedModel:
        """The model, on the CPU and ready to predict."""
        return self._loaded.model

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        return self._loaded.tokenizer

    @cached_property
    def predictions(self) -> Any:
        """Every scored example with its label and predictions: a pandas DataFrame, without pandas a pyarrow Table."""
        import pyarrow.parquet as pq

        return as_frame(pq.read_table(self.out / "predictions.parquet"))

    @cached_property
    def _loaded(self) -> Loaded:
        from stillery.jobs.kinds.find import kind_of_model

        loaded = kind_of_model(str(self.student)).load(str(self.student))
        loaded.model.eval()
        return loaded

    def __repr__(self) -> str:
        return "\n".join([f"run in {self.out}", *(f"  {name}: {value}" for name, value in self._facts())])

    def _repr_html_(self) -> str:
        """Return the same as an HTML table for notebooks."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in [*self._facts(), ("folder", str(self.out))]
        )
        return f"<table>{rows}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        """Return scores, size and speed as pairs of name and text."""
        metrics, cost = self.metrics, self.metrics.get("cost", {})
        split = metrics.get("split", metrics.get("part", ""))
        found = [(f"{name} ({split})", _score(metrics, name)) for name in metrics.get("metrics", {})]
        if "agreement" in metrics:
            found.append(("agreement with the teacher", f"{metrics['agreement']:.2f}%"))
        if cost:
            found += [
                ("size", f"{cost['parameters']:,} parameters, {cost['megabytes']:.1f} MB"),
                ("speed", speed(metrics)),
            ]
        return [*found, ("model", str(self.student))]


def speed(metrics: Mapping[str, Any]) -> str:
    """Describe a model's speed: texts per second for one that generates them, else the latency per text.

    Generating a text takes one forward pass per token, so that the time of one pass is not its speed.
    """
    cost = metrics["cost"]
    if "texts_per_second" in cost:
        return generation_speed_in_words(cost)
    if metrics.get("writes"):
        return f"{cost['latency_ms']:.1f} ms a forward pass"
    faster = f", {cost['speedup']:.2f}x the teacher's speed" if cost.get("speedup") else ""
    return f"{cost['latency_ms']:.1f} ms a text{faster}"


def _score(metrics: Mapping[str, Any], name: str) -> str:
    """Format a metric with its interval, and the teacher's beside it."""
    bounds = metrics.get("intervals", {}).get(name)
    between = f" (95%: {bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else ""
    teacher = metrics.get("teacher_metrics", {}).get(name)
    return f"{metrics['metrics'][name]:.2f}{between}{'' if teacher is None else f', teacher {teacher:.2f}'}"


def as_frame(table: Any) -> Any:
    """Convert a pyarrow Table to a pandas DataFrame if pandas is installed, else return it unchanged."""
    return table.to_pandas() if importlib.util.find_spec("pandas") else table
