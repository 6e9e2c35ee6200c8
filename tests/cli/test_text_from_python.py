"""Models that generate text, from Python: pairs in memory, and a metric of texts."""

from __future__ import annotations

import csv
from pathlib import Path

from text_models import make_writer, write_pairs

import stillery

SMALL = {"max_steps": 2, "batch_size": 8, "beams": 1, "max_new_tokens": 6, "max_length": 16, "max_target_length": 12}


def test_pairs_in_memory_and_a_metric_of_texts(tmp_path: Path) -> None:
    with write_pairs(tmp_path / "pairs.csv").open(encoding="utf-8", newline="") as file:
        pairs = list(csv.DictReader(file))
    seen: list[tuple[list[list[str]], list[str]]] = []

    def length(references: list[list[str]], texts: list[str]) -> dict[str, float]:
        seen.append((references, texts))
        return {"words": sum(len(text.split()) for text in texts) / len(texts)}

    model = make_writer(tmp_path / "model", "t5", layers=2)
    run = stillery.finetune(model=model, data=pairs, out=tmp_path / "run", metric=length, **SMALL)
    assert next(iter(run.metrics["training"]["dev_last"])) == "words"
    assert list(run.metrics["metrics"])[:2] == ["words", "bleu"]
    targets = {row["target"] for row in pairs}
    assert all(len(one) == 1 and one[0] in targets for references, _ in seen for one in references)
    assert seen[-1][1] == list(run.predictions["output"])
    assert run.model.config.model_type == "t5"
    sources = [{"source": row["source"]} for row in pairs[:3]]
    assert list(stillery.predict(run, data=sources).columns) == ["source", "output"]
