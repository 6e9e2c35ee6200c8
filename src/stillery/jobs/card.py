"""The model card of an exported model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stillery.jobs.runfile import to_toml
from stillery.jobs.settings import Distill, Finetune, StudentSettings
from stillery.models.custom import HOW_TO_LOAD

__all__ = ["Facts", "card"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a model card says beside the metrics."""

    run: Finetune | Distill
    data: str
    origin: tuple[str, ...]
    paper: str | None = None
    several_labels: bool = False


_TAGS = {None: "text-classification", "encoder-decoder": "translation", "decoder": "text-generation"}


def _layers(student: StudentSettings) -> str:
    both = [student.encoder_layers or student.layers, student.decoder_layers or student.layers]
    return str(both[0]) if both[0] == both[1] else "+".join(map(str, both))


def card(facts: Facts, metrics: Mapping[str, Any]) -> str:
    """A model card in Markdown: what the model is, where it comes from, how good it is, how to make it again."""
    run = facts.run
    custom = metrics.get("custom_head", False)
    library = "stillery" if custom else "transformers"
    lines = [
        "---",
        f"library_name: {library}",
        f"pipeline_tag: {_TAGS[metrics.get('writes')]}",
        "tags: [stillery]",
        "---",
        "",
    ]
    if isinstance(run, Distill):
        lines += [
            f"# {_layers(run.student)}-layer student, distilled with {run.method.method}",
            "",
            f"- Teacher: `{run.teacher}`",
            f"- Method: `{run.method.method}` ({facts.paper})",
        ]
    else:
        lines += [
            "# Fine-tuned model" if metrics.get("writes") else "# Fine-tuned classifier",
            "",
            f"- Model: `{run.model}`",
        ]
    lines += [f"- Data: {facts.data}"]
    lines += [f"- Weights at the start: {origin}" for origin in facts.origin]
    lines += ["", f"## Metrics on {metrics['examples']} {metrics['part']} examples", ""]
    lines += ["| metric | this model | 95% interval | teacher |", "|---|---|---|---|"]
    for name, value in metrics["metrics"].items():
        between = "{:.2f} to {:.2f}".format(*metrics["intervals"][name]) if name in metrics["intervals"] else "-"
        teacher = metrics.get("teacher_metrics", {}).get(name)
        lines += [f"| {name} | {value:.2f} | {between} | {'-' if teacher is None else f'{teacher:.2f}'} |"]
    if "no_label" in metrics:
        scores = "pearson" in metrics["metrics"]
        what = "are no number, which count as 2.5" if scores else "name no class, which count as wrong"
        lines += ["", f"Texts that {what}: {metrics['no_label']}."]
    if "agreement" in metrics:
        lines += ["", f"Agreement with the teacher: {metrics['agreement']:.2f}%."]
    job = "distill" if isinstance(run, Distill) else "finetune"
    lines += ["", "## Make it again", "", f"Save as `run.toml`, then `stillery {job} --config run.toml --out DIR`:", ""]
    lines += ["```toml", to_toml(run).rstrip(), "```", ""]
    lines += ["## Use it", ""]
    if custom:
        lines += [
            "Its head is custom, so it does not load as a plain checkpoint (there is no `model.safetensors`).",
            "",
        ]
        lines += ["```python", HOW_TO_LOAD, "from transformers import AutoTokenizer", ""]
        lines += ['model = load_student("THIS_FOLDER")', 'tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")']
        lines += ['model(**tokenizer("some text", return_tensors="pt")).logits', "```", ""]
    elif metrics.get("writes"):
        auto = "AutoModelForSeq2SeqLM" if metrics["writes"] == "encoder-decoder" else "AutoModelForCausalLM"
        lines += ["```python", f"from transformers import {auto}, AutoTokenizer", ""]
        lines += [f'model = {auto}.from_pretrained("THIS_FOLDER")']
        lines += ['tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")']
        lines += ['written = model.generate(**tokenizer("some text", return_tensors="pt"), max_new_tokens=128)']
        lines += ["tokenizer.decode(written[0], skip_special_tokens=True)", "```", ""]
    else:
        lines += ["```python", "from transformers import pipeline", ""]
        # Without it a pipeline shows the likeliest label alone.
        every = ", top_k=None" if facts.several_labels else ""
        lines += [f'pipeline("text-classification", model="THIS_FOLDER"{every})("some text")', "```", ""]
    return "\n".join(lines)
