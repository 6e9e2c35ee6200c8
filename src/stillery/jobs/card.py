"""The model card of an exported model, filled into a template by huggingface_hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import PreTrainedConfig

from stillery.data.tasks.generation import GENERATION_TASKS
from stillery.data.tasks.glue import TASKS
from stillery.data.tasks.specification import Hub
from stillery.jobs.card_usage import custom_head_usage
from stillery.jobs.config.run_file import values_of
from stillery.jobs.config.run_paths import names_only, places, shortened
from stillery.jobs.config.settings import Distill, Finetune
from stillery.lines import markdown_text
from stillery.models.family import sizes, stacks_of
from stillery.models.model_folder import PACKAGED
from stillery.models.option_words import STARTS

__all__ = ["Facts", "card", "layer_counts"]

_TEMPLATE = Path(__file__).with_name("card_template.md")


def _no_notes(metrics: Mapping[str, Any]) -> Sequence[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Contents of a model card beside the metrics; its fields are the same for every kind of model.

    Attributes:
        run: the settings.
        data: the examples, in words.
        origin: where the initial weights come from, one line each.
        paper: the paper of the method.
        start: how the student's initialisation was chosen, as in metrics.json.
        tag: the hub's pipeline tag, such as text-classification.
        library: the library that loads the model.
        title: the heading of a fine-tuned model.
        layers: the number of layers, for the heading of a distilled model (`layer_counts`).
        usage: the lines of Python that use the model.
        notes: a function of the metrics that returns lines to print under them.
    """

    run: Finetune | Distill
    data: str
    origin: tuple[str, ...]
    paper: str | None = None
    start: Mapping[str, Any] | None = None
    tag: str
    library: str = "transformers"
    title: str = "Fine-tuned model"
    layers: str = ""
    usage: Sequence[str]
    notes: Callable[[Mapping[str, Any]], Sequence[str]] = _no_notes


def layer_counts(config: PreTrainedConfig) -> str:
    """Return the number of layers of a model: `6`, or `3+1` for an encoder and a decoder."""
    return "+".join(str(sizes(config, stack).layers) for stack in stacks_of(config))


def card(facts: Facts, metrics: Mapping[str, Any]) -> str:
    """Return a model card in Markdown: the model, its origin, its metrics, and how to reproduce it.

    The run's files and folders appear by their last names only.
    """
    run, custom = facts.run, metrics.get("custom_head", False)
    values = values_of(run)
    named = names_only(values)
    title = facts.title
    lines = [f"Model: `{named.get('model')}`"]
    if isinstance(run, Distill):
        method = named.get("recipe", run.method.method)
        title = f"{facts.layers}-layer student, distilled with {method}"
        lines = [f"Teacher: `{named['teacher']}`", f"Method: `{method}` ({facts.paper})"]
    lines += [f"Data: {facts.data}", *(f"Weights at the start: {line}" for line in facts.origin)]
    agreement = [f"Agreement with the teacher: {metrics['agreement']:.2f}%."] if "agreement" in metrics else []
    filled = ModelCard.from_template(
        _header(facts, metrics, title, library="stillery" if custom else facts.library),
        template_path=str(_TEMPLATE),
        title=markdown_text(title),
        facts=[markdown_text(shortened(line, values)) for line in lines],
        examples=metrics["examples"],
        split=metrics["split"],
        rows=[list(map(markdown_text, row)) for row in _rows(metrics)],
        notes=list(map(markdown_text, [*facts.notes(metrics), *agreement])),
        job=named["job"],
        places=list(map(markdown_text, _beside(named, values))),
        run=tomli_w.dumps(named).rstrip(),
        custom=custom,
        usage=custom_head_usage() if custom else facts.usage,
    )
    return f"{filled}\n"


def _beside(named: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Return the files and folders that a run file with last names only needs beside it."""
    found = [named[name].rpartition(":")[0] if name == "recipe" else named[name] for name in places(values)]
    return [f"`{name}`" for name in dict.fromkeys(found)]


def _rows(metrics: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of the metrics table: name, value, interval, and the teacher's value."""
    rows = []
    for name, value in metrics["metrics"].items():
        between = "{:.2f} to {:.2f}".format(*metrics["intervals"][name]) if name in metrics["intervals"] else "-"
        teacher = metrics.get("teacher_metrics", {}).get(name)
        rows.append([name, f"{value:.2f}", between, "-" if teacher is None else f"{teacher:.2f}"])
    return rows


def _header(facts: Facts, metrics: Mapping[str, Any], title: str, *, library: str) -> ModelCardData:
    """Return the hub's metadata: base model and data set where they are on the hub, and the metrics."""
    hub = _hub(facts.run.data.task)
    base = _base_model(facts.run)
    results = None
    # Files in a folder of the user's may differ from the hub's.
    if hub is not None and facts.run.data.data_dir is None and not metrics.get("unlabelled"):
        results = [
            EvalResult(
                task_type=facts.tag,
                dataset_type=hub.repo,
                # A description, as the rows may have been sampled or split here.
                dataset_name=facts.data,
                dataset_config=hub.folder,
                dataset_split=metrics["split"],
                metric_type=name,
                metric_value=round(value, 2),
            )
            for name, value in metrics["metrics"].items()
        ]
    return ModelCardData(
        library_name=library,
        pipeline_tag=facts.tag,
        tags=["stillery"],
        base_model=base,
        datasets=None if hub is None else [hub.repo],
        model_name=None if results is None else title,
        eval_results=results,
    )


def _hub(task: str | None) -> Hub | None:
    """Return the location of a named task on the hub; None if it is not there."""
    found = TASKS.get(task or "") or GENERATION_TASKS.get(task or "")
    return None if found is None else found.hub


def _base_model(run: Finetune | Distill) -> str | None:
    """Return the hub name of the model that the weights come from; None for a local one or random weights."""
    if isinstance(run, Finetune):
        setting, name = "model", run.model
    elif run.student.init == "random":
        return None
    elif run.student.init is not None and run.student.init not in STARTS:
        setting, name = "init", run.student.init
    elif run.student.init_from is not None:
        setting, name = "init_from", run.student.init_from
    else:
        setting, name = "teacher", run.teacher
    on_disk = places({setting: name})
    return None if on_disk or name in PACKAGED or name.startswith(("~", ".")) else name
