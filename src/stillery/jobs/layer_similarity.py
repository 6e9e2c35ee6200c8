"""Layer similarity (CKA) for the pairings that need it, measured once before training and saved with the run."""

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
"""The layer similarity by teacher of a stage (task, supplementary) and by stack."""


def asking(stages: Sequence[Stage]) -> list[tuple[Stage, Match]]:
    """Return the matches whose pairing needs the layer similarity, with their stages."""
    return [(stage, match) for stage in stages for match in stage.matches if asks(match)]


def measured(
    stages: Sequence[Stage], student: PreTrainedModel, teachers: Mapping[str, Loaded], calibration: Calibration
) -> Alike:
    """Measure the similarity of the initial student's layers to those of the teachers that need it."""
    ours = layer_means(student, calibration.batches(student.config))
    taught_by = dict.fromkeys(stage.teacher for stage, _ in asking(stages))
    return {
        name: layer_similarity(ours, layer_means(teachers[name].model, calibration.batches(student.config)))
        for name in taught_by
    }


def decided(stages: Sequence[Stage], alike: Alike) -> tuple[Stage, ...]:
    """Return the stages with their layer pairs decided by the measured similarity."""

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
    """Return the layer pairs of the matches that asked for the similarity, once decided."""
    names = {match.name for _, match in asked}
    found = {}
    for stage in stages:
        theirs = stack_sizes(teachers[stage.teacher].model.config)
        for match in (match for match in stage.matches if match.name in names):
            depths = [sizes_in(each, match.stack).layers for each in (stack_sizes(student.config), theirs)]
            found[match.name] = match.pairs(depths[0], depths[1], Clock(seed=seed))
    return found


def kept(out: Path) -> Alike | None:
    """Read the similarity measured by an earlier start of the run in this folder; None if there is none."""
    try:
        alike: Alike = json.loads((out / _FILE).read_text(encoding="utf-8"))["similarity"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{out / _FILE} cannot be read: give another folder and start again") from None
    return alike


def keep(out: Path, alike: Alike, pairs: Mapping[str, Pairs]) -> None:
    """Save the measured similarity and the resulting pairs, for resuming the run and as a record."""
    write_json(out / _FILE, {"pairs": pairs, "similarity": alike})
    with (out / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps({"event": "pairs", "step": 0, "pairs": pairs}) + "\n")


def agreed(accelerator: Accelerator, alike: Alike | None) -> Alike:
    """Broadcast the similarity measured by the main process to every process."""
    found = from_main(accelerator, alike)
    assert found is not None
    return found
