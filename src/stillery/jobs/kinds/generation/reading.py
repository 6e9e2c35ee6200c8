"""Tokenisation of sources and targets for text generation models."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from stillery.data.schema.examples import Examples
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.encode_generation import PROMPT, GenerationFormat, GenerationTokens, check_room, prompts
from stillery.data.tokens.token_cache import cached_generation_tokens
from stillery.errors import UserError
from stillery.jobs.config.inherited import prefix_of
from stillery.jobs.config.settings import DataSettings, GenerationSettings
from stillery.jobs.cut_texts import say_cut
from stillery.models.family import kind_of, longest_input
from stillery.progress import say

__all__ = ["Reading", "meant_for", "written_out"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Tokenisation settings of sources and targets: stacks, maximum lengths, prompt and prefix."""

    kind: str
    max_source: int
    max_target: int
    prompt: str
    prefix: str

    @classmethod
    def of(cls, data: DataSettings, writing: GenerationSettings, configs: Sequence[PreTrainedConfig]) -> Reading:
        """Build from the settings, within the position limits of the models."""
        kind = kind_of(configs[0])
        prompt = PROMPT if writing.prompt is None else writing.prompt
        if "{source}" not in prompt:
            raise UserError(f"--prompt {prompt!r}: say with {{source}} where the source goes")
        if kind == "decoder" and writing.prefix is not None:
            raise UserError("--prefix is for encoder-decoders; a decoder has --prompt")
        if kind != "decoder" and writing.prompt is not None:
            raise UserError("--prompt is for decoders; an encoder-decoder has --prefix")
        limit = min(longest_input(config) for config in configs)
        source, target = data.max_length, writing.max_target_length
        if kind == "decoder" and source + target > limit:
            if target >= limit:
                raise UserError(
                    f"--max-target-length {target} leaves no room for a prompt: the model has {limit} positions for "
                    "prompt and target together; lower it"
                )
            source = limit - target
            say(f"prompts are cut to {source} tokens: the model has {limit} positions for prompt and target together")
        elif max(source, target) > limit:
            source, target = min(source, limit), min(target, limit)
            say(f"texts are cut to {limit} tokens: the model has no more positions")
        return cls(
            kind=kind,
            max_source=source,
            max_target=target,
            prompt=prompt,
            prefix=prefix_of(data) if writing.prefix is None else writing.prefix,
        )

    def settings(self) -> dict[str, Any]:
        """Return these as settings by name, only those that apply to this kind of model."""
        around = {"prompt": self.prompt} if self.kind == "decoder" else {"prefix": self.prefix}
        return {"max_length": self.max_source, "max_target_length": self.max_target, **around}

    @property
    def form(self) -> GenerationFormat:
        """The format that the tokenisation functions take."""
        return GenerationFormat(
            kind=self.kind,
            max_source=self.max_source,
            max_target=self.max_target,
            prompt=self.prompt,
            prefix=self.prefix,
        )

    def check(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Raise UserError for a prompt or prefix that leaves no room for a source."""
        check_room(tokenizer, self.form)

    def tokens(self, examples: Examples, tokenizer: PreTrainedTokenizerBase, split: str) -> GenerationTokens:
        """Tokenise sources and targets; reports how many were truncated."""
        tokens = cached_generation_tokens(examples, tokenizer, self.form, f"tokenise {split}")
        for what, cut, limit in (("sources", tokens.cut_sources, self.max_source),
                                 ("targets", tokens.cut_targets, self.max_target)):  # fmt: skip
            if cut:
                say_cut(split, f"{split}: {cut} of {len(examples)} {what} are longer than {limit} tokens and were cut")
        return tokens

    def prompts(self, examples: Examples, tokenizer: PreTrainedTokenizerBase, split: str) -> Tokens:
        """Return the tokenised prompts, the inputs of generation."""
        return prompts(examples, tokenizer, self.form, f"tokenise {split}")


def meant_for(config: PreTrainedConfig, writing: GenerationSettings) -> GenerationSettings:
    """Return the settings without those for the other layout: a decoder has no prefix, an encoder-decoder no prompt."""
    if kind_of(config) == "decoder":
        return dataclasses.replace(writing, prefix=None)
    return dataclasses.replace(writing, prompt=None)


def written_out(writing: GenerationSettings, reading: Reading) -> GenerationSettings:
    """Return the settings with the resolved prompt or prefix, so that later task defaults do not change them."""
    if reading.kind == "decoder":
        return dataclasses.replace(writing, prompt=reading.prompt)
    return dataclasses.replace(writing, prefix=reading.prefix)
