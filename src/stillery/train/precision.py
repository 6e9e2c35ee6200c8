"""Choice of the training precision, tested in a child process.

A processor may advertise instructions that then kill the process; in a child that does no harm.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache

import torch

from stillery.atomic import atomic_file
from stillery.data.cache.folder import META, find_cache
from stillery.errors import UserError
from stillery.progress import detail, say

__all__ = ["choose"]

# Some virtual machines advertise AMX and kill the process that uses it; without AMX bf16 still works there.
_WITHOUT_AMX = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

_TRIAL = """
import sys, torch
device, dtype = sys.argv[1], getattr(torch, sys.argv[2])
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)).to(device)
with torch.autocast(device, dtype=dtype):
    x = net(torch.randn(32, 64, device=device))
    q = x.view(2, 4, 16, 16)
    y = torch.nn.functional.scaled_dot_product_attention(q, q, q)
y.float().square().mean().backward()
assert all(torch.isfinite(p.grad).all() for p in net.parameters())
"""


@cache
def _trial(device: str, dtype: str, extra: tuple[str, str] | None = None) -> str | None:
    """Train one step in a child process; return the failure in words, or None."""
    environment = os.environ | (dict([extra]) if extra else {})
    done = subprocess.run(
        [sys.executable, "-c", _TRIAL, device, dtype], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"the trial process was killed by {signal.Signals(-done.returncode).name}"
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"the trial process ended with code {done.returncode}"


def choose(wanted: str, device: str) -> str:
    """Return the precision to train in (`fp32`, `bf16` or `fp16`); raise UserError for one that does not work here."""
    if wanted == "auto":
        return "bf16" if device == "cuda" and _gpu_has_bf16() else "fp32"
    if wanted == "fp32":
        return wanted
    dtype = {"bf16": "bfloat16", "fp16": "float16"}[wanted]
    problem = _trial(device, dtype)
    if problem and device == "cpu" and _trial(device, dtype, _WITHOUT_AMX) is None:
        # Read by the first low-precision operation of this process, which is still to come.
        os.environ[_WITHOUT_AMX[0]] = _WITHOUT_AMX[1]
        detail(f"{wanted}: {problem}; it works with {'='.join(_WITHOUT_AMX)}, which is now set for this run")
        return wanted
    if problem:
        raise UserError(f"--precision {wanted} does not work on this {device}: {problem}; use --precision fp32")
    return wanted


def _gpu_has_bf16() -> bool:
    """Return whether the GPU has bf16 and a child process has trained in it; success is stored in the cache folder."""
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        return False
    gpu, folder = torch.cuda.get_device_name(), find_cache()
    tried = json.dumps([_TRIAL, torch.__version__, torch.version.cuda, gpu])
    place = folder.place("precision", hashlib.sha256(tried.encode()).hexdigest()) if folder else None
    if place is not None and (place / META).is_file():
        return True
    problem = _trial("cuda", "bfloat16")
    if problem:
        say(f"bf16 does not work on this GPU: {problem}; training in fp32")
        return False
    # If it cannot be stored, the next run tests again.
    with suppress(OSError):
        if place is not None:
            with atomic_file(place / META) as part:
                part.write_text(json.dumps({"about": f"bf16 works on {gpu}, torch {torch.__version__}"}), "utf-8")
    return True
