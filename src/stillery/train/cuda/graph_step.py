"""Whole optimiser steps as replayed CUDA graphs.

A small model's step is a few thousand kernels that take less time than launching them from Python. A step that is the
same computation as an earlier one, on other examples, is recorded once and then replayed: losses, gradients, clipping
and the optimiser. Values that differ between replays are in tensors that are filled before each: the examples, the
teacher's cached outputs on them, the learning rate; dropout is seeded by the step, as without a graph.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from stillery.pair_distances import flat_layers
from stillery.progress import detail, say
from stillery.train.cuda.capture import first_line, recorded
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Objective
from stillery.train.seeds import seed_generators, step_seed
from stillery.train.settings import Training
from stillery.train.step import Step
from stillery.train.step_losses import StepLosses, stacked
from stillery.train.step_plan import LayerPairs, StepPlan
from stillery.train.teacher_cache.array_files import bits
from stillery.train.teacher_cache.contents import CachedArray

__all__ = ["Graphs", "PackedStep", "graphs_for", "packed", "same_step", "tensors_of", "why_not"]

MOST = 96
"""Maximum number of graphs that are kept; the oldest is dropped first."""


def why_not(objective: Objective, stage: int, settings: Training, accelerator: Accelerator) -> str | None:
    """Return the reason why the steps of a stage cannot be recorded, or None."""
    recipe = objective.stages[stage]
    if accelerator.device.type != "cuda":
        return "this run is not on a CUDA device"
    if accelerator.num_processes > 1:
        return "several processes wait for each other in every step"
    if settings.accumulate > 1:
        return "accumulation divides each step in other micro-batches"
    if accelerator.scaler is not None:
        return "fp16 decides in every step whether to skip it"
    if recipe.mixing is not None:
        return f"stage {recipe.name} mixes its examples anew in every step"
    if any(match.flow is not None for match in recipe.matches):
        return f"the transport of stage {recipe.name} is solved on the CPU"
    if any(match.criterion is not None for match in recipe.matches):
        return f"the memory of stage {recipe.name} changes in every step"
    return None


def graphs_for(step: Step, stage: int, settings: Training) -> Graphs | None:
    """Create the graphs of a stage's steps, if requested and possible."""
    if settings.graph == "off":
        return None
    why = why_not(step.objective, stage, settings, step.accelerator)
    if why is None:
        return Graphs(step)
    if settings.graph == "on" or step.accelerator.device.type == "cuda":
        (say if settings.graph == "on" else detail)(f"CUDA graphs: off, {why}")
    return None


def _slots(pairs: LayerPairs) -> dict[int, int]:
    """Number the matched teacher layers, in the order of their first appearance."""
    slots: dict[int, int] = {}
    for meeting in pairs:
        for _, theirs in meeting:
            for layer in flat_layers(theirs):
                slots.setdefault(layer, len(slots))
    return slots


def tensors_of(micro_batch: MicroBatch, slots: Mapping[int, int]) -> dict[Hashable, Tensor]:
    """The tensors of a micro-batch by their role in its step; teacher layers are identified by slot, not by number."""
    batch = micro_batch.batch
    found: dict[Hashable, Tensor] = {name: tensor for name, tensor in batch.inputs.items()}  # noqa: C416
    found |= {_of_teacher(name): tensor for name, tensor in (batch.teacher or {}).items()}
    found["places"] = micro_batch.places
    if batch.labels is not None:
        found["class labels"] = batch.labels
    for array, rows in (micro_batch.cached or {}).items():
        found[_role(array, slots)] = rows
    return found


def _of_teacher(name: str) -> Hashable:
    return "teacher", name


def _role(array: CachedArray, slots: Mapping[int, int]) -> Hashable:
    return array.kind, slots.get(array.layer, -1)


def same_step(plan: StepPlan, micro_batch: MicroBatch) -> tuple[Hashable, dict[int, int]]:
    """Return a key that steps share if they are the same computation on other values, and the slots of its layers.

    Where all outputs of the teacher are cached, the layer numbers of their rows do not matter: steps with layers
    redrawn every epoch share a key.
    """
    slots = _slots(plan.pairs)
    pairs: Hashable = plan.pairs
    if micro_batch.cached is None:
        slots = {layer: layer for layer in slots}
    else:
        pairs = tuple(
            tuple(
                (ours, tuple(slots[layer] for layer in flat_layers(theirs)), isinstance(theirs, int))
                for ours, theirs in meeting
            )
            for meeting in plan.pairs
        )
    shapes = sorted(
        (str(name), tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors_of(micro_batch, slots).items()
    )
    weights = tuple(plan.weights[match.name] for match in plan.stage.matches)
    share = tuple(sorted(micro_batch.share.items()))
    return (plan.clock.stage, pairs, tuple(shapes), weights, share, micro_batch.batch.generated), slots


_ALIGNED = 64


def _layout(tensors: Mapping[Hashable, Tensor]) -> tuple[dict[Hashable, int], int]:
    """The offset of each tensor in one buffer, and the size of the buffer in bytes."""
    places: dict[Hashable, int] = {}
    end = 0
    for name in sorted(tensors, key=str):
        places[name] = end
        end += -(-tensors[name].nbytes // _ALIGNED) * _ALIGNED
    return places, end


def _view(memory: Tensor, place: int, like: Tensor) -> Tensor:
    return memory[place : place + like.nbytes].view(like.dtype).view(like.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedStep:
    """A micro-batch that is a whole step, with the key of its computation and its tensors in one buffer."""

    plan: StepPlan
    micro_batch: MicroBatch
    key: Hashable
    slots: Mapping[int, int]
    memory: Tensor

    def unpacked(self, device: torch.device) -> tuple[MicroBatch, Tensor]:
        """Return the micro-batch as views of a new, unfilled buffer on a device, and that buffer."""
        memory = torch.empty_like(self.memory, device=device)
        tensors = tensors_of(self.micro_batch, self.slots)
        places, _ = _layout(tensors)
        found = {name: _view(memory, places[name], tensor) for name, tensor in tensors.items()}
        batch = self.micro_batch.batch
        cached = self.micro_batch.cached
        teacher = None if batch.teacher is None else {name: found[_of_teacher(name)] for name in batch.teacher}
        inputs = {name: found[name] for name in batch.inputs}
        return replace(
            self.micro_batch,
            batch=replace(batch, inputs=inputs, teacher=teacher, labels=found.get("class labels")),
            places=found["places"],
            cached=None if cached is None else {array: found[_role(array, self.slots)] for array in cached},
        ), memory


def packed(plan: StepPlan, micro_batch: MicroBatch) -> PackedStep:
    """Pack a micro-batch into one buffer, so that a single copy transfers it to a device."""
    key, slots = same_step(plan, micro_batch)
    tensors = tensors_of(micro_batch, slots)
    places, size = _layout(tensors)
    memory = torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    # With numpy: each torch call may yield to the thread that takes the steps, which costs more than the copy.
    into = memory.numpy()
    for name, tensor in tensors.items():
        into[places[name] : places[name] + tensor.nbytes] = bits(tensor).reshape(-1).view(np.uint8)
    return PackedStep(plan=plan, micro_batch=micro_batch, key=key, slots=slots, memory=memory)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Recorded:
    """A recorded step: the buffer it reads, and the total, the terms and the gradient norm it writes."""

    graph: torch.cuda.CUDAGraph
    reads: Tensor
    names: Sequence[str]
    writes: Tensor


class Graphs:
    """Takes the steps of a stage: the first of each key eagerly, later ones as replayed graphs."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.seen: set[Hashable] = set()
        self.recorded: dict[Hashable, _Recorded] = {}
        self.pool: Any = None
        self.refused = False

    def __call__(self, one: PackedStep) -> StepLosses:
        """Take a step on its one micro-batch."""
        if one.key not in self.recorded:
            recorded = None
            if one.key in self.seen and not self.refused:
                recorded = self._record(one)
            self.seen.add(one.key)
            if recorded is None:
                return self.step(one.plan, [one.micro_batch.pinned().to(self.step.accelerator.device)])
            if len(self.recorded) >= MOST:
                del self.recorded[next(iter(self.recorded))]
            self.recorded[one.key] = recorded
        return self._replay(self.recorded[one.key], one)

    def _record(self, one: PackedStep) -> _Recorded | None:
        """Record a step without taking it; None if it cannot be recorded, which is reported once."""
        step = self.step
        micro_batch, reads = one.unpacked(step.accelerator.device)
        pool = self.pool if self.pool is not None else torch.cuda.graph_pool_handle()

        def work() -> tuple[list[str], Tensor]:
            losses = step.losses(one.plan, micro_batch)
            names, values = list(losses.terms), stacked(losses)
            step.backward(losses)
            return names, torch.cat([values, step.update().to(values.dtype)[None]])

        step.optimiser.zero_grad(set_to_none=True)
        try:
            graph, (names, writes) = recorded(work, pool, step.accelerator.device)
        except Exception as error:
            self._refuse(error)
            return None
        finally:
            # The gradients are in the graphs' memory; each replay recomputes them.
            step.optimiser.zero_grad(set_to_none=True)
        self.pool = pool
        return _Recorded(graph=graph, reads=reads, names=names, writes=writes)

    def _refuse(self, error: Exception) -> None:
        self.refused = True
        detail(f"CUDA graphs: off, this step cannot be recorded ({first_line(error)})")

    def _replay(self, recorded: _Recorded, one: PackedStep) -> StepLosses:
        clock = one.plan.clock
        recorded.reads.copy_(one.memory, non_blocking=True)
        accelerator = self.step.accelerator
        seed_generators(step_seed(clock.seed, clock.step, 0, accelerator.process_index), accelerator.device)
        recorded.graph.replay()
        # Cloned because the next replay overwrites them.
        *values, norm = recorded.writes.clone().split([len(recorded.names) + 1, 1])
        losses = StepLosses(step=clock.step + 1)
        losses.add(recorded.names, values[0], one.micro_batch.batch.ids)
        losses.norm = norm
        return losses
