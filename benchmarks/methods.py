"""What a step of each method costs, as ratios within one run: `python benchmarks/methods.py`, or `make bench`.

Random weights of a BERT of 12 layers taught to one of 6 (for speed the weights do not matter), a live teacher, the same
batch for all. Methods take turns, so that a busy machine slows all alike; medians are compared.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, BertConfig

from stillery import methods
from stillery.data.tokens.batches import Batch
from stillery.errors import UserError
from stillery.losses import Mixed
from stillery.models.family import sizes
from stillery.parts.transport import Transport
from stillery.recipe import Clock
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Objective
from stillery.train.optimiser import adamw
from stillery.train.recipe_checks import check_stages
from stillery.train.teacher import LiveTeacher


def bert(layers: int, width: int, heads: int):
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        num_labels=2,
    )
    return AutoModelForSequenceClassification.from_config(config)


class Step:
    """One method ready to take steps of its layer stage."""

    def __init__(self, name: str, student, teacher, batch: dict[str, torch.Tensor], labels: torch.Tensor) -> None:
        self.stages = methods.build(name).stages
        configs = student.config, teacher.config
        check_stages(self.stages, *map(sizes, configs), Clock(), configs)
        self.objective = Objective(student, self.stages, teacher=sizes(teacher.config), seed=0, examples=1000)
        # Universal-KD's first stage fits heads on the teacher; its second is the one that matches layers.
        self.clock = Clock(stage=1 if name == "universal-kd" else 0, stage_step=1, stage_steps=2)
        self.teacher, self.batch, self.labels = LiveTeacher(teacher), batch, labels
        self.optimiser = adamw(self.objective, 1e-5, 0.01)
        self.solver_seconds = 0.0
        for flow in self.objective.modules():
            if isinstance(flow, Transport):
                self._watch(flow)

    def _watch(self, flow: Transport) -> None:
        plan = flow.plan

        def timed(*arguments):
            began = time.perf_counter()
            found = plan(*arguments)
            self.solver_seconds += time.perf_counter() - began
            return found

        flow.plan = timed

    def __call__(self) -> float:
        began = time.perf_counter()
        stage = self.stages[self.clock.stage]
        mixed = Mixed(lam=0.5, partner=torch.arange(len(self.labels)).flip(0)) if stage.mixing else None
        plan, size = self.objective.plan(self.clock), len(self.labels)
        batch = Batch(index=np.arange(size), ids=("",) * size, inputs=self.batch, labels=self.labels)
        share = dict.fromkeys(("examples", "tokens", "pairs", "mixed tokens", "mixed pairs"), 1.0)
        micro_batch = MicroBatch(batch=batch, share=share, mixed=mixed, places=torch.arange(size))
        teacher = {view: self.teacher.outputs(plan, micro_batch, view) for view in plan.teacher}
        self.objective(plan, micro_batch, teacher).total.backward()
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.objective.after_step(new_epoch=False)
        return time.perf_counter() - began


def measure(names: list[str], *, layers: tuple[int, int], width: int, heads: int, size: int, length: int, steps: int):
    torch.manual_seed(0)
    teacher = bert(layers[0], width, heads)
    ids = torch.randint(1000, 20000, (size, length))
    mask = (torch.arange(length) < torch.randint(length // 2, length + 1, (size, 1))).long()
    batch, labels = {"input_ids": ids, "attention_mask": mask}, torch.arange(size) % 2
    runs, refused = {}, {}
    for name in names:
        try:
            runs[name] = Step(name, bert(layers[1], width, heads).train(), teacher, batch, labels)
        except UserError as error:
            refused[name] = error.lines[0]
    for run in runs.values():
        run()
        run.solver_seconds = 0.0
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(steps):
        for name, run in runs.items():
            times[name].append(run())
    seconds = {name: median(taken) for name, taken in times.items()}
    rows = {
        name: {
            "ms": round(1000 * taken, 1),
            "of_kd": round(taken / seconds["kd"], 3),
            "solver_share": round(runs[name].solver_seconds / sum(times[name]), 4),
        }
        for name, taken in seconds.items()
    }
    ratios = {
        "layer-forward / kd (at most 1.10)": seconds["layer-forward"] / seconds["kd"],
        "pkd / kd (at most 1.10)": seconds["pkd"] / seconds["kd"],
        "rail-kd / kd (at most 1.10)": seconds["rail-kd"] / seconds["kd"],
        "alp-kd / pkd (at most 1.15)": seconds["alp-kd"] / seconds["pkd"],
        "codir / rail-kd (the RAIL-KD paper: about 2)": seconds["codir"] / seconds["rail-kd"],
        "share of transport in a bert-emd step (at most 0.05)": rows["bert-emd"]["solver_share"],
    }
    return {"methods": rows, "ratios": {name: round(value, 3) for name, value in ratios.items()}, "refused": refused}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="small models, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    given = parser.parse_args()
    shape = {"layers": (12, 6), "width": 384, "heads": 12, "size": 32, "length": 32}
    if given.tiny:
        shape = {"layers": (4, 2), "width": 32, "heads": 4, "size": 4, "length": 8}
    found = measure(methods.names(), steps=given.steps, **shape)
    found["setting"] = {**shape, "steps": given.steps, "threads": torch.get_num_threads(), "torch": torch.__version__}
    for name, row in sorted(found["methods"].items(), key=lambda item: item[1]["ms"]):
        solver = f"   transport {100 * row['solver_share']:.1f}% of it" if row["solver_share"] else ""
        print(f"{name:<18} {row['ms']:8.1f} ms   {row['of_kd']:.2f} x kd{solver}")
    for name, value in found["ratios"].items():
        print(f"{name}: {value:.3f}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
