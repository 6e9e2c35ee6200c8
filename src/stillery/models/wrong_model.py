"""Error messages for folders and checkpoints that cannot be used directly, with a remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from stillery.models.head_type import SEQUENCE, TOKEN, HeadType, head_in
from stillery.small_files import read_json

__all__ = ["adapter_of", "is_adapter", "not_a_model", "untrained_head"]

_ADAPTER, _STATE = "adapter_config.json", "trainer_state.json"

_OTHER_TASKS = {
    "ForQuestionAnswering": "it answers questions about a text ({}), which is not supported",
    "ForMultipleChoice": "it chooses between answers ({}), which is not supported",
    "ForNextSentencePrediction": "it says whether a sentence follows another ({}), which is not supported",
    "ForMaskedLM": "it is pretrained to fill in masked words ({})",
    "ForPreTraining": "it is pretrained only ({})",
    SEQUENCE.ending: "it classifies whole texts ({})",
    TOKEN.ending: "it tags words ({})",
}
"""The task of a model by the suffix of its class name."""


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter, such as LoRA's, whose weights are useless without its base model."""
    return (folder / _ADAPTER).is_file()


def adapter_of(folder: Path) -> dict[str, Any] | None:
    """Return the description of an adapter; None for one that does not name its base model."""
    described = _json(folder / _ADAPTER)
    known = all(isinstance(described.get(name), str) for name in ("peft_type", "base_model_name_or_path"))
    return described if known else None


def not_a_model(folder: Path, name: str) -> str:
    """Explain why a folder is no model, and what to give instead: a merged adapter, a checkpoint or a subfolder."""
    if is_adapter(folder):
        return _adapter(folder, name)
    checkpoints = _checkpoints(folder)
    if checkpoints:
        best, why = _best(folder, checkpoints)
        return f"{name}: a folder of checkpoints, which holds no model itself; give one of them: {name}/{best} ({why})"
    inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
    if inside:
        return f"{name}: no config.json in this folder; it holds models in {', '.join(inside[:5])}: give one of those"
    return f"{name}: no config.json in this folder, so it holds no model"


def _adapter(folder: Path, name: str) -> str:
    described = _json(folder / _ADAPTER)
    kind, base = described.get("peft_type"), described.get("base_model_name_or_path")
    what = f"{kind} adapter" if isinstance(kind, str) else "adapter"
    of = f" of {base[:80]}" if isinstance(base, str) and base else ""
    start = f"{name}: {'an' if what == 'adapter' else 'a'} {what}{of}, not a whole model"
    if adapter_of(folder) is not None:
        return f'{start}; with peft installed it is merged when it is loaded: pip install "stillery[peft]"'
    return f"{start}, and its {_ADAPTER} does not say of which model it is; save the adapter again"


def _checkpoints(folder: Path) -> dict[int, str]:
    """The checkpoints that a Trainer left in its folder, by step."""
    found = {}
    for path in folder.glob("checkpoint-*"):
        step = re.fullmatch(r"checkpoint-(\d+)", path.name)
        if step and ((path / "config.json").is_file() or is_adapter(path)):
            found[int(step[1])] = path.name
    return dict(sorted(found.items()))


def _best(folder: Path, checkpoints: dict[int, str]) -> tuple[str, str]:
    """Return the best checkpoint by the trainer state, if it exists, else the newest; and the reason."""
    newest = list(checkpoints.values())[-1]
    for state in (folder / newest / _STATE, folder / _STATE):
        said = _json(state).get("best_model_checkpoint")
        # The path is from the training machine and may have backslashes.
        name = PurePosixPath(said.replace("\\", "/")).name if isinstance(said, str) else None
        if name in checkpoints.values():
            return str(name), f"the best by its {_STATE}"
    return newest, "the newest"


def _json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; empty if it cannot be read or is no object."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def untrained_head(architectures: Sequence[str] | None, folder: str, name: str, wanted: HeadType) -> str:
    """Explain why a checkpoint has no trained head of the wanted type, by its task, and what to do."""
    is_for = ""
    for architecture in architectures or ():
        for ending, words in _OTHER_TASKS.items():
            if architecture.endswith(ending) and ending != wanted.ending:
                is_for = words.format(architecture)
    if not is_for and (Path(folder) / "modules.json").is_file():
        is_for = "it embeds sentences (sentence-transformers)"
    subject = f"{is_for}, and" if is_for else "this model"
    data = "words with their tags" if wanted.by_token else "labelled texts"
    # A token classification head is wanted from a sequence classifier only if the data has tagged words.
    instead = "give labelled texts, or " if wanted.by_token and head_in(architectures) is SEQUENCE else ""
    return (
        f"{name}: {subject} has no trained {wanted.words} head; {instead}fine-tune it first on {data}: "
        f"stillery finetune --model {name} --data FILE"
    )
