"""Printing of results on the terminal."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stillery.jobs.config.settings import Distill, Finetune, SearchSettings
from stillery.lines import LISTED, plain, show
from stillery.setting import option_name
from stillery.verbosity import Verbosity, verbosity

if TYPE_CHECKING:
    from pathlib import Path

    from stillery.jobs.comparison.result import Comparison
    from stillery.jobs.finish import Result

__all__ = ["load_line", "print_json", "show_comparison", "show_evaluation", "show_result"]


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print a value as JSON on stdout."""
    print(json.dumps(value, indent=indent))


def load_line(folder: object, *, custom_head: bool = False, writes: str | None = None) -> str:
    """Return the line of Python that loads a model."""
    if writes is not None:
        kind = "Seq2SeqLM" if writes == "encoder-decoder" else "CausalLM"
        return f'AutoModelFor{kind}.from_pretrained("{folder}")'
    if custom_head:
        return f'stillery.models.head.load_student("{folder}")'
    from pathlib import Path

    from stillery.models.head_type import SEQUENCE, head_in
    from stillery.models.load_model import read_config
    from stillery.models.sentence_folder import describes_embedder

    if describes_embedder(Path(str(folder))):
        return f'sentence_transformers.SentenceTransformer("{folder}")'
    head = head_in(read_config(str(folder)).architectures) or SEQUENCE
    return f'AutoModel{head.ending}.from_pretrained("{folder}")'


def show_evaluation(metrics: Mapping[str, Any], *, per_class: bool = False) -> None:
    """Print an evaluation as text; with `per_class` a line for each class too."""
    # Runs of earlier versions call it a part.
    split = metrics.get("split", metrics.get("part"))
    show(f"{metrics['task']}: {metrics['examples']}{f' {split}' if split else ''} examples")
    for name, value in metrics["metrics"].items():
        bounds = metrics["intervals"].get(name)
        between = f"  (95%: {bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else ""
        teacher = metrics.get("teacher_metrics", {}).get(name)
        beside = f"   teacher {teacher:.2f}" if teacher is not None else ""
        show(f"  {name:<10} {value:6.2f}{between}{beside}")
    if per_class:
        _show_classes(metrics.get("per_class", {}))
    if "absent_note" in metrics and "f1_macro" in metrics["metrics"]:
        show(f"  {metrics['absent_note']}")
    _show_queries(metrics)
    for split, beside in metrics.get("also", {}).items():
        values = ", ".join(f"{name} {value:.2f}" for name, value in beside["metrics"].items())
        show(f"  {split} ({beside['examples']} examples): {values}")
    _show_entities(metrics)
    _show_written(metrics)
    if verbosity() is Verbosity.VERBOSE:
        for signature in metrics.get("signatures", {}).values():
            show(f"  {signature}")
    for file in metrics.get("submission", []):
        show(f"  {file}")
    if "agreement" in metrics:
        of_entities = f", on entities {metrics['entity_agreement']:.2f}%" if "entity_agreement" in metrics else ""
        show(f"  agreement with the teacher {metrics['agreement']:.2f}%{of_entities}")
    if "teacher_cosine" in metrics:
        show(f"  mean cosine to the teacher's embeddings {metrics['teacher_cosine'] / 100:.4f}")
    if "difference" in metrics:
        difference = metrics["difference"]
        low, high = difference["interval"]
        show(
            f"  {difference['metric']} minus the teacher's: {difference['value']:+.2f} (95%: {low:+.2f} to {high:+.2f})"
        )


def _show_queries(metrics: Mapping[str, Any]) -> None:
    """Print how many queries are ranked, by what, and why others are left out."""
    found = metrics.get("queries")
    if found is None:
        return
    reasons = {
        "one_document": "with one document", "no_relevant": "with no relevant document",
        "one_grade": "whose documents all have one grade",
    }  # fmt: skip
    left_out = [f"{found[name]:,} {reason}" for name, reason in reasons.items() if found[name]]
    line = f"  {found['ranked']:,} of {found['all']:,} queries ranked by {metrics['ranked_by']}"
    show(f"{line}; left out: {', '.join(left_out)}" if left_out else line)


def _show_entities(metrics: Mapping[str, Any]) -> None:
    """Print the scores of each entity type of a token classifier."""
    types = metrics.get("types", {})
    some = types if len(types) <= LISTED or verbosity() is Verbosity.VERBOSE else dict(list(types.items())[:LISTED])
    for name, one in some.items():
        low, high = one["interval"]
        show(f"  {name:<10} {one['f1']:6.2f}  (95%: {low:.2f} to {high:.2f})   f1 of {one['entities']} entities")
    if len(some) < len(types):
        show(f"  and {len(types) - len(some):,} more types (--verbose shows them)")


def _show_classes(classes: Mapping[str, Mapping[str, float]]) -> None:
    """Print precision, recall and F1 of each class, the rarest last."""
    if not classes:
        show("  no classes: the labels are scores, or texts")
        return
    width = min(max(map(len, ["class", *classes])), 30)
    show(f"  {'class':<{width}}  precision  recall      f1  examples")
    for name, found in sorted(classes.items(), key=lambda item: -item[1]["examples"]):
        shown = name if len(name) <= width else f"{name[: width - 3]}..."
        show(
            f"  {shown:<{width}}  {found['precision']:9.2f}  {found['recall']:6.2f}  {found['f1']:6.2f}  "
            f"{found['examples']:8d}"
        )


def _show_written(metrics: Mapping[str, Any]) -> None:
    """Print decoding settings, generation speed, and how many texts name no class or score, for generated texts."""
    if "no_label" in metrics:
        teacher = f"   teacher {metrics['teacher_no_label']}" if "teacher_no_label" in metrics else ""
        scores = "pearson" in metrics["metrics"]
        what = "are no number, counted as 2.5" if scores else "name no class, counted as wrong"
        show(f"  texts that {what}: {metrics['no_label']}{teacher}")
    # A run measures both models under equal conditions, and prints their speed at its end.
    if "texts_per_second" in metrics and "texts_per_second" not in metrics.get("cost", {}):
        beside = metrics.get("teacher_texts_per_second")
        teacher = f"   teacher {beside:.2f}" if beside is not None else ""
        show(f"  texts written a second: {metrics['texts_per_second']:.2f}{teacher}")
    if "decoding" in metrics:
        show(f"  search: {_search(metrics['decoding'])}")


def _search(decoding: Mapping[str, Any]) -> str:
    """Return decoding settings as options: beams, maximum length, and all that are not at their default."""
    usual = dataclasses.asdict(SearchSettings())
    shown = {name: decoding[name] for name, value in usual.items() if decoding.get(name, value) != value}
    always = {name: decoding[name] for name in ("beams", "max_new_tokens")}
    options = ((option_name(name), value) for name, value in (always | shown).items())
    return " ".join(option if value is True else f"{option} {value}" for option, value in options)


def _show_training(training: Mapping[str, Any]) -> None:
    """Print the main metric of the split that selects checkpoints, dev or held-out, at the best and last scoring."""
    best, last = training.get("dev_best"), training.get("dev_last")
    if best and last:
        name = next(iter(best))
        kept = f"kept: step {training['kept_step']} of {training['steps']}"
        few = f" (of {training['dev_samples']} examples)" if "dev_samples" in training else ""
        by = training.get("selected_on", "dev")
        show(f"  {by} {name}{few}: best {best[name]:.2f}, last {last[name]:.2f} ({kept})")


def show_comparison(found: Comparison, *, json: bool = False, out: Path | None = None) -> None:
    """Print a comparison of models, and write it to a file if requested."""
    if out is not None:
        from stillery.jobs.comparison.write import write_table

        write_table(out, found)
    if json:
        print_json(found.to_dict())
    else:
        print(plain(found.text(shutil.get_terminal_size().columns)))


def show_result(result: Result, run: Finetune | Distill) -> None:
    """Print the result of a run, its folder and what to run next, on the main process only."""
    from accelerate import PartialState

    from stillery.cli.next_steps import show_next
    from stillery.jobs.result import speed

    if not PartialState().is_main_process or verbosity() is Verbosity.QUIET:
        return
    show_evaluation(result.metrics)
    if verbosity() is Verbosity.VERBOSE:
        _show_training(result.metrics["training"])
    cost = result.metrics["cost"]
    show(
        f"  {cost['parameters']:,} parameters, {cost['megabytes']:.1f} MB, {speed(result.metrics)}, trained "
        f"{cost['train_seconds']:.0f} s"
    )
    show(f"model: {result.student}")
    found = result.metrics
    show(load_line(result.student, custom_head=found.get("custom_head", False), writes=found.get("writes")))
    if isinstance(run, Distill):
        from stillery.jobs.diagnosis.diagnose import weakness

        line = weakness(result.out)
        if line is not None:
            show(line)
    show_next(run, result)
