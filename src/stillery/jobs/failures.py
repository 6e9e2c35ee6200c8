"""What ends a run from outside of it, in one line each: too little memory, another process that is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from stillery.errors import LostProcess, Stopped
from stillery.jobs.config.settings import Distill, Finetune
from stillery.out_of_memory import lacking_memory

__all__ = ["failures_named"]


@contextmanager
def failures_named(run: Finetune | Distill, out: Path) -> Iterator[None]:
    """Turn a lack of memory, and the end of another process of the run, into a line that says how to continue."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        lacking = lacking_memory(error)
        if lacking is not None:
            stopped = Stopped(_levers(run, out, lacking))
        elif _is_of_communication(error):
            stopped = LostProcess(_lost(out))
        else:
            raise
    else:
        return
    # Outside of the handler, so that the error does not keep alive what filled the memory.
    raise stopped


def _is_of_communication(error: BaseException) -> bool:
    """Return whether an error is one of the exchange between processes, as where one of them has ended."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return False
    return isinstance(error, dist.DistError) or any(word in str(error) for word in ("gloo", "NCCL", "c10d"))


def _lost(out: Path) -> str:
    """Return the line for a run in several processes of which another one has ended."""
    begun = (out / "run.toml").is_file()
    rest = (
        f"the run in {out} continues with --resume, in as many processes or others with steps as large"
        if begun
        else f"nothing was written to {out}"
    )
    return f"another process of the run has ended; {rest}"


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
