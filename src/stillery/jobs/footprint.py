"""Peak memory of a training, and the versions of the libraries it ran with."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

__all__ = ["peak_megabytes", "reset_peak", "versions"]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_PACKAGES = ("stillery", "torch", "transformers", "accelerate", "numpy")


def reset_peak() -> None:
    """Begin to measure anew, as a process may train several models one after another."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    # Linux keeps the peak of the whole process unless it is told to forget it.
    with suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")


def peak_megabytes(device: torch.device) -> float | None:
    """Return the peak memory since the last reset in 10^6 bytes; None where the system does not say.

    On a GPU that is what its tensors took there, else what the process took in all, with its libraries.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    with suppress(OSError, ValueError, IndexError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that decide what a run computes."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
