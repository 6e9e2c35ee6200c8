"""The teacher cache: bits that are read are those that were filled, and no run can tell it from the teacher."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from stillery import methods
from stillery.data.cache.folder import Cache, find_cache
from stillery.data.cache.locks import Turn
from stillery.data.tasks.load_task import load_task
from stillery.data.tokens.batches import Batch, padded_to
from stillery.data.tokens.encode import tokenise
from stillery.errors import UserError
from stillery.losses import Mixed
from stillery.models.family import Sizes
from stillery.models.load_model import Loaded, load_classifier
from stillery.models.wanted_outputs import Trace, Wanted
from stillery.parts import pair as pairings
from stillery.parts import represent
from stillery.recipe import Clock, Recipe
from stillery.train.loop import CacheUse, Monitoring, Sources, TrainingData, accelerator_for, train
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Losses, Objective
from stillery.train.settings import Storing, Training
from stillery.train.stage_clocks import spans_of
from stillery.train.step_plan import Needs, StageRows, StepPlan
from stillery.train.teacher import LiveTeacher, Teacher
from stillery.train.teacher_cache import offload as away
from stillery.train.teacher_cache.array_files import Rows, cast
from stillery.train.teacher_cache.cache import BLOCK, CPU_BLOCK, CPU_TOKENS, KIND, TeacherCache
from stillery.train.teacher_cache.cached_teacher import CachedTeacher
from stillery.train.teacher_cache.contents import CachedArray, array_rows, wanted_for
from stillery.train.teacher_cache.forward import ForwardPasses
from stillery.train.teacher_cache.offload import offload_to_disk, offload_to_host
from stillery.train.teacher_cache.stages import StageTeachers, stage_teachers
from stillery.train.teacher_cache.worthwhile import Estimate, teacher_seconds

StudentOf = Callable[..., PreTrainedModel]
ON = Storing(cache="on")
LIMIT = 10**9
FAST = Training(epochs=3, batch_size=16, lr=1e-3, log_every=1, keep="last")
EVERYTHING = frozenset(
    [CachedArray("logits"), CachedArray("feature", 4), CachedArray("first"), CachedArray("mean")]
    + [CachedArray(kind, layer) for kind in ("hidden", "query", "key", "value") for layer in (1, 4)]
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def many(tokenizer) -> TrainingData:
    """Sentences that fill three blocks, the last in part."""
    sentences = load_task("rotten-tomatoes").train.take(np.arange(0, 6600, 6))
    return TrainingData(examples=sentences, tokens=tokenise(sentences, tokenizer, 16), pad_id=0)


def store_of(teacher: Loaded, data: TrainingData, arrays, dtype: str = "fp32") -> TeacherCache:
    cache = find_cache()
    assert cache is not None
    return TeacherCache(
        cache, LiveTeacher(teacher.model), data, frozenset(arrays), dtype=dtype, accelerator=accelerator_for("fp32")
    )


def contents(store: TeacherCache) -> dict[CachedArray, bytes]:
    return {what: (file.folder / "values.bin").read_bytes() for what, file in store.files.items()}


@contextmanager
def counted(model: PreTrainedModel, stop_after: int | None = None) -> Iterator[list[int]]:
    """How many examples a model is shown in each call; it breaks down after so many calls."""
    seen: list[int] = []

    def look(_: torch.nn.Module, __: tuple, given: dict) -> None:
        if len(seen) == stop_after:
            raise KeyboardInterrupt
        seen.append(len(given["input_ids"]))

    handle = model.register_forward_pre_hook(look, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def teachers_of(
    objective: Objective, teacher: Loaded, data: TrainingData, storing: Storing = ON, epochs: int = 3
) -> dict[int, Teacher | None]:
    live = LiveTeacher(teacher.model)
    lengths = [epochs * 4] * len(objective.stages)
    spans = spans_of(objective.stages, Sources(data=data, teacher=live), lengths, window=16, seed=0, step=0)
    use = CacheUse(settings=storing)
    return stage_teachers(spans, objective, use, accelerator_for("fp32"), batch_size=16).teachers


def read(teacher: Teacher, batch: Batch, needs: Needs) -> dict[CachedArray, torch.Tensor] | None:
    return teacher.read(batch, needs)


def outputs(
    teacher: Teacher, batch: Batch, needs: Needs, mixed: Mixed | None = None,
    cached: dict[CachedArray, torch.Tensor] | None = None,
) -> Trace:  # fmt: skip
    """What a teacher gives a step that needs this of it, on plain examples or mixed ones."""
    view, stage = "plain" if mixed is None else "mixed", methods.build("kd").stages[0]
    plan = StepPlan(
        clock=Clock(),
        stage=stage,
        pairs=(),
        student={},
        teacher={view: needs},
        rows=StageRows((), "encoder"),
        weights={},
    )
    micro_batch = MicroBatch(batch=batch, share={}, mixed=mixed, places=torch.from_numpy(batch.index), cached=cached)
    return teacher.outputs(plan, micro_batch, view)


def losses(objective: Objective, teacher: Teacher, data: TrainingData, index: np.ndarray, clock: Clock) -> Losses:
    batch, plan = data.batch(index), objective.plan(clock)
    shown = {
        view: outputs(teacher, batch, needs, None, read(teacher, batch, needs)) for view, needs in plan.teacher.items()
    }
    share = dict.fromkeys(("examples", "tokens", "pairs"), 1.0)
    torch.manual_seed(5)
    return objective(plan, MicroBatch(batch=batch, share=share, places=torch.from_numpy(index)), shown)


def gradients(objective: Objective, total: torch.Tensor) -> torch.Tensor:
    objective.zero_grad()
    total.backward()
    found = [one.grad.flatten() for one in objective.parameters() if one.grad is not None]
    return torch.cat(found)


def rows_of(rows: Rows, store: TeacherCache, what: CachedArray, index: np.ndarray, longest: int) -> torch.Tensor:
    if what.of_tokens:
        found = rows.empty(len(index), longest, rows.width)
        rows.runs(store.order.starts[index], store.order.lengths[index], found)
    else:
        found = rows.empty(len(index), rows.width)
        rows.at(store.order.rank[index], found)
    return found


ROWS = [{CachedArray("logits"), CachedArray("first")}, {CachedArray("mean")}]
"""Arrays for which a teacher's states are shortened while it runs."""


@pytest.mark.parametrize(
    ("dtype", "arrays"),
    [("fp32", EVERYTHING), ("fp16", EVERYTHING), ("bf16", EVERYTHING), ("fp32", ROWS[0]), ("fp32", ROWS[1])],
    ids=["fp32", "fp16", "bf16", "first tokens alone", "means alone"],
)
def test_what_is_read_is_what_the_teacher_showed_bit_for_bit(
    dtype, arrays: set[CachedArray], teacher: Loaded, many: TrainingData
) -> None:
    store = store_of(teacher, many, arrays, dtype)
    assert store.fill(LIMIT) is None
    kept = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    for index in (store.order.batches(0)[0], store.order.batches(1)[3], store.order.batches(2)[-1]):
        inputs = many.batch(index, padded_to(store.accelerator.device)).inputs
        shown = store.teacher(inputs, {None: wanted_for(arrays, 4)})
        for what in arrays:
            wanted = array_rows(what, shown).to(torch.float32 if what.kind == "logits" else kept)
            found = rows_of(store.rows[what], store, what, index, inputs["input_ids"].shape[1])
            assert found.dtype == wanted.dtype
            if what.of_tokens:
                assert torch.equal(found[inputs["attention_mask"] == 1], wanted), what
                assert not found[inputs["attention_mask"] == 0].any()
            else:
                assert torch.equal(found, wanted), what


METHODS = [
    ("kd", {}, 0, {"logits"}),
    ("pkd", {}, 0, {"logits", "first"}),
    ("alp-kd", {}, 0, {"logits", "first"}),
    ("rail-kd", {}, 0, {"logits", "mean"}),
    ("rail-kd-concat", {}, 0, {"logits", "mean"}),
    ("layer-forward", {}, 0, {"logits", "hidden"}),
    ("tinybert", {}, 0, {"hidden", "query", "key"}),
    ("minilm", {}, 0, {"query", "key", "value"}),
]


@pytest.mark.parametrize(("name", "options", "stage", "kinds"), METHODS, ids=[row[0] for row in METHODS])
def test_losses_and_gradients_are_those_of_the_teacher(
    name, options, stage, kinds, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    objective = Objective(student_of(2), methods.build(name, options).stages, teacher=teacher_sizes, seed=0)
    reads = teachers_of(objective, teacher, data)[stage]
    assert isinstance(reads, CachedTeacher)
    assert {what.kind for what in reads.contents.arrays} == kinds
    random = np.random.default_rng(0)
    for epoch in range(3):
        index, clock = random.permutation(len(data))[:13], Clock(stage=stage, epoch=epoch, stage_steps=12)
        with counted(teacher.model) as seen:
            stored = losses(objective, reads, data, index, clock)
        assert not seen, "the teacher does not run"
        live = losses(objective, LiveTeacher(teacher.model), data, index, clock)
        for term, value in live.terms.items():
            # The attention of models this small is all but even; what is then left of a divergence is rounding.
            assert stored.terms[term].item() == pytest.approx(value.item(), rel=1e-5, abs=1e-9), term
        one, other = gradients(objective, stored.total), gradients(objective, live.total)
        assert float((one - other).norm()) <= 1e-5 * float(other.norm())


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["pkd", "rail-kd", "layer-forward"])
def test_half_precision_changes_losses_little(
    name, dtype, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    # A copy of the teacher would be so near that rounding is most of the distance.
    student = student_of(3, init="random")
    objective = Objective(student, methods.build(name).stages, teacher=teacher_sizes, seed=0)
    reads = teachers_of(objective, teacher, data, dataclasses.replace(ON, cache_dtype=dtype))[0]
    index = np.arange(0, 64, 4)
    stored, live = (losses(objective, one, data, index, Clock()) for one in (reads, LiveTeacher(teacher.model)))
    differences = [
        abs(stored.terms[term].item() / value.item() - 1) for term, value in live.terms.items() if term != "soft"
    ]
    assert 0 < max(differences) < {"fp16": 1e-3, "bf16": 8e-3}[dtype]
    assert stored.terms["soft"].item() == pytest.approx(live.terms["soft"].item(), rel=1e-5), "logits are kept in fp32"


@pytest.mark.parametrize("name", ["pkd", "rail-kd"])
def test_rows_of_another_half_precision_than_the_runs_are_shown(
    name, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    objective = Objective(student_of(3), methods.build(name).stages, teacher=teacher_sizes, seed=0)
    reads = teachers_of(objective, teacher, data, dataclasses.replace(ON, cache_dtype="fp16"))[0]
    batch, plan = data.batch(np.arange(8)), objective.plan(Clock())
    needs = plan.teacher["plain"]
    assert reads is not None
    # A run in bf16 keeps fp16, and torch's own promotion knows no third number format.
    with torch.autocast("cpu", torch.bfloat16):
        shown = outputs(reads, batch, needs, None, read(reads, batch, needs))
    found = shown.stack()
    assert {states.dtype for states in found.hidden.values()} == {torch.float16}
    assert found.mask.tolist() == [[1]] * 8
    share = dict.fromkeys(("examples", "tokens", "pairs"), 1.0)
    micro_batch = MicroBatch(batch=batch, share=share, places=torch.from_numpy(batch.index))
    terms = objective(plan, micro_batch, {"plain": shown}).terms
    assert all(value.dtype == torch.float32 and value.isfinite() for value in terms.values())


def test_values_too_large_for_fp16_are_not_kept(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, capsys
) -> None:
    objective = Objective(student_of(2), methods.build("pkd").stages, teacher=teacher_sizes, seed=0)
    with torch.no_grad():
        teacher.model.bert.encoder.layer[1].output.LayerNorm.bias += 1e5
    half = dataclasses.replace(ON, cache_dtype="fp16")
    assert isinstance(teachers_of(objective, teacher, data, half)[0], LiveTeacher)
    assert "does not fit fp16; use --cache-dtype bf16 or fp32" in capsys.readouterr().err


@pytest.mark.parametrize(("dtype", "largest"), [("fp16", 65504.0), ("bf16", 3e38), ("fp32", 3e38)])
def test_the_largest_number_of_a_format_fits_and_a_larger_one_does_not(dtype: str, largest: float) -> None:
    for value, fits in ((largest, True), (-largest, True), (2 * largest, False), (float("nan"), False)):
        rows = torch.tensor([[0.0, value], [1.0, 2.0]], dtype=torch.float64)
        there, found = cast(rows, dtype)
        assert there.dtype == {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
        assert bool(torch.isfinite(found)) == fits, value
        assert torch.equal(there, rows.to(there.dtype)) or not fits
    # What is kept as it is cannot be too large for it.
    assert torch.isfinite(cast(torch.full((1, 1), torch.inf), "fp32")[1])


@pytest.mark.usefixtures("verbose")
def test_methods_and_seeds_share_arrays(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, capsys
) -> None:
    for name, examples in (("pkd", 64), ("pkd", 0), ("kd", 0), ("layer-forward", 64)):
        objective = Objective(student_of(2), methods.build(name).stages, teacher=teacher_sizes, seed=0)
        with counted(teacher.model) as seen:
            teachers_of(objective, teacher, data)
        assert sum(seen) - 1 == examples, "but for one example that tells how wide arrays are"
    said = capsys.readouterr().err
    assert said.count("found whole") == 2 and said.count("to be filled") == 2


def test_another_teacher_other_texts_or_lengths_are_other_arrays(
    teacher: Loaded, tiny_teacher: Path, data: TrainingData, tokenizer
) -> None:
    def folders(loaded: Loaded, texts: TrainingData, dtype: str = "fp32") -> set[Path]:
        store = store_of(loaded, texts, {CachedArray("logits"), CachedArray("hidden", 2)}, dtype)
        return {file.folder for file in store.files.values()}

    first = folders(teacher, data)
    assert folders(load_classifier(str(tiny_teacher)), data) == first, "a name and a load make no difference"
    changed, head = load_classifier(str(tiny_teacher)), load_classifier(str(tiny_teacher))
    shorter = dataclasses.replace(data, tokens=tokenise(data.examples, tokenizer, 12))
    turned = data.examples.take(np.arange(len(data))[::-1])
    with torch.no_grad():
        changed.model.bert.encoder.layer[0].output.dense.bias[0] += 1e-3
        head.model.classifier.bias[0] += 1e-3
    others = [
        folders(changed, data),
        folders(teacher, shorter),
        folders(teacher, dataclasses.replace(data, examples=turned, tokens=tokenise(turned, tokenizer, 48))),
    ]
    assert all(first.isdisjoint(other) for other in others)
    assert len(first & folders(head, data)) == 1, "states do not depend on the head"
    assert len(first & folders(teacher, data, "fp16")) == 1, "logits are fp32 in any case"


def test_a_filling_that_was_cut_short_goes_on(teacher: Loaded, many: TrainingData) -> None:
    arrays = {CachedArray("logits"), CachedArray("hidden", 2)}
    store = store_of(teacher, many, arrays)
    batches = [len(store.order.batches(block)) for block in range(3)]
    with counted(teacher.model, stop_after=batches[0] + 3), pytest.raises(KeyboardInterrupt):
        store.fill(LIMIT)
    assert [file.missing() for file in store.files.values()] == [[1, 2], [1, 2]]
    with (store.files[CachedArray("logits")].folder / "blocks.txt").open("a") as lines:
        lines.write("1 0123")  # the line it was writing
    again = store_of(teacher, many, arrays)
    with counted(teacher.model) as seen:
        assert again.fill(LIMIT) is None
    assert len(seen) == sum(batches[1:])
    cut_short = contents(again)
    for file in again.files.values():
        (file.folder / "blocks.txt").unlink()
    assert again.fill(LIMIT) is None and contents(again) == cut_short


def test_a_teacher_that_is_ahead_of_the_writing_fills_the_same(teacher: Loaded, many: TrainingData) -> None:
    """As on a GPU, where the writing is in a thread."""
    arrays = {CachedArray("logits"), CachedArray("first")}
    store = store_of(teacher, many, arrays)
    store.on_cpu = False
    batches = [len(store.order.batches(block)) for block in range(3)]
    with counted(teacher.model, stop_after=sum(batches[:2])), pytest.raises(KeyboardInterrupt):
        store.fill(LIMIT)
    assert [file.missing() for file in store.files.values()] == [[2], [2]]
    assert store.fill(LIMIT) is None
    threaded = contents(store)
    for file in store.files.values():
        (file.folder / "blocks.txt").unlink()
    plain = store_of(teacher, many, arrays)
    assert plain.fill(LIMIT) is None and contents(plain) == threaded


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Looks are recorded and replayed, with a stand-in for CUDA graphs; the rows of each replay."""
    found: list[int] = []

    class Graph:
        def __init__(self, work, writes) -> None:
            self.work, self.writes = work, writes

        def replay(self) -> None:
            found.append(len(self.writes[0]))
            for there, new in zip(self.writes, self.work(), strict=True):
                with torch.inference_mode():
                    there.copy_(new)

    def recorded(work, pool, device) -> tuple[Graph, list[torch.Tensor]]:
        writes = [torch.full_like(one, torch.nan) for one in work()]
        return Graph(work, writes), writes

    monkeypatch.setattr("stillery.train.cuda.capture.recorded", recorded)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    records = ForwardPasses._records
    gpu = SimpleNamespace(_device=torch.device("cuda"))
    monkeypatch.setattr(ForwardPasses, "_records", lambda self, arrays: records(gpu, arrays))
    # What is fetched from a GPU is a copy, which the next replay does not write over.
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: tensor.clone())
    return found


def test_a_store_that_is_filled_by_replayed_looks_is_the_same(
    teacher: Loaded, many: TrainingData, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Every batch gets into the graphs and its own rows come back, also where blocks lack other arrays than others."""
    arrays = {CachedArray("logits"), CachedArray("first")}
    plain = store_of(teacher, many, arrays)
    assert plain.fill(LIMIT) is None
    expected, folders = contents(plain), {what: file.folder for what, file in plain.files.items()}
    replays = request.getfixturevalue("replays")
    for what, lacking in {CachedArray("logits"): {0, 1, 2}, CachedArray("first"): {1, 2}}.items():
        lines = (folders[what] / "blocks.txt").read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.strip() and int(line.split()[0]) not in lacking]
        (folders[what] / "blocks.txt").write_text("".join(kept))
        start, end = plain.files[what].span(min(lacking))[0], plain.files[what].span(2)[1]
        with (folders[what] / "values.bin").open("r+b") as file:
            file.seek(start)
            file.write(bytes(end - start))
    store = store_of(teacher, many, arrays)
    store.on_cpu = False
    assert store.fill(LIMIT) is None and contents(store) == expected
    assert len(replays) > 5 and not store.forward._repeated, "nothing recorded is kept"


def test_looks_at_tokens_are_not_recorded(teacher: Loaded, many: TrainingData, replays: list[int]) -> None:
    """There are not as many in each batch."""
    store = store_of(teacher, many, {CachedArray("logits"), CachedArray("hidden", 1)})
    assert store.fill(LIMIT) is None and not replays


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """A device that has no memory for more than so many examples at a time; how many it was asked for."""
    seen: list[int] = []
    show = ForwardPasses._run

    def look(self: ForwardPasses, inputs: Mapping[str, torch.Tensor], arrays: frozenset[CachedArray]) -> Trace:
        seen.append(len(inputs["input_ids"]))
        if seen[-1] > most:
            raise torch.cuda.OutOfMemoryError
        return show(self, inputs, arrays)

    monkeypatch.setattr(ForwardPasses, "_run", look)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return seen


def test_a_gpu_without_memory_is_no_reason_to_end(
    teacher: Loaded, many: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = as_on_a_gpu(monkeypatch, most=1)
    accelerator = accelerator_for("fp32")
    monkeypatch.setattr("stillery.train.teacher_cache.cache.TOKENS", 1024)
    # What tells it from a CPU: the accelerator's device.
    gpu = SimpleNamespace(
        device=SimpleNamespace(type="cuda"), is_main_process=True, num_processes=1, mixed_precision="no",
        autocast=accelerator.autocast,
    )  # fmt: skip
    cache = find_cache()
    assert cache is not None
    store = TeacherCache(
        cache, LiveTeacher(teacher.model), many, frozenset({CachedArray("logits")}), dtype="fp32", accelerator=gpu
    )
    assert seen[0] > 1 and seen[1:] == [1], "after the batch that would be filled first, a single example"
    assert store.order.pad_to == 8 and store.order.rule == [BLOCK, 1024, 8]
    plain = store_of(teacher, many, {CachedArray("logits")})
    assert plain.order.rule == [CPU_BLOCK, CPU_TOKENS], "a CPU pads to the longest"
    assert store.fill(LIMIT) == "the GPU has no memory for 1,024 tokens at a time, by which it is filled"
    assert store.files[CachedArray("logits")].missing() == [0]


def test_a_damaged_block_is_filled_again(teacher: Loaded, many: TrainingData, capsys) -> None:
    store = store_of(teacher, many, {CachedArray("logits"), CachedArray("mean")})
    store.fill(LIMIT)
    whole = contents(store)
    with (store.files[CachedArray("mean")].folder / "values.bin").open("r+b") as file:
        file.seek(store.files[CachedArray("mean")].span(1)[0] + 5)
        file.write(b"?")
    with counted(teacher.model) as seen:
        assert store.fill(LIMIT) is None
    assert sum(seen) == CPU_BLOCK and contents(store) == whole
    assert "damaged blocks of means of all layers: 1, filled again" in capsys.readouterr().err
    with (store.files[CachedArray("logits")].folder / "values.bin").open("r+b") as file:
        file.truncate(100)
    assert store.files[CachedArray("logits")].missing() == [0, 1, 2]
    assert store.fill(LIMIT) is None and contents(store) == whole


def test_what_another_teacher_showed_is_refused(
    teacher: Loaded, tiny_teacher: Path, many: TrainingData, capsys
) -> None:
    """Not even where its files lie in this one's folder, of the right size and with their own checksums."""
    other = load_classifier(str(tiny_teacher))
    with torch.no_grad():
        other.model.classifier.bias += 1.0
    theirs, ours = (store_of(one, many, {CachedArray("logits")}) for one in (other, teacher))
    theirs.fill(LIMIT)
    shutil.copytree(theirs.files[CachedArray("logits")].folder, ours.files[CachedArray("logits")].folder)
    with counted(teacher.model) as seen:
        assert ours.fill(LIMIT) is None
    assert sum(seen) == len(many) and contents(ours) != contents(theirs)
    assert "damaged blocks of logits: 3, filled again" in capsys.readouterr().err


def test_what_is_let_go_is_read_again(teacher: Loaded, many: TrainingData) -> None:
    store = store_of(teacher, many, EVERYTHING)
    store.fill(LIMIT)
    index = np.random.default_rng(0).permutation(len(many))[:50]
    longest = int(many.lengths[index].max())
    for what, file in store.files.items():
        wanted = rows_of(file.rows(), store, what, index, longest)
        assert torch.equal(rows_of(file.rows(resident=1), store, what, index, longest), wanted), what


FILLER = """
import sys
import numpy as np
import torch
from stillery.data.cache.folder import find_cache
from stillery.data.tasks.load_task import load_task
from stillery.data.tokens.encode import tokenise
from stillery.models.load_model import load_classifier
from stillery.train.trainable import TrainingData
from stillery.train.loop import accelerator_for
from stillery.train.teacher_cache.cache import TeacherCache
from stillery.train.teacher_cache.contents import CachedArray
from stillery.train.teacher import LiveTeacher
torch.set_num_threads(1)
teacher, seen = load_classifier(sys.argv[1]), []
sentences = load_task("rotten-tomatoes").train.take(np.arange(600))
data = TrainingData(examples=sentences, tokens=tokenise(sentences, teacher.tokenizer, 32), pad_id=0)
arrays = frozenset([CachedArray("logits"), CachedArray("hidden", 4)])
store = TeacherCache(find_cache(), LiveTeacher(teacher.model), data, arrays,
                     dtype="fp32", accelerator=accelerator_for("fp32"))
print("ready", flush=True)
sys.stdin.readline()
teacher.model.register_forward_pre_hook(lambda *_: seen.append(1))
assert store.fill(10**9) is None
print(len(seen))
"""


def test_of_two_processes_one_fills(teacher: Loaded, tiny_teacher: Path) -> None:
    start = [sys.executable, "-c", FILLER, str(tiny_teacher)]
    other = subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert other.stdin is not None and other.stdout is not None
    sentences = load_task("rotten-tomatoes").train.take(np.arange(600))
    tokens = tokenise(sentences, teacher.tokenizer, 32)
    store = store_of(
        teacher,
        TrainingData(examples=sentences, tokens=tokens, pad_id=0),
        {CachedArray("logits"), CachedArray("hidden", 4)},
    )
    assert other.stdout.readline() == "ready\n"
    other.stdin.write("go\n")
    other.stdin.flush()
    with counted(teacher.model) as seen:
        assert store.fill(LIMIT) is None
    ended, said = other.communicate(timeout=60)
    assert not other.returncode, said
    batches = sum(len(store.order.batches(block)) for block in (0, 1))
    assert sorted([len(seen), int(ended)]) == [0, batches]
    assert [file.missing() for file in store.files.values()] == [[], []]


@dataclasses.dataclass(frozen=True)
class Scene:
    """What eight processes at one store said at their end, and the folder of its arrays."""

    ended: dict[int, dict]
    folder: Path

    def written(self, key: str) -> list[int]:
        lines = (self.folder / key / "blocks.txt").read_text().split("\n")
        return [int(line.split()[0]) for line in lines if line]


@pytest.fixture(scope="module")
def scenes(tiny_teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    """What `fillers.py` says of each of its scenes."""
    folder = tmp_path_factory.mktemp("scenes")
    program = [sys.executable, str(Path(__file__).with_name("fillers.py")), str(tiny_teacher), str(folder)]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=300, env=os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        name: Scene({line["number"]: line for line in lines if line["scene"] == name}, folder / name / KIND)
        for name in ("together", "killed", "stopped")
    }


def test_of_runs_with_arrays_in_common_each_fills_some_and_none_waits_for_itself(scenes: dict[str, Scene]) -> None:
    scene = scenes["together"]
    assert sorted(scene.ended) == list(range(8))
    for line in scene.ended.values():
        assert line["error"] is None
        whole = max((scene.folder / key / "blocks.txt").stat().st_mtime for key in line["keys"])
        assert line["ended"] - whole < 5, "none waits longer than the filling takes"
    arrays = {key for line in scene.ended.values() for key in line["keys"]}
    assert len(arrays) == 7 and all(scene.written(key) == [0, 1, 2] for key in arrays), "no block is filled twice"


def test_what_a_killed_process_has_filled_is_filled_no_more(scenes: dict[str, Scene]) -> None:
    scene, whole = scenes["killed"], scenes["together"]
    assert sorted(scene.ended) == list(range(1, 8)) and all(line["error"] is None for line in scene.ended.values())
    for key in {key for line in scene.ended.values() for key in line["keys"]}:
        assert scene.written(key) == [0, 1, 2]
        assert (scene.folder / key / "values.bin").read_bytes() == (whole.folder / key / "values.bin").read_bytes()
    assert scene.ended[5]["seen"] in (0, 1100 - CPU_BLOCK), "those it had not come to, by whoever was first"


def test_a_stopped_process_holds_up_nobody_for_long(scenes: dict[str, Scene]) -> None:
    scene, whole = scenes["stopped"], scenes["together"]
    first = scene.ended.pop(0)
    for number, line in scene.ended.items():
        shared = set(line["keys"]) & set(first["keys"])
        if shared:
            assert f"for 4 s nothing was done by process {first['process']} on " in line["error"], number
            assert "(run 0, since " in line["error"] and "logits" in line["error"]
        else:
            assert line["error"] is None, number
    assert sum(line["error"] is None for line in scene.ended.values()) == 4
    # Woken up, it fills what it was at.
    assert first["error"] is None and first["seen"] == 1100
    for key in first["keys"]:
        assert scene.written(key) == [0, 1, 2]
        assert (scene.folder / key / "values.bin").read_bytes() == (whole.folder / key / "values.bin").read_bytes()


@pytest.fixture
def standstill(student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData) -> Iterator[None]:
    """Somebody has the turn at the tokens that `layer-forward` needs, and does nothing; the logits are whole."""
    objective = Objective(student_of(2), methods.build("layer-forward").stages, teacher=teacher_sizes, seed=0)
    stored = teachers_of(objective, teacher, data)[0]
    assert isinstance(stored, CachedTeacher)
    del stored
    store = store_of(teacher, data, {CachedArray("logits"), CachedArray("hidden", 4)})
    turn = Turn(store.files[CachedArray("hidden", 4)].folder, "runs/other")
    assert turn.take()
    (turn.folder / "blocks.txt").unlink()
    yield
    turn.let_go()


def test_a_run_does_not_wait_for_one_that_does_nothing(
    standstill: None, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData,
    monkeypatch: pytest.MonkeyPatch, capsys,
) -> None:  # fmt: skip
    monkeypatch.setenv("STILLERY_CACHE_WAIT", "1.5")
    kd, forward = (
        Objective(student_of(2), methods.build(name).stages, teacher=teacher_sizes, seed=0)
        for name in ("kd", "layer-forward")
    )
    assert isinstance(teachers_of(forward, teacher, data)[0], LiveTeacher)
    said = capsys.readouterr().err
    holder = f"process {os.getpid()} on "
    assert f"teacher cache: waiting for {holder}" in said
    assert f"teacher cache: off, for 1.5 s nothing was done by {holder}" in said
    assert "(runs/other, since 20" in said and "at tokens of layer 4; the teacher runs live" in said
    assert isinstance(teachers_of(kd, teacher, data)[0], CachedTeacher), "another array is no matter of theirs"
    assert "waiting" not in capsys.readouterr().err
    sources = Sources(data=data, teacher=LiveTeacher(teacher.model))
    spans = spans_of(forward.stages, sources, [12], window=16, seed=0, step=4)
    with pytest.raises(
        UserError, match=r"read from the teacher cache, which is not possible now: for 1\.5 s nothing was"
    ):
        stage_teachers(
            spans, forward, CacheUse(settings=ON), accelerator_for("fp32"), batch_size=16, step=4, before=[0]
        )
    assert "runs live" not in capsys.readouterr().err


def test_a_run_waits_for_one_that_is_slow(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it moves, however long that takes."""
    monkeypatch.setenv("STILLERY_CACHE_WAIT", "1")
    store = store_of(teacher, data, {CachedArray("logits")})
    assert store.fill(LIMIT) is None
    file, looked = store.files[CachedArray("logits")], []
    lines = (file.folder / "blocks.txt").read_text()
    (file.folder / "blocks.txt").unlink()
    turn = Turn(file.folder)
    assert turn.take()

    def moves_on(seconds: float) -> None:
        sleep(0.3)
        looked.append(seconds)
        turn.moved()
        if len(looked) == 8:
            (file.folder / "blocks.txt").write_text(lines)

    sleep = time.sleep
    monkeypatch.setattr("stillery.train.teacher_cache.turns.time.sleep", moves_on)
    with counted(teacher.model) as seen:
        assert store_of(teacher, data, {CachedArray("logits")}).fill(LIMIT) is None
    assert len(looked) == 8 and len(seen) == 1, "one example tells how wide the array is; its turn is not needed"
    turn.let_go()


def test_who_is_stopped_while_waiting_stops(standstill: None, teacher, data: TrainingData, monkeypatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    arrays = {CachedArray("first"), CachedArray("hidden", 4)}
    monkeypatch.setattr("stillery.train.teacher_cache.turns.time.sleep", interrupted)
    store = store_of(teacher, data, arrays)
    with pytest.raises(KeyboardInterrupt):
        store.fill(LIMIT)
    assert not store.files[CachedArray("first")].missing(), "what nobody was at is filled before"
    other = Turn(store.files[CachedArray("first")].folder)
    assert other.take(), "nothing is held"
    other.let_go()


@pytest.mark.usefixtures("verbose")
def test_the_limit_is_kept(student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, capsys) -> None:
    kd, forward = (
        Objective(student_of(2), methods.build(name).stages, teacher=teacher_sizes, seed=0)
        for name in ("kd", "layer-forward")
    )
    assert isinstance(teachers_of(kd, teacher, data)[0], CachedTeacher)
    tight = dataclasses.replace(ON, cache_limit=1e-5)
    assert isinstance(teachers_of(forward, teacher, data, tight)[0], LiveTeacher)
    assert "more than --cache-limit 1e-05 GB" in capsys.readouterr().err
    cache = find_cache()
    assert cache is not None
    logits = cache.entries()[0]
    assert logits.kind == KIND and logits.about == "logits, bert teacher, 64 examples"
    # There is room for another array of this size, not for two.
    other = Cache(folder=cache.folder, limit=cache.limit).place(KIND, "0" * 64)
    other.mkdir()
    (other / "values.bin").write_bytes(bytes(logits.bytes))
    os.utime(other, (0, 0))
    assert isinstance(teachers_of(kd, teacher, data, dataclasses.replace(ON, cache_limit=1e-6))[0], CachedTeacher)
    assert [entry.path for entry in cache.entries()] == [logits.path], "what was used longest ago made room"


def test_what_a_run_reads_is_not_removed(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, capsys
) -> None:
    kd, pkd = (
        Objective(student_of(2), methods.build(name).stages, teacher=teacher_sizes, seed=0) for name in ("kd", "pkd")
    )
    # 64 examples: 512 bytes of logits, 40,960 of the first tokens of the embedding and 4 layers, half of that in fp16.
    tight = dataclasses.replace(ON, cache_limit=5e-5)
    reading = teachers_of(pkd, teacher, data, dataclasses.replace(ON, cache_dtype="fp16"))[0]
    assert isinstance(teachers_of(pkd, teacher, data, tight)[0], LiveTeacher)
    assert "arrays that other runs read leave no room in --cache-limit 5e-05 GB" in capsys.readouterr().err
    cache = find_cache()
    assert cache is not None
    used = {rows.name for rows in cache.folder.glob("teacher/*")}
    assert cache.clear() == [] and {rows.name for rows in cache.folder.glob("teacher/*")} == used
    del reading
    assert isinstance(teachers_of(pkd, teacher, data, tight)[0], CachedTeacher)
    assert isinstance(teachers_of(kd, teacher, data, tight)[0], CachedTeacher)


def test_a_run_that_read_from_its_store_does_not_go_on_without(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = Objective(student_of(2), methods.build("pkd").stages, teacher=teacher_sizes, seed=0)
    sources = Sources(data=data, teacher=LiveTeacher(teacher.model))
    spans = spans_of(objective.stages, sources, [12], window=16, seed=0, step=4)
    accelerator = accelerator_for("fp32")

    def go_on(storing: Storing, before: list[int]) -> StageTeachers:
        use = CacheUse(settings=storing)
        return stage_teachers(spans, objective, use, accelerator, batch_size=16, step=4, before=before)

    assert isinstance(go_on(storing=ON, before=[0]).teachers[0], CachedTeacher)
    with pytest.raises(
        UserError, match="this run has read from the teacher cache, which is not possible now: more than"
    ):
        go_on(storing=dataclasses.replace(ON, cache_limit=1e-5), before=[0])
    monkeypatch.setenv("STILLERY_CACHE", "off")
    with pytest.raises(UserError, match="STILLERY_CACHE=off"):
        go_on(storing=ON, before=[0])
    assert isinstance(go_on(storing=ON, before=[]).teachers[0], LiveTeacher), "one that ran live continues so"


def test_a_whole_array_is_read_where_nothing_can_be_written(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = Objective(student_of(2), methods.build("pkd").stages, teacher=teacher_sizes, seed=0)
    teachers_of(objective, teacher, data)
    really, opened = Path.open, os.open

    def read_only(path: Path, mode: str = "r", *given, **named):
        if set(mode) & set("aw+x"):
            raise OSError(30, "Read-only file system")
        return really(path, mode, *given, **named)

    def read_only_too(path, flags: int, *given, **named) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(30, "Read-only file system")
        return opened(path, flags, *given, **named)

    monkeypatch.setattr(Path, "open", read_only)
    monkeypatch.setattr(os, "open", read_only_too)
    assert isinstance(teachers_of(objective, teacher, data)[0], CachedTeacher)


@pytest.mark.usefixtures("verbose")
def test_seeds_that_draw_other_layers_share_arrays(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, capsys
) -> None:
    live, seen = LiveTeacher(teacher.model), []
    for seed in range(4):
        objective = Objective(student_of(2), methods.build("rail-kd").stages, teacher=teacher_sizes, seed=seed)
        sources = Sources(data=data, teacher=live)
        spans = spans_of(objective.stages, sources, [12], window=16, seed=seed, step=0)
        chosen = stage_teachers(spans, objective, CacheUse(settings=ON), accelerator_for("fp32"), batch_size=16)
        reads = chosen.teachers[0]
        assert isinstance(reads, CachedTeacher)
        seen.append(reads.contents.layers)
        assert {what.kind for what in reads.contents.arrays} == {"logits", "mean"}
    assert len(set(seen)) > 1, "they do draw others"
    assert capsys.readouterr().err.count("found whole") == 3
    # Only the layers of a step are read.
    needs = objective.plan(spans[0].epoch_clocks()[0]).teacher["plain"]
    batch = data.batch(np.arange(5))
    shown = outputs(reads, batch, needs, None, read(reads, batch, needs)).stack()
    assert shown.hidden.keys() == set(needs[None].hidden) and len(shown.hidden) == 1


@pytest.mark.usefixtures("verbose")
def test_what_cannot_be_kept_is_asked_of_the_teacher(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, capsys
) -> None:
    def objective(recipe: Recipe) -> Objective:
        return Objective(student_of(2), recipe.stages, teacher=teacher_sizes, seed=0)

    stage = methods.build("pkd").stages[0]
    padded = dataclasses.replace(stage.matches[0], represent=represent.unmasked_pool)
    unmasked = objective(Recipe(stages=(dataclasses.replace(stage, matches=(padded,)),)))
    assert isinstance(teachers_of(unmasked, teacher, data)[0], LiveTeacher)
    assert "compares padding too (unmasked_pool)" in capsys.readouterr().err
    attention = teachers_of(objective(methods.build("tinybert")), teacher, data, Storing(cache="auto"))
    assert isinstance(attention[0], LiveTeacher)
    assert "--cache on caches them" in capsys.readouterr().err
    mixed = teachers_of(objective(methods.build("cr-ild")), teacher, data)
    assert isinstance(mixed[0], LiveTeacher) and isinstance(mixed[1], CachedTeacher)
    assert "runs its teacher on mixed examples alone" in capsys.readouterr().err
    assert isinstance(teachers_of(objective(methods.build("pkd")), teacher, data, Storing(cache="off"))[0], LiveTeacher)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("one", "other", "kinds"),
    [("pool", "tokens", {"hidden"}), ("pool", "cls", {"hidden", "first"}), ("cls", "tokens", {"hidden", "first"})],
)
def test_rows_beside_tokens(
    one, other, kinds, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    """A mean is made again from tokens where any are kept; a first token stands beside them."""
    stage = methods.build("pkd").stages[0]
    matches = [
        dataclasses.replace(stage.matches[0], name=name, represent=getattr(represent, shown), pair=pair)
        for name, shown, pair in (("a", one, partial(pairings.skip, include_last=True)), ("b", other, pairings.last))
    ]
    objective = Objective(
        student_of(2), [dataclasses.replace(stage, matches=tuple(matches))], teacher=teacher_sizes, seed=0
    )
    reads = teachers_of(objective, teacher, data)[0]
    assert isinstance(reads, CachedTeacher) and {what.kind for what in reads.contents.arrays} == {"logits", *kinds}
    index = np.arange(3, 60, 7)
    stored, live = (losses(objective, each, data, index, Clock()) for each in (reads, LiveTeacher(teacher.model)))
    for term, value in live.terms.items():
        assert stored.terms[term].item() == pytest.approx(value.item(), rel=1e-5), term


def test_what_was_not_planned_is_asked_of_the_teacher(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    objective = Objective(student_of(2), methods.build("pkd").stages, teacher=teacher_sizes, seed=0)
    reads, index = teachers_of(objective, teacher, data)[0], np.arange(8)
    assert isinstance(reads, CachedTeacher) and reads.contents.layers == {("hidden", 2)}
    batch, needs = data.batch(index), {None: Wanted(hidden=[2])}
    kept = read(reads, batch, needs)
    with counted(teacher.model) as seen:
        outputs(reads, batch, needs, None, kept)
        assert not seen
        others = {None: Wanted(hidden=[3])}
        outputs(reads, batch, others, None, read(reads, batch, others))
        outputs(reads, batch, needs, Mixed(lam=0.3, partner=torch.arange(8).flip(0)), kept)
        outputs(reads, batch, needs, None, None)
    assert seen == [8, 8, 8]


def test_a_teacher_that_is_put_away_still_answers(tmp_path: Path, teacher, student_of: StudentOf, batch) -> None:
    student = student_of(2)
    student.classifier = teacher.model.classifier
    before = teacher.model(**batch.inputs).logits
    head, layers = teacher.model.classifier.weight.data_ptr(), teacher.model.bert.encoder.layer[0].output.dense.weight
    place = layers.data_ptr()
    offload_to_disk(teacher.model, tmp_path, {id(one) for one in student.parameters()})
    assert layers.data_ptr() != place and teacher.model.classifier.weight.data_ptr() == head
    assert torch.equal(teacher.model(**batch.inputs).logits, before)
    assert not list(tmp_path.iterdir()), "the file has no name"


def test_a_teacher_comes_home_to_the_weights_it_left(teacher, student_of: StudentOf, batch) -> None:
    student, live = student_of(2), LiveTeacher(copy.deepcopy(teacher.model))
    before = live.model(**batch.inputs).logits
    places = {name: weight.data_ptr() for name, weight in live.model.named_parameters()}
    live.bring(torch.device("meta"), may_offload=True)
    assert {name: live.host_weights[name].data_ptr() for name in places} == places
    # Back on the only device there is here, with weights of zeros: what is right afterwards came from home.
    live.model.to_empty(device="cpu")
    live.model.load_state_dict({name: torch.zeros_like(weight) for name, weight in live.host_weights.items()})
    for name, buffer in teacher.model.named_buffers():
        live.model.get_buffer(name).copy_(buffer)
    student.classifier = live.model.classifier
    offload_to_host(live, {id(one) for one in student.parameters()})
    assert not student.classifier.weight.any(), "what a student shares stays"
    offload_to_host(live)
    assert {name: weight.data_ptr() for name, weight in live.model.named_parameters()} == places, "nothing is copied"
    assert torch.equal(live.model(**batch.inputs).logits, before)


def test_only_a_teacher_that_nobody_asks_goes_home(
    monkeypatch: pytest.MonkeyPatch, teacher, student_of: StudentOf, teacher_sizes, tmp_path: Path
) -> None:
    gone: list[LiveTeacher] = []
    monkeypatch.setattr(away, "offload_to_host", lambda one, but: gone.append(one))
    lives = [LiveTeacher(copy.deepcopy(teacher.model)) for _ in range(2)]
    for one in lives:
        one.host_weights.update(one.model.state_dict())
    stored = CachedTeacher(live=lives[0], contents=None, rows={}, order=None, frame=None)
    kd = methods.build("kd").stages[0]
    objective = Objective(student_of(2), (kd, kd), teacher=teacher_sizes, seed=0)
    elsewhere = SimpleNamespace(device=torch.device("meta"))
    with away.idle_teachers_offloaded({0: stored, 1: lives[1]}, objective, elsewhere, tmp_path):
        assert gone == [lives[0]] and lives[0].host_weights and not lives[1].host_weights
    assert lives[0].model.device.type == "meta", "it is brought back"
    # One model that is read in one stage and runs in another stays.
    stored = CachedTeacher(live=LiveTeacher(lives[1].model), contents=None, rows={}, order=None, frame=None)
    with away.idle_teachers_offloaded({0: stored, 1: lives[1]}, objective, elsewhere, tmp_path):
        assert len(gone) == 1


def test_a_teacher_that_stays_or_is_here_already_leaves_nothing_behind(teacher) -> None:
    for device, may_offload in (("meta", False), ("cpu", True)):
        live = LiveTeacher(copy.deepcopy(teacher.model))
        live.bring(torch.device(device), may_offload=may_offload)
        assert not live.host_weights and live.model.device.type == device


@pytest.mark.usefixtures("verbose")
def test_auto_measures_and_says(
    student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, capsys
) -> None:
    objective = Objective(student_of(2), methods.build("kd").stages, teacher=teacher_sizes, seed=0)
    auto = Storing()
    assert isinstance(teachers_of(objective, teacher, data, auto, epochs=1)[0], LiveTeacher)
    assert "off, 0.0 MB (fp32; logits) for 64 examples: no example is seen twice" in capsys.readouterr().err
    assert isinstance(teachers_of(objective, teacher, data, auto, epochs=2)[0], LiveTeacher)
    assert "s live" in capsys.readouterr().err, "little is saved"
    assert isinstance(teachers_of(objective, teacher, data, auto, epochs=100_000)[0], CachedTeacher)
    assert "teacher cache: on" in capsys.readouterr().err
    live = LiveTeacher(teacher.model)
    assert 0 < teacher_seconds(live, data, {}, 16, accelerator_for("fp32")) < 1
    assert not Estimate(live=3.0, stored=2.0).worth_it and not Estimate(live=200.0, stored=185.0).worth_it
    assert Estimate(live=30.0, stored=15.0).worth_it


class Broken(Exception):
    """A run that ends in the middle."""


@pytest.mark.parametrize(("name", "scorings"), [("rail-kd", 2), ("rail-kd", 1), ("tinybert", 1)])
def test_a_run_reads_the_same_as_live_and_goes_on_exactly(
    name, scorings, tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    def run(folder: str, storing: Storing | None, score=None, resume: bool = False) -> dict[str, torch.Tensor]:
        objective = Objective(student_of(2), methods.build(name).stages, teacher=teacher_sizes, seed=0)
        (tmp_path / folder).mkdir(exist_ok=True)
        train(
            objective,
            Sources(data=data, teacher=LiveTeacher(teacher.model)),
            dataclasses.replace(FAST, checkpoint_every=3, eval_every=2),
            accelerator=accelerator_for("fp32"),
            folder=tmp_path / folder,
            resume=resume,
            cache=None if storing is None else CacheUse(settings=storing),
            monitoring=Monitoring(score=score),
        )
        return objective.state_dict()

    scored: list[int] = []

    def breaks(_: PreTrainedModel) -> dict[str, float]:
        scored.append(1)
        if len(scored) == scorings:
            raise Broken
        return {"accuracy": 0.0}

    live, stored = run("live", None), run("stored", ON)
    for key, value in live.items():
        torch.testing.assert_close(stored[key], value, atol=1e-4, rtol=0, msg=key)
    with pytest.raises(Broken):
        run("broken", ON, breaks)
    # What it began with counts, not what would now be decided.
    with counted(teacher.model) as seen:
        resumed = run("broken", Storing(cache="auto"), resume=True)
    assert sum(seen) <= 2
    assert all(torch.equal(resumed[key], value) for key, value in stored.items())
