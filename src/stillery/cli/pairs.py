"""`stillery pairs`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["pairs"]


def pairs(
    method: Annotated[str, typer.Option(help="The method.")],
    teacher_layers: Annotated[int, typer.Option(help="Layers of the teacher.", min=1)],
    layers: Annotated[int, typer.Option(help="Layers of the student.", min=1)],
    epoch: Annotated[int, typer.Option(help="Epoch, from 1, for pairings that change.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the run, for random pairings.", min=0)] = 0,
    option: Annotated[list[str] | None, typer.Option(help="A method's own option.", metavar="NAME=VALUE")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print [[student, teacher], ...].")] = False,
) -> None:
    """Show which student layer meets which teacher layer: 1-based, 0 is the embedding."""
    from stillery import methods
    from stillery.cli.options import method_options
    from stillery.cli.show import print_json
    from stillery.faults import Fault
    from stillery.recipe import Clock

    if layers > teacher_layers:
        raise Fault(f"--layers {layers}: a student cannot be deeper than its teacher of {teacher_layers} layers")
    recipe = methods.build(method, method_options(option or []))
    clock = Clock(seed=seed, epoch=epoch - 1)
    found = {
        match.name: match.pair(layers, teacher_layers, clock) for stage in recipe.stages for match in stage.matches
    }
    if json:
        merged = dict.fromkeys(pair for pairs_of_match in found.values() for pair in pairs_of_match)
        print_json(list(merged), indent=None)
        return
    if not found:
        print(f"{method} matches no layers")
    for name, met in found.items():
        print(f"{name}:")
        for student, teacher in met:
            print(f"  student {student or 'embedding'} - teacher {teacher or 'embedding'}")
