"""The shapes that a search tries: depths and widths, checked by the teacher's configuration, without its weights."""

from __future__ import annotations

from stillery.errors import ErrorList, UserError
from stillery.models.family import Sizes, kind_of, sizes
from stillery.models.load_model import read_config
from stillery.study.shrink.request import Request

__all__ = ["Shape", "shapes"]

Shape = tuple[int, int]
"""Layers and width of a student."""

_SIXTHS = range(1, 6)


def shapes(request: Request, teacher: str) -> list[Shape]:
    """The shapes to try, none of them the teacher's own; raises UserError for those that no student can have."""
    config = read_config(teacher)
    if kind_of(config, teacher) != "encoder":
        raise UserError(
            f"{teacher} generates text, and a search is for models that classify or tag: compare students of it with a "
            "plan for stillery study"
        )
    has, errors = sizes(config), ErrorList()
    widths = request.widths or (has.width,)
    for width in widths:
        with errors.catch():
            _check_width(width, has, request.named("widths"))
    depths = request.layers or _depths(has.layers, narrower=min(widths) < has.width)
    for layers in depths:
        if layers > has.layers:
            errors.add(
                f"{request.named('layers')} {layers}: the teacher has {has.layers} layers, a student cannot be deeper"
            )
    errors.raise_any()
    found = [(layers, width) for width in widths for layers in depths if (layers, width) != (has.layers, has.width)]
    if not found:
        raise UserError(
            f"the teacher has {has.layers} layers of width {has.width}, and no student to try is smaller: give fewer "
            f"{request.named('layers')}, or narrower {request.named('widths')}"
        )
    own = has.layers in (request.layers or ()) and max(widths) == has.width and min(widths) == has.width
    if own:
        raise UserError(
            f"{request.named('layers')} {has.layers}: that is the teacher itself, which has {has.layers} layers; give "
            f"fewer, or narrower {request.named('widths')} too"
        )
    return found


def _depths(layers: int, *, narrower: bool) -> tuple[int, ...]:
    """Every sixth of the teacher's depth; with narrower students its whole depth too."""
    found = {max(1, round(layers * part / 6)) for part in _SIXTHS}
    return tuple(sorted((found - {layers}) | ({layers} if narrower else set())))


def _check_width(width: int, has: Sizes, option: str) -> None:
    """A narrower student keeps the teacher's head size as nearly as whole heads allow."""
    if width > has.width:
        raise UserError(f"{option} {width}: the teacher is {has.width} wide, a student cannot be wider")
    heads = has.heads if width == has.width else max(1, width * has.heads // has.width)
    if width % heads:
        step = has.width // has.heads
        below = max(step, width // step * step)
        near = f"{below} or {below + step}" if below + step <= has.width and below < width else str(below)
        raise UserError(
            f"{option} {width}: not divisible by its {heads} heads; multiples of the teacher's head size, {step}, are, "
            f"such as {near}"
        )
