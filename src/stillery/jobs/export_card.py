"""The model card of an export: that of its checkpoint, with the files, the table and the use of the export first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from stillery.jobs.exported import Exported
from stillery.lines import markdown_text

__all__ = ["export_card"]


def export_card(found: Exported, source: Path, *, tag: str, facts: Sequence[str], usage: Sequence[str]) -> str:
    """Return the card in Markdown; `source` is the checkpoint's folder, `tag` the hub's pipeline tag."""
    data, about = _card_of(source)
    data = data or ModelCardData(pipeline_tag=tag)
    # Results on the hub are of the checkpoint, and are not repeated for its exports.
    data.library_name, data.eval_results, data.model_name = "onnx", None, None
    data.tags = [*dict.fromkeys([*(data.tags or []), "stillery", "onnx"])]
    title = next((line[2:] for line in about if line.startswith("# ")), "Classifier")
    rest = [line for line in about if not line.startswith("# ")]
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {title}, as ONNX",
        "\n".join(f"- {markdown_text(fact)}" for fact in facts),
        found.markdown(),
        "## Use it\n\nWithout torch, in this folder:\n\n```python\n" + "\n".join(usage) + "\n```",
    ]
    if rest:
        parts.append("## The checkpoint it was made from\n\n" + "\n".join(rest).replace("\n## ", "\n### ").strip())
    return "\n\n".join(parts) + "\n"


def _card_of(folder: Path) -> tuple[ModelCardData | None, list[str]]:
    """Return the header of a checkpoint's card, and its lines up to those on how to use it; None without a card."""
    try:
        card = ModelCard.load(folder / "README.md", ignore_metadata_errors=True)
    except (OSError, ValueError, UnicodeDecodeError):
        return None, []
    return card.data, card.text.partition("\n## Use it")[0].strip().splitlines()
