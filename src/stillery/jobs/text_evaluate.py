"""Have a model write texts for a file or a task, score them, and beside its teacher's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.errors import ErrorList
from stillery.evaluate.generate import Decoding
from stillery.jobs.config.settings import DataSettings, GenerationSettings, SearchSettings
from stillery.jobs.inputs import check_batch_size, to_device
from stillery.jobs.model_kind import check_no_classes
from stillery.jobs.output_paths import check_file
from stillery.jobs.text_inputs import Reading, TextScored, meant_for, text_to_score
from stillery.jobs.text_scores import Written, decoding_of, need_scorer, text_evaluation, write_outputs, written_by
from stillery.jobs.trained_on import warn_of_seen
from stillery.models.load import Loaded, load_generator
from stillery.progress import say
from stillery.setting import option_name

__all__ = ["run_text_evaluate"]


def run_text_evaluate(
    model: str,
    data: DataSettings,
    writing: GenerationSettings,
    settings: SearchSettings,
    *,
    against: str | None = None,
    theirs: tuple[DataSettings, GenerationSettings] | None = None,
    part: str | None = None,
    batch_size: int = 32,
    predictions: Path | None = None,
) -> dict[str, Any]:
    """BLEU, chrF, loss and perplexity, or a task's own metrics where the texts name classes.

    `theirs` is how the model `against` reads, where it does so in its own way.
    """
    check_batch_size(batch_size)
    errors = ErrorList()
    loaded: Loaded | None = None
    teacher: Loaded | None = None
    scored: TextScored | None = None
    with errors.catch():
        loaded = load_generator(model)
    with errors.catch():
        teacher = load_generator(against) if against is not None else None
    check_no_classes(data, errors)
    if not errors.lines:
        with errors.catch():
            scored = text_to_score(data, writing, part)
            need_scorer([scored])
    if predictions is not None:
        with errors.catch():
            check_file(predictions, "--predictions", data.data)
    errors.raise_any()
    assert loaded is not None and scored is not None
    if scored.note:
        say(scored.note)
    warn_of_seen(model, data, part)
    readers = [_Reader.of(loaded, data, writing)]
    if teacher is not None:
        other, settled = theirs or (data, writing)
        readers.append(_Reader.of(teacher, other, meant_for(teacher.model.config, settled)))
        if theirs is not None:
            _say_apart(*readers)
    decoding = min((reader.decoding(settings) for reader in readers), key=lambda one: one.max_new_tokens)
    written = [reader.written(scored, decoding, batch_size) for reader in readers]
    found = text_evaluation(scored, *_both(written), decoding)
    if scored.part is not None:
        found["part"] = scored.part
    if scored.more:
        found["also"] = {one.part: _beside(one, readers, decoding, batch_size) for one in scored.more}
    if predictions is not None:
        write_outputs(predictions, scored, *_both(written))
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Reader:
    """A model, and how it reads texts, with its own tokenizer."""

    loaded: Loaded
    reading: Reading

    @classmethod
    def of(cls, loaded: Loaded, data: DataSettings, writing: GenerationSettings) -> _Reader:
        reading = Reading.of(data, writing, [loaded.model.config])
        reading.check(loaded.tokenizer)
        return cls(loaded=loaded, reading=reading)

    def decoding(self, settings: SearchSettings) -> Decoding:
        """The search that the settings ask for, within what the model has positions for."""
        return decoding_of(settings, self.reading, [self.loaded.model.config])

    def written(self, scored: TextScored, decoding: Decoding, batch_size: int) -> Written:
        """What the model writes."""
        loaded, reading = self.loaded, self.reading
        to_device(loaded.model)
        prompts = reading.prompts(scored.examples, loaded.tokenizer, loaded.name)
        tokens = reading.tokens(scored.examples, loaded.tokenizer, loaded.name)
        return written_by(
            loaded.model, loaded.tokenizer, prompts, tokens, decoding, batch_size=batch_size,
            description=loaded.name,
        )  # fmt: skip


def _say_apart(ours: _Reader, theirs: _Reader) -> None:
    """Say how the other model reads, where it was trained to read in another way."""
    mine, other = ours.reading.settings(), theirs.reading.settings()
    apart = [f"{option_name(name)} {value!r}" for name, value in other.items() if mine.get(name, value) != value]
    if apart:
        say(f"{theirs.loaded.name} reads texts as it was trained to, not as {ours.loaded.name}: {', '.join(apart)}")


def _beside(scored: TextScored, readers: list[_Reader], decoding: Decoding, batch_size: int) -> dict[str, Any]:
    """The evaluation on another part of the task, such as MNLI's mismatched one."""
    written = [reader.written(scored, decoding, batch_size) for reader in readers]
    return text_evaluation(scored, *_both(written), decoding)


def _both(written: list[Written]) -> tuple[Written, Written | None]:
    return written[0], written[1] if len(written) > 1 else None
