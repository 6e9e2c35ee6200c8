"""Write a Vega-Lite specification as SVG and PNG files, without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stillery.atomic import atomic_file
from stillery.errors import UserError
from stillery.pictures.theme import SCHEMA, config

__all__ = ["check_can_draw", "write_pictures"]

# PNG pixels per point: sharp when half a page wide in print.
_SCALE = 3.0


def check_can_draw() -> None:
    """Raise UserError if the package that draws charts is missing."""
    try:
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise UserError(
            'pictures need the package vl-convert-python: pip install "stillery[pictures]", or leave them out'
        ) from error


def write_pictures(spec: dict[str, Any], stem: Path) -> list[Path]:
    """Write `stem`.svg and `stem`.png of a specification without `$schema` and `config`; return their paths."""
    check_can_draw()
    import vl_convert

    whole = {"$schema": SCHEMA, "config": config(), **spec}
    # Nothing is fetched: data stands in the specification, and addresses in it are refused.
    svg = vl_convert.vegalite_to_svg(whole, allowed_base_urls=[])
    png = vl_convert.svg_to_png(svg, scale=_SCALE)
    paths = [stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")]
    for path, content in zip(paths, (svg.encode(), png), strict=True):
        with atomic_file(path) as part:
            part.write_bytes(content)
    return paths
