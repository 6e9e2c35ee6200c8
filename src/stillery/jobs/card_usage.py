"""What a model card says of one kind of model: Python that uses it, its tag on the hub, notes under its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stillery.data.tasks.generation import GENERATION_TASKS

__all__ = [
    "classification_usage",
    "custom_head_usage",
    "generation_notes",
    "generation_tag",
    "generation_usage",
    "token_classification_usage",
]

_TAGS = {"encoder-decoder": "text2text-generation", "decoder": "text-generation"}

_SEARCH = {"beams": "num_beams", "no_repeat_ngram": "no_repeat_ngram_size", "sample": "do_sample"}
"""Settings of a search that transformers calls otherwise."""

_SAMPLING = ("temperature", "top_p")
"""What a search does not read: the texts that a run is scored on are never drawn at random."""


def classification_usage(*, several_labels: bool = False) -> list[str]:
    """The labels of a text, by transformers' pipeline; of a model with several labels per text all of them."""
    # Without it a pipeline shows the likeliest label alone.
    every = ", top_k=None" if several_labels else ""
    return [
        "from transformers import pipeline",
        "",
        f'pipeline("text-classification", model="THIS_FOLDER"{every})("some text")',
    ]


def token_classification_usage() -> list[str]:
    """The entities in a text, or the tags of its words, by transformers' pipeline."""
    # A word's tag is that of its first piece, as in training.
    return [
        "from transformers import pipeline",
        "",
        'tagger = pipeline("token-classification", model="THIS_FOLDER", aggregation_strategy="first")',
        'for found in tagger("some text"):',
        '    print(found["word"], found["entity_group"], found["score"])',
    ]


def custom_head_usage() -> list[str]:
    """The logits of a text, of a student whose head no plain checkpoint can hold."""
    # With torch, which takes seconds to load, and results of runs are shown without it.
    from stillery.models.custom_head import HOW_TO_LOAD

    return [
        HOW_TO_LOAD,
        "from transformers import AutoTokenizer",
        "",
        'model = load_student("THIS_FOLDER")',
        'tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")',
        'model(**tokenizer("some text", return_tensors="pt")).logits',
    ]


def generation_tag(layout: str, task: str | None) -> str:
    """The hub's pipeline tag of a model that generates text, trained on a named task or on files."""
    named = GENERATION_TASKS.get(task or "")
    translates = layout == "encoder-decoder" and named is not None and named.languages is not None
    return "translation" if translates else _TAGS[layout]


def generation_notes(metrics: Mapping[str, Any]) -> list[str]:
    """How fast texts are generated; how many were to name a class, or a number, and name none."""
    found, cost = [], metrics.get("cost", {})
    if "texts_per_second" in cost:
        found.append(f"Speed: {generation_speed_in_words(cost)}.")
    if "no_label" in metrics:
        scores = "pearson" in metrics["metrics"]
        what = "are no number, which count as 2.5" if scores else "name no class, which count as wrong"
        found.append(f"Texts that {what}: {metrics['no_label']}.")
    return found


def generation_speed_in_words(cost: Mapping[str, Any]) -> str:
    """How many texts a model generates in a second, and how that was measured.

    >>> generation_speed_in_words({"texts_per_second": 12.3, "generation_batch": 8, "generation_beams": 4})
    '12.3 texts a second (4 beams, batches of 8)'
    """
    faster = f", {cost['generation_speedup']:.2f}x the teacher's" if cost.get("generation_speedup") else ""
    beams = f"{cost['generation_beams']} beam{'' if cost['generation_beams'] == 1 else 's'}"
    return f"{cost['texts_per_second']:.1f} texts a second{faster} ({beams}, batches of {cost['generation_batch']})"


def generation_usage(
    layout: str,
    *,
    decoding: Mapping[str, Any],
    max_source: int,
    prompt: str = "",
    prefix: str = "",
    left_aside: Mapping[str, Any] | None = None,
) -> list[str]:
    """A text generated from a source as the run's own scores were made, with plain transformers.

    Args:
        layout: `decoder` or `encoder-decoder`.
        decoding: the search, by the names of `stillery.evaluation.generate.Decoding`.
        max_source: tokens of a source, which an encoder-decoder cuts.
        prompt: what a decoder goes on from, with {source} in it.
        prefix: what stands before each source of an encoder-decoder.
        left_aside: settings of generation in the checkpoint that were set to these values instead.
    """
    if layout == "decoder":
        auto, shown, cut = "AutoModelForCausalLM", f'{prompt!r}.replace("{{source}}", source)', ""
        # What is generated begins with the prompt.
        generated = 'generated[0, inputs["input_ids"].shape[1] :]'
    else:
        auto, shown = "AutoModelForSeq2SeqLM", f"{prefix!r} + source" if prefix else "source"
        cut, generated = f"truncation=True, max_length={max_source}, ", "generated[0]"
    search = {_SEARCH.get(name, name): value for name, value in decoding.items() if name not in _SAMPLING}
    return [
        f"from transformers import {auto}, AutoTokenizer",
        "",
        f'model = {auto}.from_pretrained("THIS_FOLDER")',
        'tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")',
        'source = "some text"',
        f'inputs = tokenizer({shown}, {cut}return_token_type_ids=False, return_tensors="pt")',
        "generated = model.generate(",
        "    **inputs,",
        *(f"    {name}={value!r}," for name, value in (search | dict(left_aside or {})).items()),
        ")",
        f"print(tokenizer.decode({generated}, skip_special_tokens=True))",
    ]
