"""`--restarts`: train again with the next seed while training collapses, and keep the best model on the dev split."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState

from stillery.atomic import atomic_file, atomic_files
from stillery.jobs.config.settings import Asked, Finetune, RestartSettings
from stillery.jobs.config.step_size import for_processes
from stillery.jobs.overwrite import remove_run
from stillery.jobs.prepared import Prepared
from stillery.jobs.result import Result
from stillery.jobs.run import accelerator_of, carry_out
from stillery.jobs.run_folder import begin, finished, is_done, mark_finished, model_files, read_back
from stillery.jobs.run_lock import only_run_in
from stillery.progress import say
from stillery.train.checkpoint import discard

__all__ = ["until_it_learns"]

Prepare = Callable[[Asked[Finetune], Path], Prepared]

_FILES = ("conditions.json", "log.jsonl", "predictions.parquet")


def until_it_learns(
    asked: Asked[Finetune],
    first: Prepared,
    out: Path,
    prepare: Prepare,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Result:
    """Run one seed after another, each in its own folder inside `out`, and copy the best one's model to `out`."""
    run = asked.run
    assert isinstance(first.run, Finetune)
    whole = for_processes(dataclasses.replace(first.run, restart=run.restart), PartialState().num_processes)
    accelerator = accelerator_of(first.run)
    with only_run_in(out, accelerator, needed=overwrite or not finished(out)):
        return _seed_after_seed(asked, first, whole, out, prepare, resume=resume, overwrite=overwrite)


def _seed_after_seed(
    asked: Asked[Finetune],
    first: Prepared,
    whole: Finetune,
    out: Path,
    prepare: Prepare,
    *,
    resume: bool,
    overwrite: bool,
) -> Result:
    """Do that in a folder that is kept for it; `whole` is the run of all seeds."""
    run = asked.run
    if not overwrite and is_done(out, whole, resume=resume):
        say(f"{out}: this run is finished already; nothing to do")
        return read_back(out)
    main = PartialState().is_main_process
    # Every process has to check the folder before the main one changes it.
    PartialState().wait_for_everyone()
    if main:
        if overwrite:
            remove_run(out)
        first.from_python.keep()
        begin(out, whole)
    PartialState().wait_for_everyone()
    tries: list[tuple[int, Result]] = []
    for seed in range(run.training.seed, run.training.seed + run.restart.restarts + 1):
        training = dataclasses.replace(run.training, seed=seed)
        one = dataclasses.replace(run, training=training, restart=RestartSettings(), fingerprints={})
        place = out / f"seed-{seed}"
        result = carry_out(prepare(dataclasses.replace(asked, run=one), place), place, resume=resume)
        tries.append((seed, result))
        if not result.metrics.get("collapsed"):
            break
        if seed < run.training.seed + run.restart.restarts:
            say(f"seed {seed} gave every dev example one answer; training again with seed {seed + 1}")
    if main:
        _keep_best(tries, out)
    PartialState().wait_for_everyone()
    return read_back(out)


def _on_dev(result: Result) -> float:
    """Return the main metric of the kept weights on the dev split."""
    training = result.metrics["training"]
    kept = training["dev_best"] if training["kept_step"] != training["steps"] else training["dev_last"]
    value: float = next(iter(kept.values()))
    return value


def _keep_best(tries: Sequence[tuple[int, Result]], out: Path) -> None:
    seed, best = max(tries, key=lambda one: _on_dev(one[1]))
    record = [
        {"seed": number, "dev": _on_dev(result), "collapsed": result.metrics.get("collapsed", False)}
        for number, result in tries
    ]
    with atomic_files(out, last="config.json") as part:
        for path in model_files(best.out):
            copy = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, part / path.name)
        card = part / "README.md"
        card.write_text(_with_restarts(card.read_text(encoding="utf-8"), record, seed), encoding="utf-8")
    for name in _FILES:
        if (best.out / name).is_file():
            with atomic_file(out / name) as file:
                shutil.copyfile(best.out / name, file)
    mark_finished(out, best.metrics | {"restarts": record, "kept_seed": seed})
    discard(out)


def _with_restarts(card: str, record: Sequence[dict[str, Any]], seed: int) -> str:
    """Add to the model card how many seeds were tried and which was kept."""
    lines = [f"| {one['seed']} | {one['dev']:.2f} | {'yes' if one['collapsed'] else 'no'} |" for one in record]
    said = "\n".join(
        [
            "## Restarts",
            "",
            f"Trained {len(record)} times, with another seed while the model gave every dev example one answer; "
            f"seed {seed} is best on the dev split and was kept.",
            "",
            "| seed | dev | one answer for all |",
            "|---|---|---|",
            *lines,
            "",
        ]
    )
    return card.replace("## Make it again", f"{said}\n## Make it again", 1)
