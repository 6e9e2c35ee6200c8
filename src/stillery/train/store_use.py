"""Which stages of a run read what their teacher shows from the store, decided before the first step and said."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn

from stillery.data.cache import GIGABYTE, Cache, find_cache
from stillery.progress import say
from stillery.train.data import TrainingData
from stillery.train.lessons import Lesson
from stillery.train.objective import Objective
from stillery.train.settings import Storing
from stillery.train.store import StoredTeacher, TeacherStore
from stillery.train.store_choice import Estimate, disk_speed, teacher_seconds
from stillery.train.store_plan import Plan, What, plan_of
from stillery.train.teacher import LiveTeacher, Teacher

__all__ = ["idle_teachers_away", "stage_teachers"]


def stage_teachers(
    lessons: Sequence[Lesson],
    objective: Objective,
    storing: Storing | None,
    accelerator: Accelerator,
    *,
    batch_size: int,
    before: Sequence[int] | None = None,
) -> dict[int, Teacher | None]:
    """The teacher of each stage that is left: one that reads where that is possible, asked for and worth it.

    `before` are the stages that read in the first part of a run that now goes on: it goes on as it began.
    """
    teachers: dict[int, Teacher | None] = {lesson.stage: lesson.teacher for lesson in lessons}
    taught = [lesson for lesson in lessons if objective.stages[lesson.stage].needs_teacher]
    cache = None if storing is None or storing.cache == "off" else find_cache()
    if storing is None or cache is None or not taught:
        if storing is not None and storing.cache == "on" and taught:
            say("teacher store: off, the cache folder is turned off (STILLERY_CACHE=off)")
        return teachers
    groups: dict[tuple[int, int], dict[int, tuple[Lesson, Plan]]] = {}
    for lesson in taught:
        plan = _planned(lesson, objective, storing, before)
        if isinstance(plan, str):
            if plan:
                say(f"teacher store: off, {plan}")
        elif plan.arrays:
            groups.setdefault((id(lesson.teacher), id(lesson.data)), {})[lesson.stage] = lesson, plan
    for plans in groups.values():
        try:
            store = _filled(cache, plans, storing, accelerator, batch_size, decided=before is not None)
            if store is not None:
                teachers |= {stage: store.teacher_of(plan) for stage, (_, plan) in plans.items()}
        except OSError as error:
            say(f"teacher store: off, {cache.folder} cannot be used ({error.strerror or type(error).__name__})")
    return teachers


def _planned(lesson: Lesson, objective: Objective, storing: Storing, before: Sequence[int] | None) -> Plan | str:
    """What of a stage is kept, or why nothing is."""
    if before is not None and lesson.stage not in before:
        return ""
    if not isinstance(lesson.data, TrainingData):
        return "a teacher that writes text is asked live"
    stage = objective.stages[lesson.stage]
    plan = plan_of(stage, objective.between[lesson.stage], lesson.clocks)
    if isinstance(plan, Plan) and plan.attends and storing.cache == "auto" and before is None:
        return f"the queries, keys and values that stage {stage.name} needs are large; --cache on keeps them"
    return plan


def _filled(
    cache: Cache,
    plans: Mapping[int, tuple[Lesson, Plan]],
    storing: Storing,
    accelerator: Accelerator,
    batch_size: int,
    *,
    decided: bool,
) -> TeacherStore | None:
    """The store of the stages that one teacher has on one training part, whole; None where it is not to be used."""
    lesson = next(iter(plans.values()))[0]
    assert lesson.teacher is not None and isinstance(lesson.data, TrainingData)
    arrays = frozenset[What]().union(*(plan.arrays for _, plan in plans.values()))
    dtype = storing.cache_dtype
    if dtype == "auto":
        dtype = "fp32" if accelerator.mixed_precision == "no" else "fp16"
    store = TeacherStore(cache, lesson.teacher, lesson.data, arrays, dtype=dtype, accelerator=accelerator)
    limit = int(storing.cache_limit * GIGABYTE)
    looks = sum(one.examples for one, _ in plans.values())
    use, why = False, ""
    if accelerator.is_main_process:
        use, why = _decision(store, looks, batch_size, limit, wanted=decided or storing.cache == "on")
    use, why = _agreed(accelerator, use, why)
    size = f"{store.bytes / 1e6:,.1f} MB ({dtype}; {', '.join(map(str, store.files))})"
    say(f"teacher store: {'on' if use else 'off'}, {size} for {len(lesson.data):,} examples: {why}")
    if not use:
        return None
    if accelerator.is_main_process:
        store.make_room(limit)
    if not store.fill():
        say(f"teacher store: off, what the teacher shows does not fit {dtype}; use --cache-dtype bf16 or fp32")
        return None
    return store


def _decision(store: TeacherStore, looks: int, batch_size: int, limit: int, *, wanted: bool) -> tuple[bool, str]:
    """Whether to use a store, and why."""
    if store.like.bias or store.like.rotated_query:
        return False, "this family's attention is more than queries and keys"
    if store.bytes > limit:
        return False, f"more than --cache-limit {limit / GIGABYTE:g} GB"
    missing, folder = store.missing_bytes(), store.cache.folder
    folder.mkdir(parents=True, exist_ok=True)
    if missing > shutil.disk_usage(folder).free:
        return False, f"{folder} has no room for it"
    kept = "found whole" if not missing else f"{missing / 1e6:,.1f} MB to be filled"
    if wanted:
        return True, kept
    share = store.missing_share()
    if looks <= share * len(store.data):
        return False, "no example is looked at twice"
    seconds = teacher_seconds(store.teacher, store.data, store.needs, batch_size, store.accelerator)
    writing, reading = disk_speed(folder)
    read = store.bytes / len(store.data) * looks / reading
    filling = seconds * share * len(store.data) + missing / writing
    estimate = Estimate(live=seconds * looks, stored=filling + read)
    return estimate.worth_it, f"{estimate}, {kept}"


def _agreed(accelerator: Accelerator, use: bool, why: str) -> tuple[bool, str]:
    """What the main process has found, in all of them."""
    if accelerator.num_processes > 1:
        found: list[Any] = [use, why]
        broadcast_object_list(found)
        use, why = found
    return use, why


@contextmanager
def idle_teachers_away(
    taught: Mapping[int, Teacher | None], objective: Objective, accelerator: Accelerator
) -> Iterator[None]:
    """Keep a teacher that only its store stands for off the accelerator."""
    reading: list[nn.Module] = [one.live.model for one in taught.values() if isinstance(one, StoredTeacher)]
    running: list[nn.Module] = [one.model for one in taught.values() if isinstance(one, LiveTeacher)]
    mixing = any(match.view == "mixed" for stage in objective.stages for match in stage.matches)
    idle = [] if mixing or accelerator.device.type == "cpu" else [one for one in reading if one not in running]
    for model in idle:
        model.to("cpu")
    if idle:
        torch.cuda.empty_cache()
    yield
    for model in idle:
        model.to(accelerator.device)
