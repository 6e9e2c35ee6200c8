"""The command `stillery pairs`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stillery.models.option_words import DEFAULT_STARTS
from stillery.words import method_words, words

__all__ = ["pairs"]


def pairs(
    layers: Annotated[int | None, typer.Option(help="Layers of the student.", min=1)] = None,
    method: Annotated[
        str | None, typer.Option(help="The method.  [default: layer-forward]", metavar="|".join(method_words()))
    ] = None,
    teacher_layers: Annotated[int | None, typer.Option(help="Layers of the teacher.", min=1)] = None,
    teacher: Annotated[
        str | None,
        typer.Option(help="The teacher, instead of its layers; needed by --pair similar."),
    ] = None,
    pair: Annotated[
        str | None,
        typer.Option(help="Which layers meet, instead of the method's choice.", metavar="|".join(words("pairing"))),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A recipe of your own instead of --method: FILE.py:FUNCTION.")
    ] = None,
    epoch: Annotated[int, typer.Option(help="Epoch, from 1, for pairings that change.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the run, for random pairings.", min=0)] = 0,
    kind: Annotated[
        Literal["encoder", "encoder-decoder", "decoder"] | None,
        typer.Option(
            help="The kind of model; an encoder-decoder's layers meet in both stacks.  "
            "[default: the teacher's, else encoder]"
        ),
    ] = None,
    teacher_decoder_layers: Annotated[
        int | None, typer.Option(help="Of an encoder-decoder's decoder.  [default: --teacher-layers]", min=1)
    ] = None,
    decoder_layers: Annotated[
        int | None, typer.Option(help="Of an encoder-decoder's decoder.  [default: --layers]", min=1)
    ] = None,
    width: Annotated[int | None, typer.Option(help="Hidden size of the student, with --teacher.", min=1)] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads of the student, with --teacher.", min=1)] = None,
    init: Annotated[
        str | None, typer.Option(help=f"How the student starts, with --teacher.  [default: {DEFAULT_STARTS}]")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Texts to compare layers on, with --teacher.  [default: its run's, else made-up sentences]"),
    ] = None,
    task: Annotated[str | None, typer.Option(help="A named task's texts to compare layers on.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="A method's own option.", metavar="NAME=VALUE")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print [[student, teacher], ...], of an encoder-decoder by stack.")
    ] = False,
) -> None:
    """Show which student layer meets which teacher layer: 1-based, 0 is the embedding."""
    from stillery.cli.options import method_options
    from stillery.errors import ErrorList
    from stillery.jobs.config.run_file import ask_method
    from stillery.jobs.first_checks import check_scoring

    errors = ErrorList()
    if (teacher is None) == (teacher_layers is None):
        errors.add("--teacher-layers (a number) or --teacher (a model): give one")
    if layers is None:
        errors.add("--layers is not given: how many layers should the student have?")
    errors.raise_any()
    given: dict[str, Any] = {"method": method, "pair": pair, "recipe": recipe, "options": method_options(option or [])}
    asked = ask_method(given)
    if teacher is not None:
        check_scoring((teacher,), data)
    from stillery.recipe import Clock

    clock = Clock(seed=seed, epoch=epoch - 1)
    request = _Request(
        asked=asked, clock=clock, layers=layers or 0, decoder_layers=decoder_layers, teacher=teacher, kind=kind,
        teacher_layers=teacher_layers, teacher_decoder_layers=teacher_decoder_layers, width=width, heads=heads,
        init=init, data=data, task=task,
    )  # fmt: skip
    found = _of_depths(request) if teacher is None else _of_models(request)
    _show(asked.recipe or asked.method, *found, clock, as_json=json)


@dataclass(frozen=True, kw_only=True)
class _Request:
    """The request of `stillery pairs`: student and teacher by their depths, or a teacher and a student of it."""

    asked: Any
    clock: Any
    layers: int
    decoder_layers: int | None
    teacher: str | None
    teacher_layers: int | None
    teacher_decoder_layers: int | None
    kind: str | None
    width: int | None
    heads: int | None
    init: str | None
    data: Path | None
    task: str | None


Found = tuple[Any, dict[Any, tuple[int, int]], str]
"""The recipe, the depths of student and teacher by stack, and the kind of stacks that the models have."""


def _of_models(request: _Request) -> Found:
    """Return the recipe, depths and kind for a teacher and a student of it."""
    from stillery.errors import UserError
    from stillery.jobs.config.settings import DataSettings, StudentSettings
    from stillery.jobs.model_pairs import meeting
    from stillery.progress import say

    if request.kind is not None or request.teacher_decoder_layers is not None:
        raise UserError("--kind and --teacher-decoder-layers: both are read from --teacher; leave them out")
    if request.data is not None and request.task is not None:
        raise UserError("both --data and --task are given: give one")
    student = StudentSettings(
        layers=request.layers, decoder_layers=request.decoder_layers, width=request.width, heads=request.heads,
        init=request.init,
    )  # fmt: skip
    texts = None
    if request.data is not None or request.task is not None:
        texts = DataSettings(data=None if request.data is None else str(request.data), task=request.task)
    assert request.teacher is not None
    found = meeting(request.teacher, student, request.asked, texts, request.clock)
    for note in found.notes:
        say(note)
    return found.recipe, dict(found.depths), found.kind


def _of_depths(request: _Request) -> Found:
    """Return the recipe, depths and kind where only depths and a kind are given."""
    from stillery.errors import UserError
    from stillery.jobs.chosen_recipe import chosen_recipe
    from stillery.similarity_pairing import asks
    from stillery.stacks import on_stacks

    models = {"--width": request.width, "--heads": request.heads, "--init": request.init, "--data": request.data,
              "--task": request.task}  # fmt: skip
    for what in (what for what, value in models.items() if value is not None):
        raise UserError(f"{what} is for a student of a --teacher, and only its --teacher-layers are given")
    kind, ours, theirs = request.kind or "encoder", request.layers, request.teacher_layers or 0
    if kind != "encoder-decoder" and (request.decoder_layers or request.teacher_decoder_layers):
        raise UserError(
            "--decoder-layers and --teacher-decoder-layers are for --kind encoder-decoder; others have one stack"
        )
    first, decoder = (ours, theirs), (request.decoder_layers or ours, request.teacher_decoder_layers or theirs)
    for name, (student, teacher) in (("--layers", first), ("--decoder-layers", decoder)):
        if student > teacher:
            raise UserError(f"{name} {student}: a student cannot be deeper than its teacher of {teacher} layers")
    recipe = on_stacks(chosen_recipe(request.asked, None), kind)
    for match in (match for stage in recipe.stages for match in stage.matches if asks(match)):
        raise UserError(f"match {match.name}: its pairing needs the similarity of layers: give --teacher")
    return recipe, {None: first, "encoder": first, "decoder": decoder}, kind


def _show(name: str, recipe: Any, depths: dict[Any, tuple[int, int]], kind: str, clock: Any, *, as_json: bool) -> None:
    from stillery.cli.show import print_json

    matches = [match for stage in recipe.stages for match in stage.matches]
    found = {match.name: match.pairs(*depths[match.stack], clock) for match in matches}
    if as_json:
        stacks: dict[str | None, dict[object, None]] = {}
        for match in matches:
            stacks.setdefault(match.stack, {}).update(dict.fromkeys(found[match.name]))
        merged = {stack: list(met) for stack, met in stacks.items()}
        print_json(merged if kind == "encoder-decoder" else next(iter(merged.values()), []), indent=None)
        return
    if not found:
        print(f"{name} matches no layers")
    for match, met in found.items():
        print(f"{match}:")
        for student, teacher in met:
            print(f"  student {student or 'embedding'} - teacher {teacher or 'embedding'}")
