"""Why a run in several processes ends: printed once on each machine, and passed to the launcher."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["refused_in_several", "stopped_in_several"]

_PATIENCE = 20.0
"""Seconds after which another process than the first prints its own refusal, which the first then does not share."""


def refused_in_several(lines: Sequence[str]) -> None:
    """Tell torchrun why this process ends, which it prints last; return at once in the first process of a machine.

    The others are refused for the same reason. They wait until the launcher ends them, as it does with all processes
    when one has failed: the line would otherwise be printed by every process, or by none.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file is None:
        return
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(_PATIENCE)
        return
    _tell_launcher(Path(file), lines)


def stopped_in_several(line: str, *, lost: bool) -> bool:
    """Tell torchrun why this process ends; return whether it is to be printed.

    With `lost` the reason is that another process has ended, which is printed by one process of a machine, and by none
    where the other one has said why.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file is None:
        return True
    _tell_launcher(Path(file), [line])
    try:
        # Beside the folders of the processes; the launcher removes them all.
        (Path(file).parent.parent / "stillery-told").touch(exist_ok=False)
    except FileExistsError:
        return not lost
    except OSError:
        return True
    return True


def _tell_launcher(file: Path, lines: Sequence[str]) -> None:
    with contextlib.suppress(OSError):
        told = {"message": f"stillery: {'; '.join(lines)}", "timestamp": int(time.time())}
        file.write_text(json.dumps(told), encoding="utf-8")
