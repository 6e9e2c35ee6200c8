"""Charts are written whole, as SVG and PNG, and fetch nothing."""

import pytest

from stillery.pictures.draw import write_pictures

SPEC = {
    "title": "Accuracy",
    "data": {"values": [{"x": 1, "y": 2, "name": "<script>alert(1)</script>"}]},
    "mark": "point",
    "encoding": {
        "x": {"field": "x", "type": "quantitative"},
        "y": {"field": "y", "type": "quantitative"},
        "color": {"field": "name", "type": "nominal"},
    },
}


def test_a_chart_is_written_as_svg_and_png(tmp_path):
    svg, png = write_pictures(SPEC, tmp_path / "chart")
    assert [svg.name, png.name] == ["chart.svg", "chart.png"]
    assert "Accuracy" in svg.read_text() and "<script>" not in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_name_with_dots_keeps_them(tmp_path):
    assert [path.name for path in write_pictures(SPEC, tmp_path / "e5-v1.5")] == ["e5-v1.5.svg", "e5-v1.5.png"]


def test_no_address_is_fetched(tmp_path):
    with pytest.raises(ValueError, match="url not allowed"):
        write_pictures({**SPEC, "data": {"url": "http://127.0.0.1:9/data.csv"}}, tmp_path / "chart")
    assert not list(tmp_path.iterdir())
