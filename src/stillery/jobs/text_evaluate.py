"""Have a model write texts for a file or a task, score them, and beside its teacher's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stillery.evaluate.generate import Decoding
from stillery.faults import Gathered
from stillery.jobs.inputs import check_batch_size, to_device
from stillery.jobs.outputs import check_file
from stillery.jobs.seen import warn_of_seen
from stillery.jobs.settings import DataSettings, DecodingSettings, TextSettings
from stillery.jobs.text_inputs import Reading, TextScored, meant_for, text_to_score
from stillery.jobs.text_kind import check_no_classes
from stillery.jobs.text_scores import Written, decoding_of, need_scorer, text_evaluation, write_outputs, written_by
from stillery.models.load import Loaded, load_generator
from stillery.progress import say

__all__ = ["run_text_evaluate"]


def run_text_evaluate(
    model: str,
    data: DataSettings,
    writing: TextSettings,
    settings: DecodingSettings,
    *,
    against: str | None = None,
    part: str | None = None,
    batch_size: int = 32,
    predictions: Path | None = None,
) -> dict[str, Any]:
    """BLEU, chrF, loss and perplexity, or a task's own metrics where the texts name classes."""
    check_batch_size(batch_size)
    faults = Gathered()
    loaded: Loaded | None = None
    teacher: Loaded | None = None
    scored: TextScored | None = None
    with faults.catch():
        loaded = load_generator(model)
    with faults.catch():
        teacher = load_generator(against) if against is not None else None
    check_no_classes(data, faults)
    if not faults.lines:
        with faults.catch():
            scored = text_to_score(data, writing, part)
            need_scorer([scored])
    if predictions is not None:
        with faults.catch():
            check_file(predictions, "--predictions", data.data)
    faults.raise_any()
    assert loaded is not None and scored is not None
    if scored.note:
        say(scored.note)
    warn_of_seen(model, data, part)
    models = [loaded, *([teacher] if teacher is not None else [])]
    configs = [one.model.config for one in models]
    decoding = decoding_of(settings, Reading.of(data, writing, configs), configs)
    student = _written(loaded, scored, data, writing, decoding, batch_size)
    theirs = None if teacher is None else _written(teacher, scored, data, writing, decoding, batch_size)
    found = text_evaluation(scored, student, theirs, decoding)
    if scored.part is not None:
        found["part"] = scored.part
    if scored.more:
        found["also"] = {one.part: _beside(one, models, data, writing, decoding, batch_size) for one in scored.more}
    if predictions is not None:
        write_outputs(predictions, scored, student, theirs)
    return found


def _beside(
    scored: TextScored,
    models: list[Loaded],
    data: DataSettings,
    writing: TextSettings,
    decoding: Decoding,
    batch_size: int,
) -> dict[str, Any]:
    """The evaluation on another part of the task, such as MNLI's mismatched one."""
    student, *teacher = [_written(one, scored, data, writing, decoding, batch_size) for one in models]
    return text_evaluation(scored, student, teacher[0] if teacher else None, decoding)


def _written(
    loaded: Loaded,
    scored: TextScored,
    data: DataSettings,
    writing: TextSettings,
    decoding: Decoding,
    batch_size: int,
) -> Written:
    """What one model writes; each reads with its own tokenizer."""
    to_device(loaded.model)
    reading = Reading.of(data, meant_for(loaded.model.config, writing), [loaded.model.config])
    prompts = reading.prompts(scored.examples, loaded.tokenizer, loaded.name)
    tokens = reading.tokens(scored.examples, loaded.tokenizer, loaded.name)
    return written_by(
        loaded.model, loaded.tokenizer, prompts, tokens, decoding, batch_size=batch_size,
        description=loaded.name,
    )  # fmt: skip
