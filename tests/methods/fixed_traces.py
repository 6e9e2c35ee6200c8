"""Fixed ragged traces of made-up models in double precision, with rubbish where there is padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stillery import methods
from stillery.losses import Between, Mixed, judges_of, modules_of
from stillery.models.wanted_outputs import Stack, Trace
from stillery.recipe import Clock, Stage

LENGTHS = (7, 4, 2)
PARTNER = (1, 2, 0)


def mask_of(lengths: tuple[int, ...], tokens: int) -> Tensor:
    return (torch.arange(tokens)[None, :] < torch.tensor(lengths)[:, None]).long()


def shown(
    seed: int, layers: int, width: int, heads: int = 4, lengths: tuple[int, ...] = LENGTHS, classes: int = 3
) -> Trace:
    """A trace of all layers; what stands in padding is large, so that counting it would show."""
    made = torch.Generator().manual_seed(seed)
    mask = mask_of(lengths, max(LENGTHS))

    def states() -> Tensor:
        values = torch.randn(len(lengths), mask.shape[1], width, generator=made, dtype=torch.float64)
        return torch.where(mask.bool().unsqueeze(-1), values, 30 * values)

    hidden = {layer: states() for layer in range(layers + 1)}
    query, key, value = ({layer: states() for layer in range(1, layers + 1)} for _ in range(3))
    logits = torch.randn(len(lengths), classes, generator=made, dtype=torch.float64)
    # Behind a projector in its head a narrow student's feature is as wide as the teacher's.
    feature = {layers: torch.randn(len(lengths), 12, generator=made, dtype=torch.float64)}
    stack = Stack(
        hidden=hidden, query=query, key=key, value=value, feature=feature, mask=mask, heads=heads, depth=layers
    )
    return Trace(logits=logits, encoder=stack)


@dataclass(frozen=True)
class Labels:
    labels: Tensor = field(default_factory=lambda: torch.tensor([2, 0, 1]))
    index: tuple[int, ...] = (4, 0, 2)


@dataclass(frozen=True)
class Case:
    """What a student and a teacher of some sizes showed, plain and mixed, and how to get a method's terms from it."""

    student: dict[str, Trace]
    teacher: dict[str, Trace]
    mixed: Mixed
    batch: Labels = field(default_factory=Labels)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        ours, theirs = self.student["plain"].encoder, self.teacher["plain"].encoder
        return ours.depth, theirs.depth, ours.hidden[0].shape[-1], theirs.hidden[0].shape[-1]

    @property
    def between(self) -> dict[None, Between]:
        return {None: Between(depths=self.sizes[:2], widths=self.sizes[2:])}

    def modules(self, stage: Stage, clock: Clock) -> tuple[dict, dict]:
        torch.manual_seed(clock.seed + 17)
        projections, flows = modules_of(stage, self.between, clock)
        return {name: projection.double() for name, projection in projections.items()}, flows

    def judges(self, stage: Stage, clock: Clock) -> dict[str, torch.nn.Module]:
        torch.manual_seed(clock.seed + 18)
        classes = self.student["plain"].logits.shape[-1]
        made = judges_of(stage, self.between, clock, classes=classes, examples=6)
        return {name: judge.double() for name, judge in made.items()}

    def terms(
        self,
        name: str,
        clock: Clock | None = None,
        projections: Mapping[str, torch.nn.Module] | None = None,
        flows: Mapping[str, torch.nn.Module] | None = None,
        **options: object,
    ) -> tuple[dict[str, Tensor], dict, dict]:
        """The terms by the public function, with the projections and flows they were made with."""
        clock = clock or Clock()
        stage = methods.build(name, options).stages[clock.stage]
        made = self.modules(stage, clock)
        projections, flows = projections or made[0], flows or made[1]
        found = methods.terms(
            name, self.student, self.teacher, self.batch, clock, projections=projections, flows=flows,
            judges=self.judges(stage, clock), mixed=self.mixed, **options,
        )  # fmt: skip
        return found, dict(projections), dict(flows)


def case(
    student_layers: int = 2, teacher_layers: int = 4, width: int = 12, heads: int = 4, seed: int = 0, lam: float = 0.3
) -> Case:
    """A student of some size and a teacher of width 12 with 4 heads; the mixed view is of another batch of numbers."""
    union = tuple(max(a, LENGTHS[b]) for a, b in zip(LENGTHS, PARTNER, strict=True))
    return Case(
        student={
            "plain": shown(4 * seed + 1, student_layers, width, heads),
            "mixed": shown(4 * seed + 2, student_layers, width, heads, union),
        },
        teacher={
            "plain": shown(4 * seed + 3, teacher_layers, 12),
            "mixed": shown(4 * seed + 4, teacher_layers, 12, lengths=union),
        },
        mixed=Mixed(lam=lam, partner=torch.tensor(PARTNER)),
    )
