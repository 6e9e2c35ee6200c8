"""The model card of an exported model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stillery.data.tasks.generation import GENERATION_TASKS
from stillery.jobs.config.run_file import to_toml
from stillery.jobs.config.settings import Distill, Finetune, StudentSettings
from stillery.jobs.kinds.generation.reading import Reading
from stillery.models.custom_head import HOW_TO_LOAD

__all__ = ["Facts", "card"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a model card says beside the metrics.

    Of a model that writes text that is how it reads, and what of its own settings of generation a search leaves aside.
    `start` is how the student's start was chosen, where it was.
    """

    run: Finetune | Distill
    data: str
    origin: tuple[str, ...]
    paper: str | None = None
    several_labels: bool = False
    reading: Reading | None = None
    plainly: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] | None = None


_TAGS = {None: "text-classification", "encoder-decoder": "text2text-generation", "decoder": "text-generation"}

_SEARCH = {"beams": "num_beams", "no_repeat_ngram": "no_repeat_ngram_size", "sample": "do_sample"}
"""What transformers calls the settings of a search that have another name there."""

_SAMPLING = ("temperature", "top_p")
"""What a search does not look at: a run's texts are never drawn."""


def _tag(facts: Facts, writes: str | None) -> str:
    task = GENERATION_TASKS.get(facts.run.data.task or "")
    translates = writes == "encoder-decoder" and task is not None and task.languages is not None
    return "translation" if translates else _TAGS[writes]


def _layers(student: StudentSettings, writes: str | None) -> str:
    both = [student.encoder_layers or student.layers, student.decoder_layers or student.layers]
    return "+".join(map(str, both)) if writes == "encoder-decoder" else str(student.layers)


def _writing(facts: Facts, decoding: Mapping[str, Any]) -> list[str]:
    """Python that writes a text as the run's own scores were made, with plain transformers."""
    reading = facts.reading
    assert reading is not None
    if reading.kind == "decoder":
        auto, shown, cut = "AutoModelForCausalLM", f'{reading.prompt!r}.replace("{{source}}", source)', ""
        # What is generated begins with the prompt.
        written = 'written[0, inputs["input_ids"].shape[1] :]'
    else:
        auto, shown = "AutoModelForSeq2SeqLM", f"{reading.prefix!r} + source" if reading.prefix else "source"
        cut, written = f"truncation=True, max_length={reading.max_source}, ", "written[0]"
    search = {_SEARCH.get(name, name): value for name, value in decoding.items() if name not in _SAMPLING}
    return [
        f"from transformers import {auto}, AutoTokenizer",
        "",
        f'model = {auto}.from_pretrained("THIS_FOLDER")',
        'tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")',
        'source = "some text"',
        f'inputs = tokenizer({shown}, {cut}return_token_type_ids=False, return_tensors="pt")',
        "written = model.generate(",
        "    **inputs,",
        *(f"    {name}={value!r}," for name, value in (search | dict(facts.plainly)).items()),
        ")",
        f"print(tokenizer.decode({written}, skip_special_tokens=True))",
    ]


def card(facts: Facts, metrics: Mapping[str, Any]) -> str:
    """A model card in Markdown: what the model is, where it comes from, how good it is, how to make it again."""
    run = facts.run
    custom = metrics.get("custom_head", False)
    library = "stillery" if custom else "transformers"
    lines = [
        "---",
        f"library_name: {library}",
        f"pipeline_tag: {_tag(facts, metrics.get('writes'))}",
        "tags: [stillery]",
        "---",
        "",
    ]
    if isinstance(run, Distill):
        lines += [
            f"# {_layers(run.student, metrics.get('writes'))}-layer student, distilled with {run.method.method}",
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
        lines += ["```python", *_writing(facts, metrics["decoding"]), "```", ""]
    else:
        lines += ["```python", "from transformers import pipeline", ""]
        # Without it a pipeline shows the likeliest label alone.
        every = ", top_k=None" if facts.several_labels else ""
        lines += [f'pipeline("text-classification", model="THIS_FOLDER"{every})("some text")', "```", ""]
    return "\n".join(lines)
