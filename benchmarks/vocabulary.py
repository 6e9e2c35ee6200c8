"""What token losses over a whole vocabulary hold and how long they take: `python benchmarks/vocabulary.py`.

Each loss and its gradient, ours against the usual way: gather the tokens, widen both models' logits, let autograd do
the rest. Memory is the peak beyond the logits themselves, in multiples of one model's logits; on the CPU each is taken
from a process of its own. At most 2.5 is wanted for kl in bfloat16. `kl+cross-entropy` is what kd and layer-* add up.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor

from stillery import declare
from stillery.parts import divergence as divergences
from stillery.parts import token_divergence as token_divergences
from stillery.parts.token_divergence import token_cross_entropy

DIVERGENCES = declare.of_module("divergence", divergences.__name__)
TOKEN_DIVERGENCES = declare.of_module("token_divergence", token_divergences.__name__)

WAYS = ("usual", "ours")
TOGETHER = "kl+cross-entropy"
LOSSES = (*TOKEN_DIVERGENCES, "cross-entropy", TOGETHER)
TEMPERATURE = 2.0


def usual(loss: str, student: Tensor, teacher: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
    kept = mask.bool()
    if loss == TOGETHER:
        return sum(usual(one, student, teacher, mask, targets) for one in TOGETHER.split("+"))
    if loss == "cross-entropy":
        return F.cross_entropy(student[kept].float(), targets[kept])
    if loss == "kl":
        ours, theirs = (F.log_softmax(side[kept].float() / TEMPERATURE, dim=-1) for side in (student, teacher))
        return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * TEMPERATURE**2
    return DIVERGENCES[loss](student[kept], teacher[kept], TEMPERATURE)


def ours(loss: str, student: Tensor, teacher: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
    if loss == TOGETHER:
        return sum(ours(one, student, teacher, mask, targets) for one in TOGETHER.split("+"))
    if loss == "cross-entropy":
        return token_cross_entropy(student, targets, mask)
    return TOKEN_DIVERGENCES[loss](student, teacher, mask, TEMPERATURE)


class Case:
    """One loss in one way on one pair of logits."""

    def __init__(
        self, way: str, loss: str, shape: tuple[int, int, int], scored: float, dtype: str, device: str
    ) -> None:
        torch.manual_seed(0)
        # Filled in place: a wide copy on the way would count as the peak.
        made = {"dtype": getattr(torch, dtype), "device": device}
        self.student = torch.empty(shape, **made).normal_().requires_grad_()
        self.teacher = torch.empty(shape, **made).normal_()
        self.mask = (torch.arange(shape[1], device=device) < round(scored * shape[1])).expand(shape[:2])
        self.targets = torch.randint(0, shape[2], shape[:2], device=device)
        self.loss, self.measure, self.cuda = loss, {"usual": usual, "ours": ours}[way], device == "cuda"

    def __call__(self) -> float:
        """One forward and backward pass; the seconds it took."""
        self.student.grad = None
        self._wait()
        began = time.perf_counter()
        self.measure(self.loss, self.student, self.teacher, self.mask, self.targets).backward()
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def peak(self) -> float:
        """The most bytes held at once beyond the logits, in multiples of one model's logits."""
        size = self.student.numel() * self.student.element_size()
        small = (self.student[:1, :2], self.teacher[:1, :2], self.mask[:1, :2], self.targets[:1, :2])
        self.measure(self.loss, *small)  # what the first call loads is not the loss's
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self()
            return (torch.cuda.max_memory_allocated() - before) / size
        before = resident()
        self()
        unit = 1 if sys.platform == "darwin" else 1024
        return (unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / size


def resident() -> int:
    import psutil

    return psutil.Process().memory_info().rss


def peak_of(*setting) -> float:
    return Case(*setting).peak()


def measured_peak(*setting) -> float:
    if setting[-1] == "cuda":
        return peak_of(*setting)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as one:
        return one.submit(peak_of, *setting).result()


def medians(*setting, repeats: int) -> dict[str, float]:
    cases = {way: Case(way, *setting) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(repeats + 1):  # in turns, so that a busy machine slows both alike; the first is not counted
        for way, case in cases.items():
            taken = case()
            if turn:
                times[way].append(taken)
    return {way: median(taken) for way, taken in times.items()}


def measure(losses: list[str], *setting, repeats: int) -> dict[str, dict[str, float]]:
    # Before any time is taken: a new process's peak starts from the memory of the one that started it.
    peaks = {loss: {way: measured_peak(way, loss, *setting) for way in WAYS} for loss in losses}
    rows = {}
    for loss in losses:
        seconds = medians(loss, *setting, repeats=repeats)
        rows[loss] = {
            **{f"peak_{way}": round(peaks[loss][way], 2) for way in WAYS},
            **{f"ms_{way}": round(1000 * seconds[way], 2) for way in WAYS},
            "time_ratio": round(seconds["ours"] / seconds["usual"], 2),
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=LOSSES)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--scored", type=float, default=1.0, help="share of tokens that are no padding")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="few tokens of a small vocabulary, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    given = parser.parse_args()
    shape = (2, 8, 50) if given.tiny else (8, 512, 32000)
    found = measure(given.losses, shape, given.scored, given.dtype, given.device, repeats=given.repeats)
    print(f"{'':<18} {'peak, x logits':>20} {'ms':>22} {'time':>10}")
    print(f"{'':<18} {'usual':>10}{'ours':>10} {'usual':>11}{'ours':>11} {'ratio':>10}")
    for loss, row in found.items():
        print(
            f"{loss:<18} {row['peak_usual']:10.2f}{row['peak_ours']:10.2f} "
            f"{row['ms_usual']:11.2f}{row['ms_ours']:11.2f} {row['time_ratio']:10.2f}"
        )
    if given.json:
        setting = {
            "batch, tokens, vocabulary": shape,
            "dtype": given.dtype,
            "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
            "scored": given.scored,
            "repeats": given.repeats,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        given.json.write_text(json.dumps({"losses": found, "setting": setting}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
