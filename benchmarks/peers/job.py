"""What one side of the speed benchmark is asked for and answers: a JSON file in, one JSON line out.

Every side runs in a process of its own, so that nothing a library patches or holds is shared. The clock is read with
the device idle, when training starts and at the end of every epoch; loading and tokenising come before it.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision_away  # noqa: F401

PADDED = 128


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training run: of the student of `inputs`, by its teacher unless the method is none.

    `padding` is how a peer's batches are made: to 128 tokens, to their longest text (dynamic), or of texts of like
    length (grouped). `cache` is stillery's. The clock is the wall's, or what the processor did for this process. At a
    `gate` the job says, once everything is loaded, that it is ready, and waits until it may go.
    """

    inputs: str
    method: str
    device: str = "cpu"
    precision: str = "fp32"
    padding: str = "dynamic"
    batch_size: int = 32
    epochs: int = 3
    lr: float = 5e-5
    cache: str = "on"
    clock: str = "wall"
    gate: str | None = None
    parent: int | None = None
    """Who opens the gate."""

    @property
    def place(self) -> Path:
        return Path(self.inputs)


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The weights of a method's losses as stillery has them, for peers that ask for each."""

    hard: float
    soft: float
    temperature: float
    layers: float
    pairs: tuple[tuple[int, int], ...]
    """Layers of student and teacher whose normalised first states are compared, 1-based."""

    @classmethod
    def of(cls, job: Job) -> Losses:
        found = json.loads((job.place / "losses.json").read_text(encoding="utf-8"))[job.method]
        return cls(**found | {"pairs": tuple(tuple(pair) for pair in found["pairs"])})


class Watch:
    """Reads the clock when nothing is left to do on the device."""

    def __init__(self, job: Job) -> None:
        self.cuda = job.device == "cuda"
        self.clock = {"wall": time.perf_counter, "processor": time.process_time}[job.clock]
        self.began = 0.0
        self.marks: list[float] = []
        self.steps = 0
        self.gate, self.parent = Path(job.gate) if job.gate else None, job.parent

    def start(self) -> None:
        self._wait()
        if self.gate is not None:
            (self.gate / "ready").touch()
            while not (self.gate / "go").exists():
                if os.getppid() != self.parent:
                    sys.exit("nobody waits for this side any more")
                time.sleep(0.02)
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        self.began = self.clock()

    def epoch_ends(self, steps: int) -> None:
        self._wait()
        self.marks.append(self.clock() - self.began)
        self.steps += steps

    def _wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def answer(self, **more: Any) -> dict[str, Any]:
        epochs = [end - start for start, end in zip([0.0, *self.marks], self.marks, strict=False)]
        return {"seconds": sum(epochs), "epochs": epochs, "steps": self.steps, "peak_mb": peak_mb(self.cuda), **more}


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "a copy without metadata"


def peak_mb(cuda: bool) -> float:
    """The most memory this process held: on the GPU what torch allocated, else what the system counts."""
    if cuda:
        return torch.cuda.max_memory_allocated() / 1e6
    status = Path("/proc/self/status")
    if status.is_file():
        # What getrusage says begins, on Linux, with the peak of the process that started this one.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


class Examples(torch.utils.data.Dataset):
    """The tokens every side trains on, made once."""

    def __init__(self, job: Job) -> None:
        found = np.load(job.place / "tokens.npz")
        self.flat, self.offsets, self.labels = found["flat"], found["offsets"], found["labels"]
        self.pad_id = int(found["pad_id"])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> dict[str, Any]:
        ids = torch.from_numpy(self.flat[self.offsets[row] : self.offsets[row + 1]].astype(np.int64))
        return {"input_ids": ids, "labels": int(self.labels[row])}

    def collate(self, rows: list[dict[str, Any]], width: int | None = None) -> dict[str, torch.Tensor]:
        """Rows as tensors, padded to their longest or to `width`."""
        ids = [row["input_ids"] for row in rows]
        if width is not None:
            ids[0] = torch.nn.functional.pad(ids[0], (0, width - len(ids[0])), value=self.pad_id)
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=self.pad_id)
        sizes = torch.tensor([len(row["input_ids"]) for row in rows])
        return {
            "input_ids": padded,
            "attention_mask": (torch.arange(padded.shape[1])[None] < sizes[:, None]).long(),
            "labels": torch.tensor([row["labels"] for row in rows]),
        }


class Batches:
    """A loader as a user of any library would write it; it reads the watch when an epoch's last batch is done."""

    def __init__(self, job: Job, watch: Watch) -> None:
        self.job, self.watch = job, watch
        self.examples = Examples(job)
        torch.manual_seed(0)
        width = PADDED if job.padding == str(PADDED) else None
        common = {
            "collate_fn": lambda rows: self.examples.collate(rows, width),
            "pin_memory": job.device == "cuda",
        }
        if job.padding == "grouped":
            self.loader = torch.utils.data.DataLoader(
                self.examples, batch_sampler=_Grouped(job, self.examples), **common
            )
        else:
            self.loader = torch.utils.data.DataLoader(
                self.examples, batch_size=job.batch_size, shuffle=True, drop_last=False, **common
            )

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        yield from self.loader
        self.watch.epoch_ends(len(self.loader))


class _Grouped:
    """The batches stillery takes: texts of like length together, in a new order every epoch."""

    def __init__(self, job: Job, examples: Examples) -> None:
        from stillery.data.tokens.batches import windows

        self.job, self.windows = job, windows
        self.lengths, self.epoch = np.diff(examples.offsets), 0

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.job.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = self.windows(self.lengths, seed=0, stage=0, epoch=self.epoch, window=self.job.batch_size)
        self.epoch += 1
        yield from (one.tolist() for one in order)


def models(job: Job) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Teacher and student on the device."""
    from transformers import AutoModelForSequenceClassification

    found = [AutoModelForSequenceClassification.from_pretrained(job.place / name) for name in ("teacher", "student")]
    teacher, student = (model.to(job.device) for model in found)
    return teacher.eval(), student.train()


def adamw(job: Job, student: torch.nn.Module) -> torch.optim.AdamW:
    """The optimiser stillery uses, for those who are given one."""
    return torch.optim.AdamW(student.parameters(), lr=job.lr, weight_decay=0.01, fused=True)


def autocast(job: Job) -> AbstractContextManager[Any]:
    """Mixed precision around code that knows none."""
    if job.precision == "fp32":
        return nullcontext()
    return torch.autocast(job.device, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[job.precision])


def patience(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """PKD's distance between the first states of two layers, mean over batch and width."""
    ours, theirs = (torch.nn.functional.normalize(states[:, 0], dim=-1) for states in (student, teacher))
    return torch.nn.functional.mse_loss(ours, theirs)


def carry_out(train: Callable[[Job], dict[str, Any]]) -> None:
    """Run the job named on the command line and print the answer as the last line."""
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    if job.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device is here")
    answer = train(job)
    answer["versions"] = {"python": platform.python_version(), "torch": torch.__version__} | answer.get("versions", {})
    answer["threads"] = torch.get_num_threads()
    print(json.dumps(answer))
