"""The speed benchmark runs in a tiny setting, and its sides train on the same losses; how fast is not tested."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def modules() -> Iterator[Callable[[str], ModuleType]]:
    """Modules of benchmarks, in this process."""
    for folder in (BENCHMARKS, BENCHMARKS / "peers"):
        sys.path.insert(0, str(folder))
    yield importlib.import_module
    for folder in (BENCHMARKS, BENCHMARKS / "peers"):
        sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def inputs(modules: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, tokens and models of a batch of 16, without dropout."""
    folder = tmp_path_factory.mktemp("speed")
    speed_inputs = modules("speed_inputs")
    speed_inputs.prepare(folder)
    return speed_inputs.made(folder, "tiny", 16)


@pytest.fixture
def answer(
    modules: Callable[[str], ModuleType], inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Train by a peer, two epochs of one step, in this process."""

    def train(peer: str, **changes: Any) -> dict[str, Any]:
        monkeypatch.setenv("STILLERY_CACHE", "")
        job = modules("job").Job(**{"inputs": str(inputs), "method": "pkd", "epochs": 2} | changes)
        return modules(f"{peer}_peer").train(job)

    return train


@pytest.fixture
def ours(answer: Callable[..., dict[str, Any]]) -> dict[str, float]:
    """The losses of stillery's first step, the teacher asked live."""
    return answer("stillery", cache="off")["first"]


@pytest.mark.slow
def test_the_command_compares_sides(
    modules: Callable[[str], ModuleType],
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sides = ["--only", "runs", "--methods", "pkd", "--sides", "stillery"]
    places = ["--inputs", str(inputs.parent), "--json", str(tmp_path / "out" / "s.json")]
    monkeypatch.setattr(sys, "argv", ["speed.py", "--tiny", "--device", "cpu", *sides, *places])
    monkeypatch.setenv("STILLERY_CACHE", "")
    modules("speed").main()
    found = json.loads((tmp_path / "out" / "s.json").read_text())
    (bench,) = found["benches"]
    assert bench["sides"].keys() == {"stillery finetune", "stillery pkd, fp32", "stillery pkd, fp32, teacher live"}
    assert all(len(one["epochs"]) == 2 and one["steps"] == 2 for (one,) in bench["sides"].values())
    assert [ratio["value"] > 0 for ratio in found["ratios"]] == [True] * 6
    out = capsys.readouterr().out
    assert "stillery pkd, fp32, teacher live" in out and "losses of the first step: at most " in out


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_sides_load_together_and_train_alone(
    modules: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    speed, happened = modules("speed"), []

    def run(side: SimpleNamespace, *given: Any) -> dict[str, float]:
        gate = given[-1]
        time.sleep(0.05 if side.name == "a" else 0.1)
        happened.append(("loaded", side.name))
        (gate / "ready").touch()
        while not (gate / "go").exists():
            time.sleep(0.005)
        happened.append(("begins", side.name))
        time.sleep(0.1)
        happened.append(("ends", side.name))
        if side.name == "c":
            raise RuntimeError("out of\nmemory")
        return {"seconds": 1.0}

    monkeypatch.setattr(speed, "run", run)
    monkeypatch.setattr(speed, "missing", lambda _: False)
    bench = SimpleNamespace(sides=[SimpleNamespace(name=name) for name in "abc"], title="t", shape="s")
    found, without = speed.compared(bench, Path(), device, 2, "wall", 2)
    assert {name: len(answers) for name, answers in found.answers.items()} == {"a": 2, "b": 2}
    assert without == {"c": "failed: memory"}
    trains = 0
    for what, _ in happened:
        trains += {"begins": 1, "ends": -1}.get(what, 0)
        assert trains in (0, 1) and not (what == "loaded" and trains)


@pytest.mark.parametrize(("device", "repeats", "order"), [
    ("cpu", 1, "abc"), ("cpu", 2, "abccba"), ("cpu", 3, "abccbaabc"), ("cuda", 2, "aabccba"),
])  # fmt: skip
def test_every_second_turn_goes_backwards(
    modules: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, device: str, repeats: int, order: str
) -> None:
    speed, trained = modules("speed"), []

    def run(side: SimpleNamespace, *given: Any) -> dict[str, float]:
        trained.append(side.name)
        return {"seconds": float(len(trained))}

    monkeypatch.setattr(speed, "run", run)
    monkeypatch.setattr(speed, "missing", lambda _: False)
    bench = SimpleNamespace(sides=[SimpleNamespace(name=name) for name in "abc"], title="t", shape="s")
    found, _ = speed.compared(bench, Path(), device, repeats)
    assert "".join(trained) == order
    # A turn of each side is the same one, whichever way it went.
    assert all(len(answers) == repeats for answers in found.answers.values())
    assert [answer["seconds"] for answer in found.answers["b"]] == [
        place for place, name in enumerate(order, 1) if name == "b"
    ]


def test_who_waits_at_a_gate_is_let_go_when_something_breaks(
    modules: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = modules("speed")

    def run(side: SimpleNamespace, *given: Any) -> dict[str, float]:
        if side.name == "a":
            raise ValueError("no JSON")
        (given[-1] / "ready").touch()
        while not (given[-1] / "go").exists():
            time.sleep(0.005)
        return {"seconds": 1.0}

    monkeypatch.setattr(speed, "run", run)
    sides = [SimpleNamespace(name=name) for name in "ab"]
    with pytest.raises(ValueError, match="no JSON"):
        list(speed._one_by_one(sides, None, Path(), "cpu", "wall"))


def test_a_peer_that_is_not_installed_is_named_and_left_out(
    modules: Callable[[str], ModuleType], inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed, benches = modules("speed"), modules("speed_benches")
    monkeypatch.setitem(benches.PACKAGES, "modelopt", "no_such_package")
    asked = benches.Asked(device="cpu", examples=16, tiny=True, only=("peers",), sides=("modelopt",))
    (bench,) = benches.benches(asked)
    found, without = speed.compared(bench, inputs, "cpu", 1)
    assert without == {"modelopt pkd, fp32, dynamic": "not installed; `make bench` has it in an environment of its own"}
    assert not found.answers


def test_the_store_of_the_teacher_is_filled_and_measured(
    answer: Callable[..., dict[str, Any]], ours: dict[str, float]
) -> None:
    found = answer("stillery")
    assert found["store_mb"] > 0
    assert found["first"] == pytest.approx(ours, rel=1e-5)


@pytest.mark.parametrize("padding", ["128", "dynamic", "grouped"])
def test_textbrewer_trains_on_the_same_losses(
    answer: Callable[..., dict[str, Any]], ours: dict[str, float], padding: str
) -> None:
    pytest.importorskip("textbrewer")
    found = answer("textbrewer", padding=padding)
    assert len(found["epochs"]) == 2 and found["steps"] == 2
    assert found["first"] == pytest.approx({name: ours[name] for name in ("hard", "patience")}, rel=1e-4)


def test_textbrewer_keeps_logits_for_prediction_matching(answer: Callable[..., dict[str, Any]]) -> None:
    pytest.importorskip("textbrewer")
    found = answer("textbrewer", method="kd", epochs=3)
    assert len(found["epochs"]) == 3 and found["steps"] == 3


@pytest.mark.parametrize("peer", ["torchdistill", "modelopt"])
def test_other_peers_train_on_the_same_losses(
    answer: Callable[..., dict[str, Any]], ours: dict[str, float], peer: str
) -> None:
    pytest.importorskip(peer)
    found = answer(peer)
    assert len(found["epochs"]) == 2 and found["steps"] == 2
    assert found["first"] == pytest.approx({name: ours[name] for name in found["first"]}, rel=1e-4)
    assert {"loss", "patience"} <= found["first"].keys()


@pytest.mark.parametrize("padding", ["dynamic", "grouped"])
def test_the_floor_trains_the_student_alone(answer: Callable[..., dict[str, Any]], padding: str) -> None:
    found = answer("trainer", method="none", padding=padding)
    assert len(found["epochs"]) == 2 and found["steps"] == 2 and found["peak_mb"] > 0


def test_sides_that_learn_something_else_are_named(modules: Callable[[str], ModuleType]) -> None:
    targets, benches = modules("speed_targets"), modules("speed_benches")
    (bench,) = benches.benches(benches.Asked(device="cpu", examples=16, tiny=True, only=("peers",)))
    ours, theirs = "stillery pkd, fp32", "torchdistill pkd, fp32, dynamic"
    answers = {ours: [{"first": {"hard": 0.7, "loss": 0.5}}], theirs: [{"first": {"hard": 0.7 + 1e-6}}]}
    # Another method's, and what a side does not say, are not compared.
    answers["stillery kd, fp32"] = [{"first": {"hard": 9.0}}]
    assert targets.same_losses(targets.Found(bench, answers)) == "losses of the first step: at most 1.4e-06 apart"
    answers[theirs] = [{"first": {"hard": 0.8}}]
    with pytest.raises(SystemExit, match=r"hard of the first step differs: .*torchdistill"):
        targets.same_losses(targets.Found(bench, answers))


def test_ratios_compare_turn_by_turn(modules: Callable[[str], ModuleType]) -> None:
    """A machine that was twice as slow in the second turn changes no ratio."""
    targets, benches = modules("speed_targets"), modules("speed_benches")
    asked = benches.Asked(device="cpu", examples=64, only=("runs", "scaling"))
    *runs, small, medium, large = benches.benches(asked)
    slow = {"stillery pkd, fp32": 1.2, "stillery finetune": 1.0}

    def told(scale: float, turns: tuple[float, ...] = (1.0,)) -> list[dict[str, Any]]:
        return [
            {"seconds": 5 * scale * turn, "epochs": [scale * turn] * 5, "steps": 10, "peak_mb": 100.0} for turn in turns
        ]

    found = targets.Found(runs[0], {side: told(scale, (1.0, 2.0, 1.0)) for side, scale in slow.items()})
    ratios = {ratio.what.split(":")[0]: ratio for ratio in targets.ratios([found])}
    assert ratios["minilm-l12, whole run"].value == pytest.approx(1.2)
    assert ratios["minilm-l12, whole run"].met and ratios["minilm-l12, memory"].met
    assert not ratios["minilm-l12, later epochs"].met
    sizes = [targets.Found(one, {one.sides[0].name: told(one.examples)}) for one in (small, medium, large)]
    assert [ratio.value for ratio in targets.ratios(sizes)] == pytest.approx([1.0, 1.0])
    slower = [*sizes[:2], targets.Found(large, {large.sides[0].name: told(1.5 * large.examples)})]
    assert [ratio.met for ratio in targets.ratios(slower)] == [False, False]


def test_more_examples_than_reviews_are_all_different(inputs: Path, modules: Callable[[str], ModuleType]) -> None:
    rows = list(modules("speed_inputs").different_texts(inputs.parent, 20_000))
    assert len({text for text, _ in rows}) > 19_900
    assert {label for _, label in rows} == {"negative", "positive"}
