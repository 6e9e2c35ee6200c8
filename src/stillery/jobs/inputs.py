"""Read the examples a job works on, and turn them into tokens a model can take."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from stillery.data.examples import Examples, Parts, load, load_for_scoring
from stillery.data.labels import Labels
from stillery.data.tasks import load_task
from stillery.data.tokens import Tokens, tokenise
from stillery.faults import Fault
from stillery.jobs.settings import DataSettings
from stillery.models.family import longest_input
from stillery.progress import say

__all__ = ["examples_to_score", "parts_of", "token_limit", "tokens_of"]


def parts_of(data: DataSettings, labels: Labels | None) -> Parts:
    """Train, dev and test parts; with `labels`, a model's, in the model's order of classes."""
    if data.task is not None:
        return load_task(data.task, labels)
    assert data.data is not None
    return load(
        Path(data.data),
        text=data.text,
        text_pair=data.text_pair,
        label=data.label,
        labels=labels,
        regression=data.regression,
    )


def examples_to_score(data: DataSettings, labels: Labels, part: str | None) -> tuple[str, Examples]:
    """The name of the task and the examples a model is scored on."""
    if data.task is not None:
        parts = load_task(data.task, labels)
        chosen = {"train": parts.train, "dev": parts.dev, "test": parts.test}.get(part or "test")
        if chosen is None:
            raise Fault(f"--part {part}: choose train, dev or test")
        return data.task, chosen
    if data.data is None:
        raise Fault("give either --data (a file or folder) or --task (a name)")
    path = Path(data.data)
    examples = load_for_scoring(
        path, part=part, text=data.text, text_pair=data.text_pair, label=data.label, labels=labels
    )
    return path.resolve().name, examples


def token_limit(max_length: int, *configs: PreTrainedConfig) -> int:
    """The wanted length, or what the models have positions for if that is less."""
    limit = min([max_length, *map(longest_input, configs)])
    if limit < max_length:
        say(f"texts are cut to {limit} tokens, not {max_length}: the model has no more positions")
    return limit


def tokens_of(examples: Examples, tokenizer: PreTrainedTokenizerBase, limit: int, part: str) -> Tokens:
    """The tokens of one part; says how many texts were cut."""
    tokens = tokenise(examples, tokenizer, limit, f"tokenise {part}")
    if tokens.truncated:
        say(f"{part}: {tokens.truncated} of {len(examples)} texts are longer than {limit} tokens and were cut")
    return tokens
