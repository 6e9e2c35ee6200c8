"""Whole optimiser steps as replayed CUDA graphs.

A small model's step is a few thousand kernels that take less time than starting them from Python does. Where a step is
the same computation as one before, only on other examples, it is recorded once and then replayed: losses, gradients,
clipping and the optimiser. What may differ between replays lies in tensors that are filled before each: the examples,
what the teacher showed on them, the learning rate; dropout draws from the seed of the step, as it does unrecorded.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from stillery.losses import flat_layers
from stillery.progress import say
from stillery.recipe import Clock, Stage
from stillery.train.cuda.capture import first_line, recorded
from stillery.train.microbatches import Part
from stillery.train.objective import Objective
from stillery.train.seeds import seed_generators, step_seed
from stillery.train.settings import Training
from stillery.train.step import Step
from stillery.train.step_losses import Said, spoken
from stillery.train.step_plan import meeting_of
from stillery.train.teacher_cache.contents import What
from stillery.train.teacher_cache.files import bits

__all__ = ["Graphs", "Packed", "graphs_for", "packed", "same_step", "tensors_of", "why_not"]

MOST = 96
"""Graphs that are kept; beyond them the one recorded first is forgotten."""


def why_not(objective: Objective, stage: int, settings: Training, accelerator: Accelerator) -> str | None:
    """Why the steps of a stage cannot be recorded, if they cannot."""
    recipe = objective.stages[stage]
    if accelerator.device.type != "cuda":
        return "this run is not on a CUDA device"
    if accelerator.num_processes > 1:
        return "several processes wait for each other in every step"
    if settings.accumulate > 1:
        return "accumulation cuts each step in other parts"
    if accelerator.scaler is not None:
        return "fp16 decides in every step whether to skip it"
    if recipe.mixing is not None:
        return f"stage {recipe.name} mixes its examples anew in every step"
    if any(match.flow is not None for match in recipe.matches):
        return f"the transport of stage {recipe.name} is solved on the CPU"
    if any(match.criterion is not None for match in recipe.matches):
        return f"what stage {recipe.name} remembers changes in every step"
    return None


def graphs_for(step: Step, stage: int, settings: Training) -> Graphs | None:
    """Graphs for the steps of a stage, where that is asked for and possible."""
    if settings.graph == "off":
        return None
    why = why_not(step.objective, stage, settings, step.accelerator)
    if why is None:
        return Graphs(step)
    if settings.graph == "on" or step.accelerator.device.type == "cuda":
        say(f"CUDA graphs: off, {why}")
    return None


def _slots(stage: Stage, objective: Objective, clock: Clock) -> tuple[Any, dict[int, int]]:
    """Which layers meet, and a number for each of the teacher's by when it first appears."""
    slots: dict[int, int] = {}
    meeting = meeting_of(stage, objective.between[clock.stage], clock)
    for pairs in meeting:
        for _, theirs in pairs:
            for layer in flat_layers(theirs):
                slots.setdefault(layer, len(slots))
    return meeting, slots


def tensors_of(part: Part, slots: Mapping[int, int]) -> dict[Hashable, Tensor]:
    """The tensors of a micro-batch by what they mean to its step; a teacher's layer by its slot, not its number."""
    found: dict[Hashable, Tensor] = {name: tensor for name, tensor in part.batch.inputs.items()}  # noqa: C416
    found["places"] = part.places
    if part.batch.labels is not None:
        found["class labels"] = part.batch.labels
    for what, rows in (part.kept or {}).items():
        found[_named(what, slots)] = rows
    return found


def _named(what: What, slots: Mapping[int, int]) -> Hashable:
    return what.kind, slots.get(what.layer, -1)


def same_step(objective: Objective, part: Part, clock: Clock) -> tuple[Hashable, dict[int, int]]:
    """What two steps have in common if they are the same computation on other values, and the slots of its layers.

    Where everything a teacher shows was kept, which of its layers a row is from does not matter: layers drawn anew in
    every epoch are the same step.
    """
    stage = objective.stages[clock.stage]
    meeting, slots = _slots(stage, objective, clock)
    if part.kept is None:
        slots = {layer: layer for layer in slots}
    else:
        meeting = tuple(
            tuple(
                (ours, tuple(slots[layer] for layer in flat_layers(theirs)), isinstance(theirs, int))
                for ours, theirs in pairs
            )
            for pairs in meeting
        )
    shapes = sorted(
        (str(name), tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors_of(part, slots).items()
    )
    weights = tuple(match.weight_at(clock) for match in stage.matches)
    share = tuple(sorted(part.share.items()))
    return (clock.stage, meeting, tuple(shapes), weights, share, part.batch.generated), slots


_ALIGNED = 64


def _layout(tensors: Mapping[Hashable, Tensor]) -> tuple[dict[Hashable, int], int]:
    """Where each of several tensors begins in one piece of memory, and how many bytes that has."""
    places: dict[Hashable, int] = {}
    end = 0
    for name in sorted(tensors, key=str):
        places[name] = end
        end += -(-tensors[name].nbytes // _ALIGNED) * _ALIGNED
    return places, end


def _view(memory: Tensor, place: int, like: Tensor) -> Tensor:
    return memory[place : place + like.nbytes].view(like.dtype).view(like.shape)


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """A micro-batch that is a whole step, with what it has in common with others and its tensors in one piece."""

    part: Part
    key: Hashable
    slots: Mapping[int, int]
    memory: Tensor

    def unpacked(self, device: torch.device) -> tuple[Part, Tensor]:
        """The micro-batch with its tensors in one piece of memory on a device, and that piece."""
        memory = torch.empty_like(self.memory, device=device)
        tensors = tensors_of(self.part, self.slots)
        places, _ = _layout(tensors)
        found = {name: _view(memory, places[name], tensor) for name, tensor in tensors.items()}
        batch = self.part.batch
        kept = self.part.kept
        return replace(
            self.part,
            batch=replace(batch, inputs={name: found[name] for name in batch.inputs}, labels=found.get("class labels")),
            places=found["places"],
            kept=None if kept is None else {what: found[_named(what, self.slots)] for what in kept},
        ), memory


def packed(objective: Objective, part: Part, clock: Clock) -> Packed:
    """Pack a micro-batch for the way to a device: one copy instead of one for each tensor."""
    key, slots = same_step(objective, part, clock)
    tensors = tensors_of(part, slots)
    places, size = _layout(tensors)
    memory = torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    # Not by torch: at each of its calls the thread that takes the steps may run, and to and fro costs more than this.
    into = memory.numpy()
    for name, tensor in tensors.items():
        into[places[name] : places[name] + tensor.nbytes] = bits(tensor).reshape(-1).view(np.uint8)
    return Packed(part=part, key=key, slots=slots, memory=memory)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Recorded:
    """A recorded step: what it reads, and the total, the terms and the gradients' norm that it writes."""

    graph: torch.cuda.CUDAGraph
    reads: Tensor
    names: Sequence[str]
    writes: Tensor


class Graphs:
    """Takes the steps of a stage: the first of a kind operation by operation, the second and later ones recorded."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.seen: set[Hashable] = set()
        self.recorded: dict[Hashable, _Recorded] = {}
        self.pool: Any = None
        self.refused = False

    def __call__(self, one: Packed, clock: Clock) -> Said:
        """Take a step on one micro-batch that is the whole of it."""
        if one.key not in self.recorded:
            recorded = None
            if one.key in self.seen and not self.refused:
                recorded = self._record(one, clock)
            self.seen.add(one.key)
            if recorded is None:
                return self.step([one.part.pinned().to(self.step.accelerator.device)], clock)
            if len(self.recorded) >= MOST:
                del self.recorded[next(iter(self.recorded))]
            self.recorded[one.key] = recorded
        return self._replay(self.recorded[one.key], one, clock)

    def _record(self, one: Packed, clock: Clock) -> _Recorded | None:
        """Record a step without taking it; None where something in it cannot be recorded, which is said once."""
        step = self.step
        part, reads = one.unpacked(step.accelerator.device)
        pool = self.pool if self.pool is not None else torch.cuda.graph_pool_handle()

        def work() -> tuple[list[str], Tensor]:
            losses = step.losses(part, clock)
            names, values = list(losses.terms), spoken(losses)
            step.backward(losses)
            return names, torch.cat([values, step.move().to(values.dtype)[None]])

        step.optimiser.zero_grad(set_to_none=True)
        try:
            graph, (names, writes) = recorded(work, pool, step.accelerator.device)
        except Exception as error:
            self._refuse(error)
            return None
        finally:
            # The gradients live in the graphs' memory and are made anew by each replay.
            step.optimiser.zero_grad(set_to_none=True)
        self.pool = pool
        return _Recorded(graph=graph, reads=reads, names=names, writes=writes)

    def _refuse(self, error: Exception) -> None:
        self.refused = True
        say(f"CUDA graphs: off, this step cannot be recorded ({first_line(error)})")

    def _replay(self, recorded: _Recorded, one: Packed, clock: Clock) -> Said:
        recorded.reads.copy_(one.memory, non_blocking=True)
        accelerator = self.step.accelerator
        seed_generators(step_seed(clock.seed, clock.step, 0, accelerator.process_index), accelerator.device)
        recorded.graph.replay()
        # The next replay writes over them.
        *values, norm = recorded.writes.clone().split([len(recorded.names) + 1, 1])
        said = Said(step=clock.step + 1)
        said.add(recorded.names, values[0], one.part.batch.ids)
        said.norm = norm
        return said
