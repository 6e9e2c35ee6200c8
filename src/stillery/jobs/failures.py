"""What ends a run from outside of it, in one line each: too little memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillery.errors import Stopped
from stillery.jobs.config.settings import Distill, Finetune
from stillery.out_of_memory import lacking_memory

__all__ = ["failures_named"]


@contextmanager
def failures_named(run: Finetune | Distill, out: Path) -> Iterator[None]:
    """Turn a lack of memory inside the block into a line that names the settings to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        lacking = lacking_memory(error)
        if lacking is None:
            raise
        line = _levers(run, out, lacking)
    else:
        return
    # Outside of the handler, so that the error does not keep alive what filled the memory.
    raise Stopped(line)


def _levers(run: Finetune | Distill, out: Path, lacking: str) -> str:
    """Return the line for a run that needs more memory than there is."""
    smaller = _smaller_batches(run)
    begun = (out / "run.toml").is_file()
    cures = []
    if smaller is not None:
        how = f"continue with --resume {smaller}" if begun else f"give {smaller}"
        cures.append(f"{how}, which takes steps of as many examples")
    others = [f"a --max-length below {run.data.max_length}"]
    if isinstance(run, Distill) and run.storing.cache != "off" and run.storing.cache_dtype in ("auto", "fp32"):
        others.append("--cache-dtype fp16")
    again = "start again with --overwrite and" if begun else "give"
    cures.append(f"{again} {' or '.join(others)}, or a smaller model")
    return f"out of {lacking} in {out}: {'; or '.join(cures)}"


def _smaller_batches(run: Finetune | Distill) -> str | None:
    """Return the options for smaller forward passes in steps of the same size; None where one is an example already."""
    size, accumulate = run.training.batch_size, run.training.accumulate
    parts = next((parts for parts in range(2, size + 1) if size % parts == 0), None)
    return None if parts is None else f"--batch-size {size // parts} --accumulate {accumulate * parts}"
