"""The command `stillery tasks`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stillery.cli.panels import Command, Group
from stillery.cli.synth import synth
from stillery.cli.verbosity_options import saying
from stillery.lines import listed, show
from stillery.verbosity import Verbosity, verbosity

__all__ = ["tasks"]

tasks = typer.Typer(
    name="tasks",
    cls=Group,
    help="List the named tasks, get their data, average runs on them.",
    rich_markup_mode=None,
)

tasks.command(cls=Command)(saying(synth))

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@tasks.callback(invoke_without_command=True)
def _list(
    context: typer.Context,
    data_dir: Annotated[
        Path | None, typer.Option(help="A folder with GLUE's official folders, or with Parquet files.")
    ] = None,
    json: Json = False,
) -> None:
    """List the named tasks: what they are, how they are measured, and where their data is."""
    if context.invoked_subcommand is not None:
        return
    from stillery.cli.show import print_json
    from stillery.jobs.tasks import describe_tasks

    found = describe_tasks(data_dir)
    if json:
        print_json(found)
        return
    for task in found:
        print(f"{task['name']:<16} {task['about']}")
        print(f"{'':<16} {_facts(task)}")
    print("\n`stillery tasks fetch NAME` downloads a task; `--data-dir DIR` shows what a folder has.")


@tasks.command(cls=Command)
@saying
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Tasks to download.")], json: Json = False
) -> None:
    """Download tasks from the Hugging Face hub into its local cache."""
    from stillery.cli.show import print_json
    from stillery.jobs.tasks import fetch_tasks

    fetched = fetch_tasks(names)
    if json:
        print_json(fetched)
        return
    for task in fetched if verbosity() is not Verbosity.QUIET else ():
        show(f"{task['name']}: {', '.join(task['splits'])} from {task['where']}")


@tasks.command(cls=Command)
def average(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, or files printed by `evaluate --json`.")
    ],
    style: Annotated[
        str, typer.Option(help="How the average is taken: glue, rail-kd, ild-rtc, cr-ild or out-of-domain.")
    ] = "glue",
    json: Json = False,
) -> None:
    """Average the scores of finished runs over tasks, as the papers do."""
    from stillery.cli.show import print_json
    from stillery.jobs.tasks import average_runs

    found = average_runs(runs, style)
    if json:
        print_json(found)
        return
    print(f"{found['style']}: {found['about']}")
    for name, value in found["columns"].items():
        times = found["runs"].get(name, 1)
        print(f"  {name:<10} {value:6.2f}{f'  (mean of {times} runs)' if times > 1 else ''}")
    print(f"  {'average':<10} {found['average']:6.2f}  (of {len(found['columns'])} columns)")
    for what, items in (("missing", found["missing"]), ("not of this style", found["left_out"])):
        if items:
            show(f"{what}: {listed(items)}")


def _facts(task: dict[str, Any]) -> str:
    facts = [", ".join(task["metrics"])]
    if task["out_of_domain_for"]:
        facts.append(f"out of domain for {task['out_of_domain_for']} models")
    parts = f"{', '.join(task['splits'])} from {task['found']}" if task["found"] else "not on this machine"
    return "; ".join([*facts, f"data: {parts}"])
