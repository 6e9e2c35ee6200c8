"""The look of every chart: a colour-blind safe palette, readable sizes, light and dark."""

from __future__ import annotations

from typing import Any

__all__ = ["PALETTE", "SCHEMA", "config"]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

# Okabe and Ito's colours without yellow, which is too light on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#666666")

_FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"


def config(*, dark: bool = False) -> dict[str, Any]:
    """Return the Vega-Lite configuration that all charts share."""
    ink, soft, grid, paper = (
        ("#e8e8e8", "#b8b8b8", "#3a3a3a", "#161616") if dark else ("#1a1a1a", "#555555", "#e4e4e4", "#ffffff")
    )
    text = {"labelColor": soft, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 13}
    return {
        "font": _FONT,
        "background": paper,
        "view": {"stroke": None},
        "axis": {**text, "titleFontWeight": "normal", "gridColor": grid, "domainColor": soft, "tickColor": soft},
        "legend": {**text, "symbolSize": 90},
        "header": text,
        "title": {
            "color": ink,
            "subtitleColor": soft,
            "fontSize": 15,
            "subtitleFontSize": 12,
            "fontWeight": 600,
            "anchor": "start",
            "frame": "group",
            "offset": 10,
        },
        "text": {"color": ink, "fontSize": 12},
        "rule": {"color": soft},
        "range": {"category": list(PALETTE), "heatmap": {"scheme": "cividis"}, "ramp": {"scheme": "cividis"}},
        "point": {"filled": True, "size": 60},
        "line": {"strokeWidth": 2},
    }
