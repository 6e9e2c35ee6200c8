"""A report as one HTML file: charts, scripts and styles are in it, and nothing is asked of a network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stillery.pictures.theme import SCHEMA, config
from stillery.reports.build import Report
from stillery.reports.content import Figure

__all__ = ["as_json", "main_of", "page"]

_LIBRARIES = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")


def page(report: Report, *, served: bool = False) -> str:
    """Return the page; a `served` one asks the server it came from, and nobody else, for news."""
    scripts = [*(_file("vendor", name) for name in _LIBRARIES), _file("static", "report.js")]
    style = _file("static", "report.css")
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(_hash(one) for one in scripts)}",
        f"style-src {_hash(style)}",
        "img-src data:",
        *(["connect-src 'self'"] if served else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    text: str = _template("page.html").render(
        title=report.title,
        policy="; ".join(policy),
        style=Markup(style),
        scripts=[Markup(one) for one in scripts],
        main=Markup(main_of(report)),
        served=served,
    )
    return text


def main_of(report: Report) -> str:
    """Return the content of the page, which a served one is updated by."""
    figures: list[list[Mapping[str, Any]]] = []

    def add(figure: Figure) -> int:
        """Keep the charts of a figure for the page's script; returns their number."""
        figures.append([asdict(chart) for chart in figure.charts])
        return len(figures) - 1

    body = _template("main.html").render(report=report, add=add, contents=_contents(report), anchor=_anchor)
    data = {
        "schema": SCHEMA,
        "light": config(),
        "dark": config(dark=True),
        "figures": figures,
        "browser": asdict(report.browser) if report.browser else None,
    }
    return f'{body}\n<script type="application/json" id="data">{as_json(data)}</script>'


def as_json(value: Any) -> Markup:
    r"""Return JSON that can stand in a script element: nothing in it ends the element or the line.

    >>> print(as_json({"text": "</script><!--"}))
    {"text":"\u003c/script\u003e\u003c!--"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _contents(report: Report) -> list[tuple[str, str]]:
    """Return the table of contents: anchors and titles."""
    found = [("summary", "Summary")]
    for place, part in enumerate(report.parts):
        if len(report.parts) > 1:
            found.append((_anchor(place, 0), part.title or f"Table {place + 1}"))
        else:
            found += [(_anchor(place, 0), "Results")]
            found += [(_anchor(place, number + 1), one.short) for number, one in enumerate(part.figures)]
    if report.browser:
        found.append(("disagreements", "Disagreements"))
    if report.analyses:
        found.append(("analyses", "Analyses"))
    return [*found, ("again", "Make it again")]


def _anchor(part: int, section: int) -> str:
    return f"part-{part}-{section}"


@cache
def _file(folder: str, name: str) -> str:
    """Return a file of this package as it stands in the page."""
    text = files("stillery.reports").joinpath(folder, name).read_text(encoding="utf-8")
    # Its map is not shipped.
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
    return "\n".join(lines)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("stillery.reports", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def _template(name: str) -> Any:
    return _environment().get_template(name)
