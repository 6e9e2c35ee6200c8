"""A teacher's own texts as targets: the tokens it wrote, once for each source, and no end where there was none."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from text_tokenizers import word_tokenizer
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, BartConfig, GPT2Config, T5Config

from stillery.data.schema.examples import Examples
from stillery.errors import UserError
from stillery.evaluation.generate import Decoding, generate_ids
from stillery.jobs.config.settings import DataSettings, GenerationSettings
from stillery.jobs.kinds.generation import teacher_texts as room
from stillery.jobs.kinds.generation.reading import Reading
from stillery.jobs.kinds.generation.teacher_texts import teacher_texts
from stillery.models.load_model import Loaded
from stillery.verbosity import Verbosity, verbosity_as

END, LONGEST = 2, 8
ENDS = (END, *range(20, 28))
SEARCH = Decoding(beams=2, max_new_tokens=LONGEST)


def make_teacher(family: str, **changes: Any) -> Loaded:
    """A model of few words, some of which end a text, as they do for some published models."""
    tokenizer = word_tokenizer(family)
    tokenizer.pad_token = "<pad>"
    ids: dict[str, Any] = {"vocab_size": len(tokenizer), "eos_token_id": END, "bos_token_id": 1, "pad_token_id": 0}
    ids |= {"tie_word_embeddings": False}
    if family == "t5":
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
        config: Any = T5Config(**sizes | ids | changes)
    elif family == "bart":
        sizes = {"d_model": 16, "max_position_embeddings": 64, "decoder_start_token_id": END}
        for half in ("encoder", "decoder"):
            sizes |= {f"{half}_layers": 2, f"{half}_attention_heads": 2, f"{half}_ffn_dim": 32}
        config = BartConfig(**sizes | ids | changes)
    else:
        config = GPT2Config(**{"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64} | ids | changes)
    torch.manual_seed(3)
    auto: Any = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = auto.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.5)
        model.get_output_embeddings().weight[:20] = model.get_output_embeddings().weight[60:] = 0
    model.generation_config.eos_token_id = list(ENDS)
    return Loaded(model=model, tokenizer=tokenizer, name=f"teacher-{family}", missing=frozenset())


@pytest.fixture(params=["t5", "bart", "gpt2"])
def teacher(request: pytest.FixtureRequest) -> Loaded:
    return make_teacher(request.param)


@pytest.fixture
def examples() -> Examples:
    """Twenty sources, each with three right texts, one behind the other."""
    sources = [f"w{7 * row % 90} w{row} w{row + 3}" for row in range(20) for _ in range(3)]
    return Examples(
        ids=tuple(f"{row // 3}#{row % 3 + 1}" for row in range(60)),
        columns={"source": pa.array(sources, pa.large_string()), "target": pa.array(["w1"] * 60, pa.large_string())},
        source="made up",
    )


def reading_of(teacher: Loaded, longest: int = 12) -> Reading:
    return Reading.of(
        DataSettings(data="x", max_length=16), GenerationSettings(max_target_length=longest), [teacher.model.config]
    )


def targets_of(teacher: Loaded, found: Any) -> list[list[int]]:
    tokens, reads = found.tokens, teacher.model.config.is_encoder_decoder
    side = tokens.target if reads else tokens.source
    rows = [side.flat[side.offsets[row] : side.offsets[row + 1]].tolist() for row in range(len(tokens))]
    return rows if reads else [text[size:] for text, size in zip(rows, tokens.prompt_lengths, strict=True)]


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLERY_CACHE", "off")


def test_targets_are_what_was_written_and_an_end_is_there_only_if_it_was(
    teacher: Loaded, examples: Examples, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def counting(model: Any, tokenizer: Any, tokens: Any, **options: Any) -> list[list[int]]:
        asked.append(len(tokens))
        return generate_ids(model, tokenizer, tokens, **options)

    monkeypatch.setattr(room, "generate_ids", counting)
    reading = reading_of(teacher)
    found = teacher_texts(teacher, examples, reading, SEARCH, 8)
    assert asked == [20] and found.sources == 20 and found.empty == 0
    prompts = reading.prompts(examples, teacher.tokenizer, "all")
    expected = generate_ids(teacher.model, teacher.tokenizer, prompts, decoding=SEARCH, description=None)
    assert targets_of(teacher, found) == expected
    assert found.tokens.ids == examples.ids
    cut = [text[-1] not in ENDS for text in expected]
    assert any(cut) and not all(cut), "some texts must end by themselves and some be cut"
    assert found.cut == sum(cut) // 3
    assert f"{found.cut} of 20 texts of the teacher were cut off at 8 tokens" in capsys.readouterr().err
    assert found.record() == {"sources": 20, "examples": 60, "cut": found.cut, "empty": 0}
    source = found.tokens.source
    starts = [source.flat[source.offsets[row] :][:size].tolist() for row, size in enumerate(prompts.lengths)]
    assert starts == [prompts.flat[prompts.offsets[row] : prompts.offsets[row + 1]].tolist() for row in range(60)]


def test_targets_are_cut_to_their_longest_without_an_end(teacher: Loaded, examples: Examples) -> None:
    long = teacher_texts(teacher, examples, reading_of(teacher), SEARCH, 8)
    short = teacher_texts(teacher, examples, reading_of(teacher, 4), SEARCH, 8)
    assert targets_of(teacher, short) == [text[:4] for text in targets_of(teacher, long)]
    assert short.cut == sum(text[-1] not in ENDS for text in targets_of(teacher, short)) / 3 > 0


def test_an_end_that_bart_is_forced_to_write_is_none(examples: Examples) -> None:
    assert make_teacher("bart").model.generation_config.forced_eos_token_id == END
    found = []
    for forced in (END, None):
        teacher = make_teacher("bart")
        teacher.model.generation_config.forced_eos_token_id = forced
        teacher.model.config.forced_eos_token_id = forced
        found.append(teacher_texts(teacher, examples, reading_of(teacher), dataclasses.replace(SEARCH, beams=1), 8))
    assert found[0].cut == found[1].cut > 0
    forced, free = (targets_of(teacher, one) for one in found)
    assert max(map(len, forced)) == LONGEST - 1
    assert forced == [text[: LONGEST - 1] if len(text) == LONGEST else text for text in free]


def test_texts_come_from_the_cache_as_they_were_written(
    teacher: Loaded, examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path))
    first = teacher_texts(teacher, examples.take(range(30)), reading_of(teacher), SEARCH, 8)
    both = teacher_texts(teacher, examples, reading_of(teacher), SEARCH, 8)
    monkeypatch.setattr(room, "generate_ids", None)
    again = teacher_texts(teacher, examples, reading_of(teacher), SEARCH, 8)
    assert targets_of(teacher, again) == targets_of(teacher, both)
    assert targets_of(teacher, both)[:30] == targets_of(teacher, first)
    assert again.record() == both.record()


def test_what_another_teacher_or_search_wrote_is_not_taken(
    examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path))
    teacher, other = make_teacher("t5"), make_teacher("t5")
    with torch.no_grad():
        other.model.get_output_embeddings().weight[30] += 1.0
    found = []
    for one, search in ((teacher, SEARCH), (other, SEARCH), (teacher, dataclasses.replace(SEARCH, max_new_tokens=5))):
        expected = [generate_ids(one.model, one.tokenizer, reading_of(one).prompts(examples, one.tokenizer, "all"),
                                 decoding=search, description=None)]  # fmt: skip
        found.append(targets_of(one, teacher_texts(one, examples, reading_of(one), search, 8)))
        assert [found[-1]] == expected
    assert found[0] != found[1] and found[0] != found[2], "or the test shows nothing"


def test_sources_without_a_text_are_left_out(
    examples: Examples, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = make_teacher("t5")
    monkeypatch.setattr(room, "generate_ids", lambda *_, **__: [[END], *([[10, END]] * 19)])
    found = teacher_texts(teacher, examples, reading_of(teacher), SEARCH, 8)
    assert found.record() == {"sources": 20, "examples": 57, "cut": 0, "empty": 1}
    assert found.tokens.ids == examples.ids[3:]
    assert "writes nothing for 1 of 20 sources" in capsys.readouterr().err
    monkeypatch.setattr(room, "generate_ids", lambda *_, **__: [[END]] * 20)
    with pytest.raises(UserError, match="nothing to learn"):
        teacher_texts(teacher, examples, reading_of(teacher), SEARCH, 8)


@pytest.mark.parametrize("killed", [False, True], ids=["interrupted", "killed"])
def test_what_was_written_before_an_end_is_not_written_again(
    examples: Examples,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    killed: bool,
) -> None:
    teacher = make_teacher("t5")
    undisturbed = targets_of(teacher, teacher_texts(teacher, examples, reading_of(teacher), SEARCH, 4))
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))
    if killed:
        monkeypatch.setattr(room, "KEEP_SECONDS", 0.0)
        monkeypatch.setattr(room, "KEEP_SHARE", 1e9)
    asked: list[int] = []
    write = type(teacher.model).generate

    def stopped(self: Any, **options: Any) -> Any:
        asked.append(len(options["input_ids"]))
        if len(asked) == 3:
            if killed:
                shutil.copytree(tmp_path / "cache", tmp_path / "copy")
            raise KeyboardInterrupt
        return write(self, **options)

    monkeypatch.setattr(type(teacher.model), "generate", stopped)
    with pytest.raises(KeyboardInterrupt):
        teacher_texts(teacher, examples, reading_of(teacher), SEARCH, 4)
    assert "8 texts of the teacher are kept; the same command continues from there" in capsys.readouterr().err
    if killed:
        monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "copy"))
    with verbosity_as(Verbosity.VERBOSE):
        found = teacher_texts(teacher, examples, reading_of(teacher), SEARCH, 4)
    assert asked[3:] == [4, 4, 4]
    assert targets_of(teacher, found) == undisturbed
    assert "8 texts of the teacher read from the cache" in capsys.readouterr().err
