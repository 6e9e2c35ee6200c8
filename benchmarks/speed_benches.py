"""The benchmarks of speed: which sides meet, on which models and how many examples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

NAMES = ("steps", "runs", "peers", "scaling")
METHODS = ("kd", "pkd", "rail-kd")
# By the folder in `peers`: the package it needs.
PACKAGES = {"textbrewer": "textbrewer", "torchdistill": "torchdistill", "modelopt": "modelopt"}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One library in one setting; `job` is what differs from the bench's own."""

    name: str
    peer: str
    job: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Sides that are compared on the same models and examples."""

    name: str
    title: str
    shape: str
    examples: int
    epochs: int
    batch_size: int = 32
    short: bool = False
    """Whether texts are as long as SST-2's, and not as film reviews."""
    sides: tuple[Side, ...]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is benchmarked at all."""

    device: str
    examples: int
    tiny: bool = False
    only: tuple[str, ...] = NAMES
    sides: tuple[str, ...] = ("",)
    without: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = (32, 256)
    methods: tuple[str, ...] = METHODS


def benches(asked: Asked) -> list[Bench]:
    """All that is asked for, in the order of the targets."""
    made = {"steps": _steps, "runs": _runs, "peers": _peers, "scaling": _scaling}
    found = [bench for name in NAMES if name in asked.only for bench in made[name](asked)]
    return [replace(bench, sides=tuple(side for side in bench.sides if _asked(side, asked))) for bench in found]


def _asked(side: Side, asked: Asked) -> bool:
    return side.name.startswith(asked.sides) and not any(word in side.name for word in asked.without)


def _stillery(method: str, precision: str, cache: str = "on") -> Side:
    if method == "none":
        return Side(name="stillery finetune", peer="stillery", job={"method": method, "precision": precision})
    live = "" if cache == "on" else ", teacher live"
    return Side(
        name=f"stillery {method}, {precision}{live}",
        peer="stillery",
        job={"method": method, "precision": precision, "cache": cache},
    )


def _peer(peer: str, method: str, precision: str, padding: str) -> Side:
    padded = {"128": "padded to 128", "dynamic": "dynamic", "grouped": "grouped by length"}[padding]
    return Side(
        name=f"{peer} {method}, {precision}, {padded}",
        peer=peer,
        job={"method": method, "precision": precision, "padding": padding},
    )


def _steps(asked: Asked) -> list[Bench]:
    """Target 1: steps a second beside TextBrewer, [CLS] matching and prediction matching."""
    half = "bf16" if asked.device == "cuda" else "fp32"
    sides = [_stillery("pkd", half), _stillery("pkd", half, "off")]
    if half != "fp32":
        sides.append(_stillery("pkd", "fp32"))
    sides += [_peer("textbrewer", "pkd", "fp32", padding) for padding in ("128", "dynamic", "grouped")]
    if half != "fp32":
        sides += [_peer("textbrewer", "pkd", half, padding) for padding in ("dynamic", "grouped")]
    sides.append(_peer("trainer", "none", half, "grouped"))
    return [
        Bench(
            name="steps",
            title=f"Steps a second, batch {size}, SST-2's lengths",
            short=True,
            shape="tiny" if asked.tiny else "bert-base",
            examples=asked.examples,
            epochs=2 if asked.tiny else 3,
            batch_size=size,
            sides=tuple(sides),
        )
        for size in asked.batch_sizes
    ]


def _runs(asked: Asked) -> list[Bench]:
    """Targets 2 and 4: whole runs and memory beside fine-tuning the student without a teacher."""
    precision = "bf16" if asked.device == "cuda" else "fp32"
    shapes = ("bert-base", "minilm-random") if asked.device == "cuda" else ("minilm-l12", "minilm")
    sides = [_stillery(method, precision) for method in ("none", *asked.methods)]
    sides += [_stillery("pkd", precision, "off"), _peer("trainer", "none", precision, "grouped")]
    return [
        Bench(
            name="runs",
            title="Whole runs beside fine-tuning the student",
            shape=shape,
            examples=asked.examples,
            epochs=2 if asked.tiny else 5,
            sides=tuple(sides),
        )
        for shape in (("tiny",) if asked.tiny else shapes)
    ]


def _peers(asked: Asked) -> list[Bench]:
    """Target 3: the same training by other libraries, in full precision on both sides."""
    sides = [_stillery("none", "fp32"), _peer("trainer", "none", "fp32", "grouped")]
    sides += [_stillery("pkd", "fp32"), _stillery("pkd", "fp32", "off")]
    sides += [_peer("textbrewer", "pkd", "fp32", padding) for padding in ("128", "dynamic", "grouped")]
    sides += [_peer(peer, "pkd", "fp32", "dynamic") for peer in ("torchdistill", "modelopt")]
    sides += [_stillery("kd", "fp32"), _peer("textbrewer", "kd", "fp32", "dynamic")]
    shape = "minilm" if asked.device == "cpu" else "minilm-random"
    return [
        Bench(
            name="peers",
            title="The same training by other libraries",
            shape="tiny" if asked.tiny else shape,
            examples=asked.examples,
            epochs=2 if asked.tiny else 3,
            sides=tuple(sides),
        )
    ]


def _scaling(asked: Asked) -> list[Bench]:
    """Target 5: more examples cost as much each, on a model so small that its cost does not hide others."""
    side = _stillery("pkd", "bf16" if asked.device == "cuda" else "fp32")
    return [
        Bench(
            name="scaling",
            title=f"{size:,} examples",
            shape="tiny" if asked.tiny else "small",
            examples=size,
            epochs=2,
            sides=(side,),
        )
        for size in ((16, 64) if asked.tiny else (2_000, 20_000, 200_000))
    ]
