"""Several runs in one process: what they share is computed once, and only while it is the same."""

from __future__ import annotations

import gc
from pathlib import Path

from stillery.data.tokens.token_cache import described
from stillery.jobs import fingerprints
from stillery.jobs.fingerprints import model_fingerprints
from stillery.jobs.warm import kept_warm
from stillery.models.load_model import load_classifier


def test_a_tokenizer_is_described_once_and_again_when_it_changes(tiny_teacher: Path, monkeypatch) -> None:
    asked: list[object] = []

    def counted(tokenizer):
        asked.append(tokenizer)
        return described(tokenizer)

    monkeypatch.setattr(fingerprints, "described", counted)
    alone = model_fingerprints("teacher", load_classifier(str(tiny_teacher)))
    assert len(asked) == 1
    with kept_warm():
        loaded = [load_classifier(str(tiny_teacher)) for _ in range(3)]
        found = [model_fingerprints("teacher", one) for one in loaded]
        assert found == [alone] * 3 and len(asked) == 2
        loaded[0].tokenizer.add_tokens(["naive-word"])
        loaded[1].tokenizer.truncation_side = "left"
        changed = [model_fingerprints("teacher", one)["teacher_tokenizer"] for one in loaded]
        assert len(set(changed)) == 3 and changed[2] == alone["teacher_tokenizer"]


def test_objects_of_libraries_are_left_out_of_garbage_collection() -> None:
    assert gc.get_freeze_count() == 0
    with kept_warm():
        assert gc.get_freeze_count() > 10_000
    assert gc.get_freeze_count() == 0
