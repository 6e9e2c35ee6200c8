"""Layer pairs of a teacher and a student made from it, as printed by `stillery pairs --teacher`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from stillery.errors import ErrorList, UserError
from stillery.ignored import IGNORED
from stillery.jobs import layer_similarity as similar
from stillery.jobs.calibration import TEXTS, TOKENS, Calibration
from stillery.jobs.chosen_recipe import check_tokenizers, chosen_recipe
from stillery.jobs.config.resolved import resolved_student
from stillery.jobs.config.run_file import run_of
from stillery.jobs.config.settings import (
    DataSettings,
    InputSettings,
    MethodSettings,
    StudentSettings,
    setting_names,
)
from stillery.jobs.kinds.base import Kind
from stillery.jobs.kinds.find import kind_of_model
from stillery.models.family import kind_of, longest_input, stack_sizes
from stillery.models.load_model import Loaded
from stillery.models.option_words import AUTO
from stillery.recipe import Clock, Recipe
from stillery.stacks import on_stacks
from stillery.train.step_plan import sizes_in

__all__ = ["Meeting", "meeting"]

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """A recipe with its pairings decided, the depths of the stacks, the kind of model, and notes on the measurement."""

    recipe: Recipe
    depths: dict[str | None, tuple[int, int]]
    kind: str
    notes: tuple[str, ...] = ()


def meeting(
    teacher: str, student: StudentSettings, method: MethodSettings, data: DataSettings | None, clock: Clock
) -> Meeting:
    """Load the teacher, make the student, and measure their layer similarity where a pairing needs it.

    Texts are those of `data`, else of the run that trained the teacher, else made-up sentences; a note reports which.
    """
    kind = kind_of_model(teacher, data)
    loaded = kind.load_for_layers(teacher, None)
    recipe = on_stacks(chosen_recipe(method, None), kind_of(loaded.model.config))
    asked = similar.asking(recipe.stages)
    notes: list[str] = []
    texts = _texts(teacher, loaded, kind, data, notes)
    settings = resolved_student(student, replace(recipe, head="fresh"), start=kind.start)
    if settings.init == AUTO:
        settings = replace(settings, init=kind.start)
    with torch.random.fork_rng(devices=[]):
        made, settings = kind.make_student(settings, teacher=loaded, seed=clock.seed, calibration=texts)
    if made.difference is not None:
        errors = ErrorList()
        check_tokenizers(recipe.stages, method.recipe or method.method, made.difference, errors)
        errors.raise_any()
    if asked:
        alike = similar.measured(recipe.stages, made.model, {"task": loaded, "supplementary": loaded}, texts)
        recipe = replace(recipe, stages=similar.decided(recipe.stages, alike))
        notes.insert(0, f"similarity: CKA of a student that starts as --init {settings.init}, on {notes.pop()}")
    ours, theirs = stack_sizes(made.model.config), stack_sizes(loaded.model.config)
    names: list[Any] = [None, *ours]
    depths = {name: (sizes_in(ours, name).layers, sizes_in(theirs, name).layers) for name in names}
    return Meeting(recipe=recipe, depths=depths, kind=kind_of(loaded.model.config), notes=tuple(notes) if asked else ())


def _texts(teacher: str, loaded: Loaded, kind: Kind, data: DataSettings | None, notes: list[str]) -> Calibration:
    """Return the texts that layers are compared on."""
    known = run_of(teacher)
    if data is None and {"data", "task"} & known.keys():
        given = {name: known[name] for name in setting_names(DataSettings) if name in known}
        try:
            return _of_data(DataSettings(**given), loaded, kind, notes)
        except UserError:
            # The run's data is gone or unavailable: fall back to the made-up sentences.
            pass
    if data is not None:
        return _of_data(data, loaded, kind, notes)
    notes.append(f"{len(_SENTENCES)} made-up sentences; name those of a run with --data or --task")
    return Calibration(partial(_sentences, loaded))


def _of_data(data: DataSettings, loaded: Loaded, kind: Kind, notes: list[str]) -> Calibration:
    inputs = InputSettings(data=replace(data, unlabelled=True))
    splits = kind.read(inputs, None).splits
    notes.append(f"{min(TEXTS, len(splits.train))} texts of {splits.source}")
    return kind.calibration(splits.train, loaded, inputs)


_SENTENCES = [
    f"{who} {does} {what}{when}."
    for (who, does), (what, when) in product(
        (
            ("The old sailor", "repaired"), ("My neighbour", "forgot"), ("A young doctor", "described"),
            ("Nobody in the village", "understood"), ("The committee", "rejected"), ("Her brother", "sold"),
            ("This film", "celebrates"), ("Two engineers", "measured"),
        ),
        (
            ("the broken engine of the ferry", " before the storm came"), ("a letter from the bank", ""),
            ("the long road to the coast", " in great detail"), ("every proposal of last year", " without a word"),
            ("the taste of fresh bread", " again"), ("an expensive telescope", " for almost nothing"),
            ("what friendship means", ", slowly and with humour"), ("the weight of the bridge", " twice"),
        ),
    )
]  # fmt: skip


def _sentences(loaded: Loaded, config: PreTrainedConfig) -> list[Inputs]:
    """Tokenise the made-up sentences for a model; for an encoder-decoder they are also the targets."""
    tokenizer, limit = loaded.tokenizer, min(TOKENS, longest_input(config))
    rows = [tokenizer(text, truncation=True, max_length=limit)["input_ids"] for text in _SENTENCES]
    longest, pad = max(map(len, rows)), int(tokenizer.pad_token_id)
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    inputs: dict[str, Tensor] = {"input_ids": ids, "attention_mask": real}
    if kind_of(config) == "encoder-decoder":
        inputs["labels"] = ids.masked_fill(real == 0, IGNORED)
    return [inputs]
