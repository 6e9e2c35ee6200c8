"""A user stops a run: what is kept, and whether there is something to continue."""

from __future__ import annotations

from typing import Any

from text_models import ask, make_writer, write_pairs
from transformers import T5ForConditionalGeneration


def test_texts_of_a_teacher_are_kept_before_there_is_a_run(command, tmp_path, monkeypatch):
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))
    write, asked = T5ForConditionalGeneration.generate, []

    def stopped(self: Any, **options: Any) -> Any:
        asked.append(len(options["input_ids"]))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return write(self, **options)

    monkeypatch.setattr(T5ForConditionalGeneration, "generate", stopped)
    teacher, pairs, out = make_writer(tmp_path / "t5", "t5"), write_pairs(tmp_path / "pairs.csv"), tmp_path / "run"
    run = ask("distill", teacher, pairs, out, "--layers", 1, "--sequence-level")
    done = command(*run)
    assert done.code == 130 and not out.exists()
    *_, kept, last = done.err.splitlines()
    assert kept == "16 texts of the teacher are kept; the same command continues from there"
    assert last == f"stillery: interrupted; nothing was written to {out}"
    done = command(*run, "--verbose")
    assert done.code == 0, done.err
    assert "16 texts of the teacher read from the cache" in done.err
