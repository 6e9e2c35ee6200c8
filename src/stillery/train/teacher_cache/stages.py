"""Which stages of a run read what their teacher shows from the store, decided before the first step and said."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from accelerate import Accelerator

from stillery.data.cache.folder import GIGABYTE, Cache, find_cache
from stillery.errors import UserError
from stillery.progress import say
from stillery.train.checkpoint import Progress
from stillery.train.data import TrainingData
from stillery.train.distributed import from_main
from stillery.train.objective import Objective
from stillery.train.settings import Storing
from stillery.train.stage_clocks import Lesson
from stillery.train.teacher import Teacher
from stillery.train.teacher_cache.cache import TeacherStore
from stillery.train.teacher_cache.cached_teacher import StoredTeacher
from stillery.train.teacher_cache.contents import Plan, What, plan_of
from stillery.train.teacher_cache.worthwhile import Estimate, disk_speed, memory_bytes, teacher_seconds

__all__ = ["Choice", "Taught", "stage_teachers"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Whether stages read from a store, and why; of what size and number format it is."""

    stages: list[str]
    used: bool
    why: str
    bytes: int | None = None
    dtype: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Taught:
    """The teacher of each stage that is left, how that was chosen, and the seconds it took, filling included."""

    teachers: dict[int, Teacher | None]
    choices: list[Choice] = field(default_factory=list)
    seconds: float = 0.0

    def noted(self, progress: Progress) -> Progress:
        """The progress of a run with this in it; what its first part chose stands."""
        progress = progress.after(
            seconds=progress.seconds + self.seconds, store_seconds=progress.store_seconds + self.seconds
        )
        if progress.stored is not None:
            return progress
        reading = [stage for stage, teacher in self.teachers.items() if isinstance(teacher, StoredTeacher)]
        return progress.after(stored=reading, store_choices=[asdict(choice) for choice in self.choices])


def stage_teachers(
    lessons: Sequence[Lesson],
    objective: Objective,
    storing: Storing | None,
    accelerator: Accelerator,
    *,
    batch_size: int,
    before: Sequence[int] | None = None,
    decided: Collection[int] | None = None,
    run: str = "",
) -> Taught:
    """The teacher of each stage that is left: one that reads where that is possible, asked for and worth it.

    `before` are the stages that read in the first part of a run that now goes on: it goes on as it began. `decided` are
    those of the run that this one repeats: nothing is measured, as times may be others now. `run` is what others are
    told who wait for it.
    """
    began = time.perf_counter()
    teachers: dict[int, Teacher | None] = {lesson.stage: lesson.teacher for lesson in lessons}
    taught = [lesson for lesson in lessons if objective.stages[lesson.stage].needs_teacher]
    cache = None if storing is None or storing.cache == "off" else find_cache()
    if storing is None or storing.cache == "off" or not taught:
        return Taught(teachers=teachers)
    if decided is not None:
        storing = replace(storing, cache="on")
    choices: list[Choice] = []
    groups: dict[tuple[int, int], dict[int, tuple[Lesson, Plan]]] = {}
    for lesson in taught:
        if before is not None and lesson.stage not in before:
            continue
        plan = _planned(lesson, objective, storing, again=before is not None)
        if cache is None:
            plan = "the cache folder is turned off (STILLERY_CACHE=off)"
        if isinstance(plan, Plan) and before is None and decided is not None and lesson.stage not in decided:
            plan = "as the run file says"
        if isinstance(plan, str):
            _refuse_another_way(before, plan)
            say(f"teacher store: off, {plan}")
            choices.append(Choice(stages=[objective.stages[lesson.stage].name], used=False, why=plan))
        else:
            groups.setdefault((id(lesson.teacher), id(lesson.data)), {})[lesson.stage] = lesson, plan
    for plans in groups.values():
        assert cache is not None
        store, choice = _filled(cache, plans, objective, storing, accelerator, batch_size, before is not None, run)
        choices.append(choice)
        if not choice.used:
            _refuse_another_way(before, choice.why)
        else:
            teachers |= {stage: store.teacher_of(plan) for stage, (_, plan) in plans.items()}
    return Taught(teachers=teachers, choices=choices, seconds=time.perf_counter() - began)


def _refuse_another_way(before: Sequence[int] | None, why: str) -> None:
    """Refuse to go on live where a run has read from its store: it would end with other bits than it was to."""
    if before is not None:
        raise UserError(
            f"so far this run has read from the teacher store, which is not possible now: {why}; make it possible and "
            "--resume again, or begin anew with another --out"
        )


def _planned(lesson: Lesson, objective: Objective, storing: Storing, *, again: bool) -> Plan | str:
    """What of a stage is kept, or why nothing is."""
    if not isinstance(lesson.data, TrainingData):
        return "a teacher that writes text is asked live"
    stage = objective.stages[lesson.stage]
    plan = plan_of(stage, objective.between[lesson.stage], lesson.clocks)
    if isinstance(plan, Plan) and not plan.arrays:
        return f"stage {stage.name} shows its teacher mixed examples alone"
    if isinstance(plan, Plan) and plan.attends and storing.cache == "auto" and not again:
        return f"the queries, keys and values that stage {stage.name} needs are large; --cache on keeps them"
    return plan


def _filled(
    cache: Cache,
    plans: Mapping[int, tuple[Lesson, Plan]],
    objective: Objective,
    storing: Storing,
    accelerator: Accelerator,
    batch_size: int,
    decided: bool,
    run: str,
) -> tuple[TeacherStore, Choice]:
    """The store of the stages that one teacher has on one training part, whole where it is to be used."""
    lesson = next(iter(plans.values()))[0]
    assert lesson.teacher is not None and isinstance(lesson.data, TrainingData)
    arrays = frozenset[What]().union(*(plan.arrays for _, plan in plans.values()))
    dtype = storing.cache_dtype
    if dtype == "auto":
        dtype = "fp32" if accelerator.mixed_precision == "no" else "fp16"
    store = TeacherStore(cache, lesson.teacher, lesson.data, arrays, dtype=dtype, accelerator=accelerator, run=run)
    limit = int(storing.cache_limit * GIGABYTE)
    looks = sum(one.examples for one, _ in plans.values())
    use, why = False, ""
    if accelerator.is_main_process:
        try:
            use, why = _decision(store, looks, batch_size, limit, wanted=decided or storing.cache == "on")
        except OSError as error:
            why = store.cannot(error)
    use, why = from_main(accelerator, (use, why))
    size = f"{store.bytes / 1e6:,.1f} MB ({dtype}; {', '.join(map(str, store.files))})"
    say(f"teacher store: {'on' if use else 'off'}, {size} for {len(lesson.data):,} examples: {why}")
    failed = store.fill(limit) if use else None
    if failed is not None:
        say(f"teacher store: off, {failed}" + ("" if decided else "; the teacher is asked live"))
    names = [objective.stages[stage].name for stage in plans]
    choice = Choice(stages=names, used=use and failed is None, why=failed or why, bytes=store.bytes, dtype=dtype)
    return store, choice


def _decision(store: TeacherStore, looks: int, batch_size: int, limit: int, *, wanted: bool) -> tuple[bool, str]:
    """Whether to use a store, and why."""
    if store.more_than_keys:
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
    speed = disk_speed(folder)
    # What is in memory after it was filled or checked stays there if it is not most of it.
    again = speed.read_again if 2 * store.bytes < memory_bytes() else speed.read
    filling = seconds * share * len(store.data) + missing / speed.write
    reading = (store.bytes - missing) / speed.read + store.bytes / len(store.data) * looks / again
    estimate = Estimate(live=seconds * looks, stored=filling + reading)
    return estimate.worth_it, f"{estimate}, {kept}"
