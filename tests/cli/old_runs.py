"""Run folders as versions of before left them."""

from __future__ import annotations

from pathlib import Path

__all__ = ["old_layout"]

_RUN = ("run.toml", "metrics.json", "log.jsonl", "predictions.parquet", "conditions.json")


def old_layout(out: Path) -> None:
    """Move the model of a run folder down into `student`, where it lay."""
    model = [path for path in out.iterdir() if path.is_file() and path.name not in _RUN]
    (out / "student").mkdir()
    for path in model:
        path.rename(out / "student" / path.name)
