"""Which layers are alike, measured once before training for the pairings that ask for it, and kept with the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from accelerate import Accelerator
from transformers import PreTrainedModel

from stillery.errors import UserError
from stillery.jobs.calibration import Calibration
from stillery.jobs.run_folder import write_json
from stillery.models.family import stack_sizes
from stillery.models.load_model import Loaded
from stillery.models.similarity import layer_means, layer_similarity
from stillery.recipe import Clock, Match, Pairs, Stage
from stillery.similarity_pairing import Similarity, asks, with_similarity
from stillery.train.distributed import from_main
from stillery.train.step_plan import sizes_in

__all__ = ["Alike", "agreed", "asking", "decided", "keep", "kept", "measured", "pairs_said"]

_FILE = "similarity.json"

Alike = Mapping[str, Mapping[str, Similarity]]
"""By the teacher of a stage (task, supplementary) and by stack, how alike the layers are."""


def asking(stages: Sequence[Stage]) -> list[tuple[Stage, Match]]:
    """The matches whose pairing asks how alike the layers are."""
    return [(stage, match) for stage in stages for match in stage.matches if asks(match)]


def measured(
    stages: Sequence[Stage], student: PreTrainedModel, teachers: Mapping[str, Loaded], calibration: Calibration
) -> Alike:
    """How alike the layers of the student, as it starts, are to those of the teachers that are asked about."""
    ours = layer_means(student, calibration.batches(student.config))
    taught_by = dict.fromkeys(stage.teacher for stage, _ in asking(stages))
    return {
        name: layer_similarity(ours, layer_means(teachers[name].model, calibration.batches(student.config)))
        for name in taught_by
    }


def decided(stages: Sequence[Stage], alike: Alike) -> tuple[Stage, ...]:
    """The stages with layers that meet as the measurement says."""

    def of(stage: Stage, match: Match) -> Similarity:
        stacks = alike[stage.teacher]
        return next(iter(stacks.values())) if match.stack is None else stacks[match.stack]

    return with_similarity(stages, of)


def pairs_said(
    asked: Sequence[tuple[Stage, Match]],
    stages: Sequence[Stage],
    student: PreTrainedModel,
    teachers: Mapping[str, Loaded],
    seed: int,
) -> dict[str, Pairs]:
    """Which layers meet in those matches, now that it is decided."""
    names = {match.name for _, match in asked}
    found = {}
    for stage in stages:
        theirs = stack_sizes(teachers[stage.teacher].model.config)
        for match in (match for match in stage.matches if match.name in names):
            depths = [sizes_in(each, match.stack).layers for each in (stack_sizes(student.config), theirs)]
            found[match.name] = match.pairs(depths[0], depths[1], Clock(seed=seed))
    return found


def kept(out: Path) -> Alike | None:
    """What a run that began in this folder has measured, if it has."""
    try:
        alike: Alike = json.loads((out / _FILE).read_text(encoding="utf-8"))["similarity"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{out / _FILE} cannot be read: give another folder and begin anew") from None
    return alike


def keep(out: Path, alike: Alike, pairs: Mapping[str, Pairs]) -> None:
    """Write down what was measured and what it decides, for a run that goes on later and for who reads it."""
    write_json(out / _FILE, {"pairs": pairs, "similarity": alike})
    with (out / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps({"event": "pairs", "step": 0, "pairs": pairs}) + "\n")


def agreed(accelerator: Accelerator, alike: Alike | None) -> Alike:
    """What the main process has found, in every process."""
    found = from_main(accelerator, alike)
    assert found is not None
    return found
