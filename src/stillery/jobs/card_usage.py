"""Parts of a model card that depend on the kind of model: usage code, the hub's pipeline tag, notes on the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stillery.data.tasks.generation import GENERATION_TASKS

__all__ = [
    "classification_usage",
    "custom_head_usage",
    "embedding_usage",
    "generation_notes",
    "generation_tag",
    "generation_usage",
    "token_classification_usage",
]

_TAGS = {"encoder-decoder": "text2text-generation", "decoder": "text-generation"}

_SEARCH = {"beams": "num_beams", "no_repeat_ngram": "no_repeat_ngram_size", "sample": "do_sample"}
"""Search settings that have another name in transformers."""

_SAMPLING = ("temperature", "top_p")
"""Decoding settings that beam search ignores: the texts that a run is scored on are never sampled."""


def classification_usage(*, several_labels: bool = False) -> list[str]:
    """Return code that classifies a text with transformers' pipeline; of a multi-label model, with all label scores."""
    # Without it a pipeline returns the likeliest label alone.
    every = ", top_k=None" if several_labels else ""
    return [
        "from transformers import pipeline",
        "",
        f'pipeline("text-classification", model="THIS_FOLDER"{every})("some text")',
    ]


def token_classification_usage() -> list[str]:
    """Return code that tags the entities or words of a text with transformers' pipeline."""
    # A word's tag is that of its first piece, as in training.
    return [
        "from transformers import pipeline",
        "",
        'tagger = pipeline("token-classification", model="THIS_FOLDER", aggregation_strategy="first")',
        'for found in tagger("some text"):',
        '    print(found["word"], found["entity_group"], found["score"])',
    ]


def embedding_usage() -> list[str]:
    """Return code that compares two texts with sentence-transformers."""
    return [
        "from sentence_transformers import SentenceTransformer",
        "",
        'model = SentenceTransformer("THIS_FOLDER")',
        'vectors = model.encode(["some text", "another text"])',
        "print(model.similarity(vectors, vectors))",
    ]


def custom_head_usage() -> list[str]:
    """Return code that computes the logits of a text with a student whose head no plain checkpoint can hold."""
    # Imports torch, which takes seconds to load; results of runs are shown without it.
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
    """Return the hub's pipeline tag for a model that generates text, trained on a named task or on files."""
    named = GENERATION_TASKS.get(task or "")
    translates = layout == "encoder-decoder" and named is not None and named.languages is not None
    return "translation" if translates else _TAGS[layout]


def generation_notes(metrics: Mapping[str, Any]) -> list[str]:
    """Return notes on the generation speed, and on the number of outputs that name no class or are no number."""
    found, cost = [], metrics.get("cost", {})
    if "texts_per_second" in cost:
        found.append(f"Speed: {generation_speed_in_words(cost)}.")
    if "no_label" in metrics:
        scores = "pearson" in metrics["metrics"]
        what = "are no number, which count as 2.5" if scores else "name no class, which count as wrong"
        found.append(f"Texts that {what}: {metrics['no_label']}.")
    return found


def generation_speed_in_words(cost: Mapping[str, Any]) -> str:
    """Describe how many texts a model generates per second, and how that was measured.

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
    """Return code that generates a text from a source with plain transformers, as for the run's own scores.

    Args:
        layout: `decoder` or `encoder-decoder`.
        decoding: the search, by the names of `stillery.evaluation.generate.Decoding`.
        max_source: maximum tokens of a source, which is truncated for an encoder-decoder.
        prompt: the prompt template of a decoder, with {source} in it.
        prefix: text put before each source of an encoder-decoder.
        left_aside: values that override the checkpoint's own generation settings.
    """
    if layout == "decoder":
        auto, shown, cut = "AutoModelForCausalLM", f'{prompt!r}.replace("{{source}}", source)', ""
        # The output of a decoder begins with the prompt.
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
