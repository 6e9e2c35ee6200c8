"""The decision, before the first step, which stages of a run read their teacher's outputs from the cache."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from accelerate import Accelerator

from stillery.data.cache.folder import GIGABYTE, Cache, find_cache
from stillery.errors import UserError
from stillery.lines import listed
from stillery.losses import BY_TOKEN
from stillery.progress import detail, say
from stillery.train.checkpoint import Progress
from stillery.train.distributed import from_main
from stillery.train.objective import Objective
from stillery.train.settings import Storing
from stillery.train.stage_clocks import StageSpan
from stillery.train.teacher import Teacher
from stillery.train.teacher_cache.cache import TeacherCache
from stillery.train.teacher_cache.cached_teacher import CachedTeacher
from stillery.train.teacher_cache.contents import CacheContents, CachedArray, contents_of
from stillery.train.teacher_cache.worthwhile import Estimate, disk_speed, memory_bytes, teacher_seconds
from stillery.train.trainable import EncoderData, as_teacher_reads

__all__ = ["CacheChoice", "CacheUse", "StageTeachers", "stage_teachers"]


def _ignore(stages: Sequence[int]) -> None:
    """Ignore the decision."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CacheUse:
    """The settings of the teacher cache in a run.

    When a run is repeated, `stages` are those that read the cache in the original, counted from 0: then nothing is
    measured, as timings may differ now. `on_decision` is called before the first step with the stages that read it.
    """

    settings: Storing
    stages: Collection[int] | None = None
    on_decision: Callable[[Sequence[int]], None] = _ignore


@dataclass(frozen=True, kw_only=True)
class CacheChoice:
    """The decision whether stages read the cache, its reason, and the cache's size and number format."""

    stages: list[str]
    used: bool
    why: str
    bytes: int | None = None
    dtype: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StageTeachers:
    """The teacher of each remaining stage, the decisions, and the seconds they took, including filling."""

    teachers: dict[int, Teacher | None]
    choices: list[CacheChoice] = field(default_factory=list)
    seconds: float = 0.0

    def noted(self, progress: Progress) -> Progress:
        """Return the progress with these seconds and decisions added; a resumed run keeps its decisions."""
        progress = progress.after(
            seconds=progress.seconds + self.seconds, store_seconds=progress.store_seconds + self.seconds
        )
        if progress.stored is not None:
            return progress
        reading = [stage for stage, teacher in self.teachers.items() if isinstance(teacher, CachedTeacher)]
        return progress.after(stored=reading, store_choices=[asdict(choice) for choice in self.choices])


Planned = tuple[StageSpan, CacheContents]
"""A stage and the arrays that it needs."""


def stage_teachers(
    spans: Sequence[StageSpan],
    objective: Objective,
    use: CacheUse | None,
    accelerator: Accelerator,
    *,
    batch_size: int,
    step: int = 0,
    before: Sequence[int] | None = None,
    run: str = "",
) -> StageTeachers:
    """Return the teacher of each remaining stage: one that reads the cache where possible, enabled and worthwhile.

    The run is at this `step`. `before` are the stages that read the cache before a resumed run stopped, which it keeps.
    `run` identifies this run to others that wait for it.
    """
    began = time.perf_counter()
    teachers: dict[int, Teacher | None] = {span.stage: span.teacher for span in spans}
    learning = [span for span in spans if objective.stages[span.stage].needs_teacher]
    if use is None or use.settings.cache == "off" or not learning:
        return StageTeachers(teachers=teachers)
    cache, settings = find_cache(), use.settings
    if use.stages is not None:
        settings = replace(settings, cache="on")
    choices: list[CacheChoice] = []
    groups: dict[tuple[int, int], dict[int, Planned]] = {}
    for span in learning:
        if before is not None and span.stage not in before:
            continue
        contents = _contents(span, objective, use, resumed=before is not None)
        if isinstance(contents, str):
            _refuse_another_way(before, contents)
            detail(f"teacher cache: off, {contents}")
            choices.append(CacheChoice(stages=[objective.stages[span.stage].name], used=False, why=contents))
        else:
            groups.setdefault((id(span.teacher), id(span.data)), {})[span.stage] = span, contents
    for planned in groups.values():
        assert cache is not None
        filling = _Filling(
            planned=planned, settings=settings, accelerator=accelerator, batch_size=batch_size, step=step,
            resumed=before is not None, names=[objective.stages[stage].name for stage in planned],
        )  # fmt: skip
        filled, choice = filling(cache, run)
        choices.append(choice)
        if not choice.used:
            _refuse_another_way(before, choice.why)
        else:
            teachers |= {stage: filled.teacher_of(contents) for stage, (_, contents) in planned.items()}
    return StageTeachers(teachers=teachers, choices=choices, seconds=time.perf_counter() - began)


def _refuse_another_way(before: Sequence[int] | None, why: str) -> None:
    """Raise UserError if a resumed run that has read the cache cannot, since its result would change."""
    if before is not None:
        raise UserError(
            f"so far this run has read from the teacher cache, which is not possible now: {why}; make it possible and "
            "--resume again, or start again with another --out"
        )


def _contents(span: StageSpan, objective: Objective, use: CacheUse, *, resumed: bool) -> CacheContents | str:
    """Return the arrays that a stage needs, or why it cannot read the cache."""
    stage = objective.stages[span.stage]
    if find_cache() is None:
        return "the cache folder is turned off (STILLERY_CACHE=off)"
    if not isinstance(span.data, EncoderData):
        return "a teacher that generates text is not cached"
    plans = [objective.plan(clock) for clock in span.epoch_clocks()]
    contents = contents_of(plans, by_token=objective.kind in BY_TOKEN)
    if isinstance(contents, str):
        return contents
    if not contents.arrays:
        return f"stage {stage.name} runs its teacher on mixed examples alone"
    chosen = use.settings.cache == "on" or use.stages is not None
    if contents.attends and not chosen and not resumed:
        return f"the queries, keys and values that stage {stage.name} needs are large; --cache on caches them"
    if not resumed and use.stages is not None and span.stage not in use.stages:
        return "as the run file says"
    return contents


@dataclass(frozen=True, kw_only=True, eq=False)
class _Filling:
    """Decides whether stages with the same teacher and training split read the cache, and fills it if so."""

    planned: Mapping[int, Planned]
    settings: Storing
    accelerator: Accelerator
    batch_size: int
    step: int
    resumed: bool
    names: list[str]

    def __call__(self, cache: Cache, run: str) -> tuple[TeacherCache, CacheChoice]:
        """Return the cache of these stages, filled if it is used, and the decision."""
        span = next(iter(self.planned.values()))[0]
        assert span.teacher is not None and isinstance(span.data, EncoderData)
        arrays = frozenset[CachedArray]().union(*(contents.arrays for _, contents in self.planned.values()))
        dtype = self.settings.cache_dtype
        if dtype == "auto":
            dtype = "fp32" if self.accelerator.mixed_precision == "no" else "fp16"
        data = as_teacher_reads(span.data)
        found = TeacherCache(cache, span.teacher, data, arrays, dtype=dtype, accelerator=self.accelerator, run=run)
        limit = int(self.settings.cache_limit * GIGABYTE)
        used, why = False, ""
        if self.accelerator.is_main_process:
            try:
                used, why = self._decide(found, limit)
            except OSError as error:
                why = found.cannot(error)
        used, why = from_main(self.accelerator, (used, why))
        size = f"{found.bytes / 1e6:,.1f} MB ({dtype}; {listed(found.files)})"
        detail(f"teacher cache: {'on' if used else 'off'}, {size} for {len(span.data):,} examples: {why}")
        failed = found.fill(limit) if used else None
        if failed is not None:
            say(f"teacher cache: off, {failed}" + ("" if self.resumed else "; the teacher runs live"))
        used, why = used and failed is None, failed or why
        return found, CacheChoice(stages=self.names, used=used, why=why, bytes=found.bytes, dtype=dtype)

    def _decide(self, found: TeacherCache, limit: int) -> tuple[bool, str]:
        """Return whether to use the cache, and why."""
        if found.more_than_keys:
            return False, "this family's attention is more than queries and keys"
        if found.bytes > limit:
            return False, f"more than --cache-limit {limit / GIGABYTE:g} GB"
        missing, folder = found.missing_bytes(), found.cache.folder
        folder.mkdir(parents=True, exist_ok=True)
        if missing > shutil.disk_usage(folder).free:
            return False, f"{folder} has no room for it"
        there = "found whole" if not missing else f"{missing / 1e6:,.1f} MB to be filled"
        if self.resumed or self.settings.cache == "on":
            return True, there
        seen, examples = sum(span.examples_after(self.step) for span, _ in self.planned.values()), len(found.data)
        share = found.missing_share()
        if seen <= share * examples:
            return False, "no example is seen twice"
        seconds = teacher_seconds(found.teacher, found.data, found.needs, self.batch_size, self.accelerator)
        speed = disk_speed(folder)
        # After filling or checking, the system keeps it in memory unless it takes most of that.
        again = speed.read_again if 2 * found.bytes < memory_bytes() else speed.read
        filling = seconds * share * examples + missing / speed.write
        reading = (found.bytes - missing) / speed.read + found.bytes / examples * seen / again
        estimate = Estimate(live=seconds * seen, stored=filling + reading)
        return estimate.worth_it, f"{estimate}, {there}"
