"""`stillery pairs`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

__all__ = ["pairs"]


def pairs(
    method: Annotated[str, typer.Option(help="The method.")],
    teacher_layers: Annotated[int, typer.Option(help="Layers of the teacher.", min=1)],
    layers: Annotated[int, typer.Option(help="Layers of the student.", min=1)],
    epoch: Annotated[int, typer.Option(help="Epoch, from 1, for pairings that change.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the run, for random pairings.", min=0)] = 0,
    kind: Annotated[
        Literal["encoder", "encoder-decoder", "decoder"],
        typer.Option(help="The kind of model; an encoder-decoder's layers meet in both stacks."),
    ] = "encoder",
    teacher_decoder_layers: Annotated[
        int | None, typer.Option(help="Of an encoder-decoder's decoder.  [default: --teacher-layers]", min=1)
    ] = None,
    decoder_layers: Annotated[
        int | None, typer.Option(help="Of an encoder-decoder's decoder.  [default: --layers]", min=1)
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="A method's own option.", metavar="NAME=VALUE")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print [[student, teacher], ...], of an encoder-decoder by stack.")
    ] = False,
) -> None:
    """Show which student layer meets which teacher layer: 1-based, 0 is the embedding."""
    from stillery import methods
    from stillery.cli.options import method_options
    from stillery.cli.show import print_json
    from stillery.faults import Fault
    from stillery.recipe import Clock
    from stillery.stacks import on_stacks

    if kind != "encoder-decoder" and (decoder_layers or teacher_decoder_layers):
        raise Fault(
            "--decoder-layers and --teacher-decoder-layers are for --kind encoder-decoder; others have one stack"
        )
    first, decoder = (layers, teacher_layers), (decoder_layers or layers, teacher_decoder_layers or teacher_layers)
    for name, (ours, theirs) in (("--layers", first), ("--decoder-layers", decoder)):
        if ours > theirs:
            raise Fault(f"{name} {ours}: a student cannot be deeper than its teacher of {theirs} layers")
    recipe = on_stacks(methods.build(method, method_options(option or [])), kind)
    clock = Clock(seed=seed, epoch=epoch - 1)
    found = {
        match.name: match.pairs(*(decoder if match.stack == "decoder" else first), clock)
        for stage in recipe.stages
        for match in stage.matches
    }
    if json:
        stacks: dict[str | None, dict[object, None]] = {}
        for match in (match for stage in recipe.stages for match in stage.matches):
            stacks.setdefault(match.stack, {}).update(dict.fromkeys(found[match.name]))
        merged = {stack: list(met) for stack, met in stacks.items()}
        print_json(merged if kind == "encoder-decoder" else next(iter(merged.values()), []), indent=None)
        return
    if not found:
        print(f"{method} matches no layers")
    for name, met in found.items():
        print(f"{name}:")
        for student, teacher in met:
            print(f"  student {student or 'embedding'} - teacher {teacher or 'embedding'}")
