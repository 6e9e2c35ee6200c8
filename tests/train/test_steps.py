"""What steps are made of: micro-batches prepared ahead, losses read back late, and which steps are the same one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from stillery import methods
from stillery.data.tokens.batches import padded_to
from stillery.data.tokens.encode import tokenise
from stillery.errors import Stopped
from stillery.models.family import Sizes
from stillery.models.load_model import Loaded
from stillery.recipe import Clock
from stillery.train import checkpoint
from stillery.train import deferred_losses as telling
from stillery.train.cuda.graph_step import Graphs, packed, same_step, tensors_of, why_not
from stillery.train.loop import CacheUse, Monitoring, Sources, TrainingData, accelerator_for, train
from stillery.train.microbatches import MicroBatch, split_window
from stillery.train.objective import Objective
from stillery.train.optimiser import set_rate
from stillery.train.prefetch import consume, prefetch
from stillery.train.settings import Storing, Training
from stillery.train.step_losses import StepLosses, finite
from stillery.train.teacher import LiveTeacher
from stillery.train.teacher_cache.contents import CachedArray
from stillery.verbosity import Verbosity, verbosity_as

StudentOf = Callable[..., PreTrainedModel]


@pytest.fixture
def data(sentences, tokenizer) -> TrainingData:
    return TrainingData(examples=sentences, tokens=tokenise(sentences, tokenizer, 16), pad_id=0)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_what_was_made_is_used_in_order_and_let_go_by_who_made_it(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []
    asked: list[object] = []
    submit = ThreadPoolExecutor.submit

    def kept(pool: ThreadPoolExecutor, work: Callable[..., object], *given: object) -> object:
        # A thread may hold what it was asked for longer than it works on it.
        asked.append(given)
        return submit(pool, work, *given)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", kept)

    class One:
        def __init__(self, number: int) -> None:
            self.number = number

        def __del__(self) -> None:
            gone.append(threading.current_thread().name)

    used: list[int] = []
    threads: set[str] = set()

    def use(one: One) -> bool:
        time.sleep(0.002 * (one.number % 3))
        used.append(one.number)
        threads.add(threading.current_thread().name)
        return True

    def made() -> Iterator[One]:
        for number in range(20):
            assert number - len(used) <= depth + 1, "at most so many are held"
            yield One(number)

    assert consume(made(), use, depth) is True
    assert used == list(range(20)) and len(threads) == 1
    here = threading.current_thread().name
    assert gone == [here] * 20 and (threads == {here}) is (depth == 0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("behind")]


@pytest.mark.parametrize(("making", "using"), [(0.0, 0.01), (0.02, 0.0)], ids=["slow using", "slow making"])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_nothing_is_used_after_what_failed(depth: int, making: float, using: float) -> None:
    used: list[int] = []

    def made(first: int) -> Iterator[int]:
        for number in range(first, 100):
            time.sleep(making)
            yield number

    def use(number: int) -> bool:
        time.sleep(using)
        used.append(number)
        if number == 12:
            raise OSError("full")
        return number != 2

    assert consume(made(0), use, depth) is False and used == [0, 1, 2]
    with pytest.raises(OSError, match="full"):
        consume(made(10), use, depth)
    assert used == [0, 1, 2, 10, 11, 12]


def test_what_was_made_before_an_error_is_used() -> None:
    used: list[int] = []

    def made() -> Iterator[int]:
        yield from range(3)
        raise KeyboardInterrupt

    def use(number: int) -> bool:
        time.sleep(0.01)
        used.append(number)
        return True

    with pytest.raises(KeyboardInterrupt):
        consume(made(), use, 2)
    assert used == [0, 1, 2]


@pytest.mark.parametrize("depth", [0, 1, 3, 20])
def test_steps_come_in_order_however_many_are_prepared_ahead(depth: int) -> None:
    assert list(prefetch(lambda step: step * step, range(7), depth)) == [step * step for step in range(7)]


def test_no_more_steps_are_prepared_than_asked_for() -> None:
    made: list[int] = []
    steps = prefetch(lambda step: made.append(step) or step, range(100), 3)
    assert [next(steps), next(steps)] == [0, 1]
    steps.close()
    assert len(made) <= 5
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_what_breaks_while_preparing_breaks_where_the_step_is_taken() -> None:
    def prepare(step: int) -> int:
        if step == 2:
            raise Stopped("example 2 is missing")
        return step

    steps = prefetch(prepare, range(5), 4)
    assert [next(steps), next(steps)] == [0, 1]
    with pytest.raises(Stopped, match="example 2"):
        next(steps)


def said(step: int, *values: float) -> StepLosses:
    one = StepLosses(step)
    one.add(["hard", "soft"], torch.tensor(values), [f"a{step}", f"b{step}"])
    return one


def test_the_first_step_without_a_finite_loss_is_named() -> None:
    pending = [said(1, 3.0, 1.0, 2.0), said(2, 3.0, 1.0, float("nan")), said(3, 3.0, float("inf"), 2.0)]
    with pytest.raises(Stopped, match=r"^lower the learning rate .* step 2 .* soft is not finite, on examples a2, b2$"):
        finite(pending)
    assert finite([said(1, 3.0, 1.0, 2.0)]) == [{"loss": 3.0, "hard": 1.0, "soft": 2.0}]


def test_the_parts_of_a_step_are_added_up() -> None:
    one = said(1, 3.0, 1.0, 2.0)
    one.add(["hard", "soft"], torch.tensor([0.5, 0.25, 0.25]), ["c"])
    assert one.numbers() == {"loss": 3.5, "terms": {"hard": 1.25, "soft": 2.25}}


def part_of(data: TrainingData, index: np.ndarray, clock: Clock, layers: tuple[int, ...] | None) -> MicroBatch:
    (part,) = split_window(data, index, 64, clock, None, accelerator_for("fp32"))
    if layers is None:
        return part
    kept = {CachedArray("mean", layer): torch.full((len(index), 8), float(layer)) for layer in layers}
    return replace(part, cached=kept | {CachedArray("logits"): torch.zeros(len(index), 2)})


def test_a_cpu_pads_to_the_longest_text_and_a_gpu_to_a_multiple_of_8(data: TrainingData) -> None:
    # Of the texts whose length is no multiple of 8 the longest, and shorter ones.
    index = np.flatnonzero(data.lengths < 16)
    longest = int(data.lengths[index].max())
    assert longest % 8
    part = part_of(data, index, Clock(), None)
    assert {values.shape[1] for values in part.batch.inputs.values()} == {longest}
    assert data.batch(index, padded_to(torch.device("cuda"))).inputs["input_ids"].shape[1] == -(-longest // 8) * 8


def layers_at(objective: Objective, clock: Clock) -> tuple[int, ...]:
    (match,) = objective.stages[0].matches
    return tuple(layer for _, layer in match.pairs(*objective.between[0][None].depths, clock))  # type: ignore[misc]


def test_layers_drawn_anew_are_the_same_step_if_all_of_them_were_kept(
    student_of: StudentOf, teacher_sizes: Sizes, data: TrainingData
) -> None:
    objective = Objective(student_of(2), methods.build("rail-kd").stages, teacher=teacher_sizes, seed=0)
    first, other = Clock(epoch=0), next(
        clock for clock in (Clock(epoch=epoch) for epoch in range(1, 50))
        if layers_at(objective, clock) != layers_at(objective, Clock(epoch=0))
    )  # fmt: skip
    index = np.arange(8)
    steps = {}
    for kept in (True, False):
        for clock in (first, other):
            part = part_of(data, index, clock, layers_at(objective, clock) if kept else None)
            steps[kept, clock.epoch] = *same_step(objective.plan(clock), part), part
    assert steps[True, first.epoch][0] == steps[True, other.epoch][0]
    assert steps[False, first.epoch][0] != steps[False, other.epoch][0]
    # The rows of a pair's layer are found under the same name, whichever layer that is.
    named = [tensors_of(part, slots) for _, slots, part in (steps[True, first.epoch], steps[True, other.epoch])]
    assert named[0].keys() == named[1].keys()
    for clock, tensors in zip((first, other), named, strict=True):
        layers = layers_at(objective, clock)
        assert [tensors["mean", slot][0, 0] for slot in range(len(layers))] == list(layers)


def test_steps_of_other_sizes_are_other_steps(
    student_of: StudentOf, teacher_sizes: Sizes, data: TrainingData, tokenizer
) -> None:
    objective = Objective(student_of(2), methods.build("pkd").stages, teacher=teacher_sizes, seed=0)
    clock = Clock()
    data = replace(data, tokens=tokenise(data.examples, tokenizer, 64))
    short, long = np.argsort(data.lengths, kind="stable")[:8], np.argsort(data.lengths, kind="stable")[-8:]
    keys = [
        same_step(objective.plan(clock), part_of(data, index, clock, None))[0]
        for index in (short, long, long[:7], long)
    ]
    assert keys[1] == keys[3]
    assert len(set(keys)) == 3


def test_what_cannot_be_recorded_is_said(
    student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData, tmp_path: Path, capsys
) -> None:
    objective = Objective(student_of(2), methods.build("kd").stages, teacher=teacher_sizes, seed=0)
    accelerator = accelerator_for("fp32")
    if accelerator.device.type == "cpu":
        assert why_not(objective, 0, Training(), accelerator) == "this run is not on a CUDA device"
        settings = Training(epochs=1, batch_size=32, graph="on", keep="last")
        train(
            objective, Sources(data=data, teacher=LiveTeacher(teacher.model)), settings, accelerator=accelerator,
            folder=tmp_path,
        )  # fmt: skip
        assert "CUDA graphs: off, this run is not on a CUDA device" in capsys.readouterr().err


def test_a_packed_step_is_unpacked_to_the_same_bits(student_of: StudentOf, teacher_sizes: Sizes, data) -> None:
    objective = Objective(student_of(2), methods.build("pkd").stages, teacher=teacher_sizes, seed=0)
    part = part_of(data, np.arange(8), Clock(), None)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        kept = {CachedArray("first", layer): torch.randn(6, 8).t().to(dtype) for layer in (2, 4)}
        whole = packed(objective.plan(Clock()), replace(part, cached=kept))
        found, memory = whole.unpacked(torch.device("cpu"))
        memory.copy_(whole.memory)
        for name, tensor in tensors_of(whole.micro_batch, whole.slots).items():
            assert torch.equal(tensors_of(found, whole.slots)[name], tensor), name


def test_what_a_teacher_reads_with_its_own_tokenizer_is_packed_too(
    student_of: StudentOf, teacher_sizes: Sizes, data
) -> None:
    objective = Objective(student_of(2), methods.build("kd").stages, teacher=teacher_sizes, seed=0)
    part = part_of(data, np.arange(8), Clock(), None)
    theirs = {"input_ids": torch.arange(40).view(8, 5), "attention_mask": torch.ones(8, 5, dtype=torch.long)}
    part = replace(part, batch=replace(part.batch, teacher=theirs))
    whole = packed(objective.plan(Clock()), part)
    found, memory = whole.unpacked(torch.device("cpu"))
    memory.copy_(whole.memory)
    assert all(torch.equal(found.batch.teacher_inputs[name], tensor) for name, tensor in theirs.items())
    assert torch.equal(found.batch.inputs["input_ids"], part.batch.inputs["input_ids"])
    # A step of another length of the teacher's alone is another step.
    longer = {name: torch.cat([tensor, tensor], dim=1) for name, tensor in theirs.items()}
    other = replace(part, batch=replace(part.batch, teacher=longer))
    assert packed(objective.plan(Clock()), other).key != whole.key


def test_a_replayed_step_is_random_as_its_clock_says() -> None:
    writes = torch.zeros(3)
    recorded = SimpleNamespace(
        reads=torch.zeros(4, dtype=torch.uint8),
        graph=SimpleNamespace(replay=lambda: writes.copy_(torch.rand(3))),
        names=["hard"],
        writes=writes,
    )
    graphs = Graphs(SimpleNamespace(accelerator=SimpleNamespace(device=torch.device("cpu"), process_index=0)))
    part = SimpleNamespace(batch=SimpleNamespace(ids=["a"]))
    steps = [
        SimpleNamespace(
            memory=torch.zeros(4, dtype=torch.uint8), micro_batch=part, plan=SimpleNamespace(clock=Clock(step=step))
        )
        for step in (1, 1, 2)
    ]
    values = [graphs._replay(recorded, one).values[0] for one in steps]
    assert torch.equal(values[0], values[1]) and not torch.equal(values[0], values[2])


@pytest.mark.parametrize(
    ("error", "ends"),
    [(RuntimeError("it waits\nfor the GPU"), "losses"), (KeyboardInterrupt(), "losses"), (RuntimeError("x"), "end")],
    ids=["cannot be recorded", "is stopped", "cannot end"],
)
def test_a_recording_that_fails_is_ended_and_leaves_nothing_behind(
    error: BaseException, ends: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """With a stand-in for CUDA: the stream and the generator are those of every later run of the process."""
    happened: list[object] = []

    class Graph:
        def capture_begin(self, pool: object, capture_error_mode: str) -> None:
            # Threads that read ahead continue as they did.
            assert pool == "pool" and capture_error_mode == "thread_local" and happened[-1] == "waited"
            happened.append("begins")

        def capture_end(self) -> None:
            happened.append("ends")
            if ends == "end":
                raise error

    class Generator:
        def graphsafe_get_state(self) -> str:
            return "fresh"

        def graphsafe_set_state(self, state: str) -> None:
            happened.append(state)

    def losses(plan: object, part: object) -> SimpleNamespace:
        if ends == "losses":
            raise error
        return SimpleNamespace(terms={"hard": torch.tensor(1.0)}, total=torch.tensor(1.0))

    cuda = torch.cuda
    monkeypatch.setattr(cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(cuda, "synchronize", lambda: happened.append("waited"))
    monkeypatch.setattr(cuda, "current_device", lambda: 0)
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        call = partial(lambda name, number, pool: happened.append((name, number, pool)), name)
        monkeypatch.setattr(torch._C, name, call, raising=False)
    monkeypatch.setattr(cuda, "default_generators", [Generator()])
    monkeypatch.setattr(torch, "Generator", lambda device: Generator())
    step = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu")), losses=losses, backward=lambda losses: None,
        update=lambda: torch.tensor(1.0),
        optimiser=SimpleNamespace(zero_grad=lambda set_to_none: happened.append("no gradients")),
    )  # fmt: skip
    graphs, one = Graphs(step), SimpleNamespace(plan="plan", unpacked=lambda device: ("part", "reads"))
    if isinstance(error, Exception):
        with verbosity_as(Verbosity.VERBOSE):
            assert graphs._record(one) is None and graphs.refused
        assert (
            f"CUDA graphs: off, this step cannot be recorded ({str(error).splitlines()[0]})" in capsys.readouterr().err
        )
    else:
        with pytest.raises(KeyboardInterrupt):
            graphs._record(one)
        assert not graphs.refused
    memory = [("_cuda_endAllocateToPool", 0, "pool"), ("_cuda_releasePool", 0, "pool")]
    assert happened == ["no gradients", "waited", "begins", "ends", *memory, "fresh", "no gradients"]


def _lines(folder: Path) -> list[dict]:
    found = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    # What guards measure is written at once, losses when they arrive; steps order both.
    found.sort(key=lambda one: (one["step"], one["event"]))
    return [{name: value for name, value in one.items() if name != "seconds"} for one in found]


def test_a_device_that_is_behind_has_the_same_log(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Training(epochs=3, batch_size=16, lr=1e-3, log_every=1, checkpoint_every=3, keep="last")

    def run(folder: Path) -> list[dict]:
        folder.mkdir()
        objective = Objective(student_of(2), methods.build("kd").stages, teacher=teacher_sizes, seed=0)
        train(
            objective, Sources(data=data, teacher=LiveTeacher(teacher.model)), settings,
            accelerator=accelerator_for("fp32"), folder=folder,
            monitoring=Monitoring(score=lambda _: {"accuracy": 1.0}),
        )  # fmt: skip
        return _lines(folder)

    expected = run(tmp_path / "at once")
    made, save, stop = telling.DeferredLosses.__init__, checkpoint.save, telling.finite
    saved: list[tuple[int, int]] = []
    looked: list[int] = []

    def made_behind(self: telling.DeferredLosses, accelerator: Accelerator) -> None:
        made(self, accelerator)
        self.every_step = False

    def spied_save(folder: Path, objective: Objective, optimiser: object, progress: checkpoint.Progress) -> None:
        saved.append((progress.step, _lines(folder)[-1]["step"]))
        save(folder, objective, optimiser, progress)

    def spied_stop(steps: list[StepLosses]) -> list[dict[str, float]]:
        looked.extend(one.step for one in steps)
        return stop(steps)

    monkeypatch.setattr(telling.DeferredLosses, "__init__", made_behind)
    monkeypatch.setattr(telling.Reading, "arrived", property(lambda _: False))
    monkeypatch.setattr(checkpoint, "save", spied_save)
    monkeypatch.setattr(telling, "finite", spied_stop)
    assert run(tmp_path / "behind") == expected
    assert looked == list(range(1, looked[-1] + 1)), "every step is looked at, once"
    an_epoch = looked[-1] // 3
    logged = [one["epoch"] for one in expected if one["event"] == "train"]
    assert logged == [1 + (step - 1) // an_epoch for step in looked]
    assert saved and all(step == last for step, last in saved), "what a checkpoint has behind it is written down"


def test_every_group_has_the_rate_that_is_set() -> None:
    def groups(*rates: float | torch.Tensor) -> torch.optim.SGD:
        return torch.optim.SGD([{"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate} for rate in rates])

    shared = torch.tensor(1.0)
    for optimiser in (groups(1.0, 2.0), groups(torch.tensor(1.0), torch.tensor(2.0)), groups(shared, shared, 3.0)):
        kept = [group["lr"] for group in optimiser.param_groups]
        set_rate(optimiser, 0.25)
        assert [float(group["lr"]) for group in optimiser.param_groups] == [0.25] * len(kept)
        for before, group in zip(kept, optimiser.param_groups, strict=True):
            assert group["lr"] is before or not isinstance(before, torch.Tensor), "a recorded step reads that tensor"


@pytest.mark.parametrize(("cache", "may_offload"), [(None, False), ("off", False), ("auto", True), ("on", True)])
def test_training_reads_no_masks_and_keeps_at_home_only_what_may_come_back(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data, cache: str | None,
    may_offload: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    brought: list[bool] = []
    bring = LiveTeacher.bring

    def spied(self: LiveTeacher, device: torch.device, *, may_offload: bool) -> None:
        brought.append(may_offload)
        bring(self, device, may_offload=may_offload)

    def score(_: PreTrainedModel) -> dict[str, float]:
        assert isinstance(ALL_MASK_ATTENTION_FUNCTIONS["sdpa"], partial)
        return {"accuracy": 1.0}

    monkeypatch.setattr(LiveTeacher, "bring", spied)
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))
    objective = Objective(student_of(2), methods.build("kd").stages, teacher=teacher_sizes, seed=0)
    train(
        objective, Sources(data=data, teacher=LiveTeacher(teacher.model)),
        Training(epochs=1, batch_size=16, keep="last"), accelerator=accelerator_for("fp32"), folder=tmp_path,
        cache=None if cache is None else CacheUse(settings=Storing(cache=cache)), monitoring=Monitoring(score=score),
    )  # fmt: skip
    assert brought == [may_offload]
    assert not isinstance(ALL_MASK_ATTENTION_FUNCTIONS["sdpa"], partial)
