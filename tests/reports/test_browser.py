"""The page in a real Chromium: sorting, filters, examples, colours, a phone, and scripts in data that stay dead."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import CHROMIUM, Browser, browser
from report_runs import make_run

from stillery.reports.serve import Server
from stillery.reports.write import write_report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: apt install chromium"),
]

DEAD = "window.pwned === undefined && document.querySelectorAll('main img, main script:not(#data)').length === 0"


@pytest.fixture
def chromium() -> Iterator[Browser]:
    with browser() as found:
        found.size(1280, 900)
        found.prefers("light")
        yield found


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 60 runs and an analysis."""
    place = tmp_path_factory.mktemp("many")
    for number in range(60):
        make_run(place / "runs" / f"run-{number:02}", right=0.6 + number / 200, seed=number, layers=1 + number % 3)
    return write_report([str(place / "runs")], place / "report.html")


@pytest.fixture(scope="module")
def attacked(hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of runs whose data holds scripts."""
    return write_report([str(hostile)], tmp_path_factory.mktemp("attacked") / "report.html")


def column(page: Browser, number: int) -> list[str]:
    """The texts of a column, of the rows that are seen."""
    rows = "[...document.querySelectorAll('#table-0-0 tbody tr')].filter((row) => !row.hidden)"
    found: list[str] = page.run(f"{rows}.map((row) => row.cells[{number}].firstChild.textContent.trim())")
    return found


def test_it_opens_fast_and_every_chart_is_drawn(chromium, many):
    seconds = chromium.open(many.as_uri())
    assert seconds < 2
    chromium.draw_all()
    assert chromium.run("[...document.querySelectorAll('.chart svg')].every((one) => one.clientWidth > 250)")
    names = chromium.run("[...document.querySelectorAll('.chart')].map((one) => one.getAttribute('aria-label'))")
    assert names[0].startswith("accuracy against size on disk, MB. On the Pareto front:") and all(names)
    # Of nobody else is anything asked, and the console has nothing to say: no error, no blocked style or script.
    assert chromium.requests == [many.as_uri()] and chromium.problems == []


def test_the_table_sorts_and_filters_by_keyboard(chromium, many):
    chromium.open(many.as_uri())
    assert len(column(chromium, 0)) == 40
    chromium.click("#table-0-0-all")
    assert len(column(chromium, 0)) == 61
    chromium.run("document.querySelectorAll('#table-0-0 thead button')[2].focus()")
    chromium.press("Enter")
    scores = [float(one) for one in column(chromium, 2)]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 10
    assert chromium.run("document.querySelectorAll('#table-0-0 th')[2].getAttribute('aria-sort')") == "descending"
    chromium.press("Enter")
    assert [float(one) for one in column(chromium, 2)] == sorted(scores)
    chromium.choose("table-0-0-search", "Layer run-1")
    shown = column(chromium, 0)
    assert sorted(shown) == [f"run-{number}" for number in range(10, 20)]
    count = chromium.run("document.getElementById('table-0-0-count').textContent")
    assert count == f"{len(shown)} of 61 rows"
    chromium.choose("table-0-0-search", "")
    chromium.click("#table-0-0-best")
    assert 0 < len(column(chromium, 0)) < 61
    assert chromium.run("[...document.querySelectorAll('#table-0-0 tr:not([hidden]) td:nth-child(3)')]"
                        ".every((one) => one.querySelector('strong'))")  # fmt: skip


def test_examples_are_looked_through(chromium, attacked):
    chromium.open(attacked.as_uri())
    items = "[...document.querySelectorAll('#disagree-list li')]"
    every = chromium.run("JSON.parse(document.getElementById('data').textContent).browser.rows")
    first = [row for row in every if row[0] == 0]
    assert len(first) > 20
    assert chromium.run(f"{items}.length") == 20 and not chromium.run("document.getElementById('disagree-more').hidden")
    chromium.click("#disagree-more")
    assert chromium.run(f"{items}.length") == min(40, len(first))
    said = chromium.run("document.getElementById('disagree-said').textContent")
    assert f"different answers on {len(first)} of 120 examples" in said
    chromium.choose("disagree-who", "student")
    right = [row for row in first if row[2] == row[4]]
    assert f"{len(right)} of the {len(every)} examples in this page fit" in chromium.run(
        "document.getElementById('disagree-count').textContent"
    )
    assert chromium.run(f"{items}.every((one) => one.querySelectorAll('.right').length === 1)")
    assert chromium.run(
        f"{items}.every((one) => one.querySelector('.right').previousSibling.textContent === 'student:')"
    )
    chromium.choose("disagree-who", "")
    chromium.choose("disagree-teacher", "0.9")
    sure = chromium.run(f"{items}.map((one) => Number(one.querySelectorAll('dd')[1].textContent.split(' ').pop()))")
    assert sure and all(one >= 0.9 for one in sure) and sure == sorted(sure, reverse=True)
    chromium.choose("disagree-teacher", "0")
    chromium.choose("disagree-length", "21-40")
    lengths = chromium.run(
        f"{items}.map((one) => one.querySelector('.text').textContent.split(/\\s+/).filter(Boolean).length)"
    )
    assert lengths and all(21 <= one <= 40 for one in lengths)
    label = chromium.run("document.getElementById('disagree-label').options[2].value")
    chromium.choose("disagree-label", label)
    assert chromium.run(f"{items}.every((one) => one.querySelector('dd').textContent === {label!r})")
    assert chromium.run(DEAD)


def test_scripts_in_data_stay_dead(chromium, attacked):
    chromium.open(attacked.as_uri())
    chromium.draw_all()
    assert "window.pwned" in chromium.run("document.querySelector('#disagree-list .text').textContent")
    assert "<script>" in chromium.run("document.querySelector('#table-0-0 tbody').textContent")
    assert chromium.run(DEAD)
    assert chromium.problems == []
    # Even a script that got into the page would not run, nor reach a network.
    chromium.run("(() => { const one = document.createElement('script'); one.textContent = 'window.pwned = 1';"
                 " document.body.append(one); document.body.insertAdjacentHTML('beforeend',"
                 " '<img src=\"http://127.0.0.1:9/x\" onerror=\"window.pwned = 2\">'); })()")  # fmt: skip
    assert chromium.run("window.pwned === undefined")
    assert sum("Content Security Policy" in one for one in chromium.problems) >= 2


def test_light_and_dark(chromium, attacked):
    colour = "getComputedStyle(document.body).backgroundColor"
    chromium.open(attacked.as_uri())
    assert chromium.run(colour) == "rgb(255, 255, 255)"
    chromium.prefers("dark")
    chromium.until(f"{colour} === 'rgb(22, 22, 22)'")
    chromium.draw_all()
    assert "#b8b8b8" in chromium.run("document.querySelector('.chart svg').outerHTML")
    chromium.run("document.getElementById('theme').focus()")
    chromium.press("Enter")
    chromium.until(f"{colour} === 'rgb(255, 255, 255)'")
    assert chromium.run("document.getElementById('theme').getAttribute('aria-label')") == "Switch to dark colours"
    chromium.draw_all()
    chromium.until("!document.querySelector('.chart svg').outerHTML.includes('#b8b8b8')")
    assert chromium.problems == []


def test_a_phone_shows_all_of_it(chromium, attacked, many):
    for page in (attacked, many):
        chromium.size(360, 740, phone=True)
        chromium.open(page.as_uri())
        chromium.draw_all()
        assert chromium.run("document.documentElement.scrollWidth") == 360
        wide = chromium.run(
            "[...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll, nav, pre, svg')"
            " && one.getBoundingClientRect().right > 361).map((one) => one.outerHTML.slice(0, 80))"
        )
        assert wide == []
        assert chromium.run("[...document.querySelectorAll('.chart svg')].every((one) => one.clientWidth <= 330)")
    assert chromium.problems == []


def test_a_served_page_is_updated_in_place(chromium, tmp_path):
    """A run that is finished meanwhile appears, without a reload, and what was typed stays."""
    for number in range(2):
        make_run(tmp_path / "runs" / f"run-{number}", right=0.7, seed=number, examples=60, steps=20)
    make_run(tmp_path / "later", right=0.9, seed=9, examples=60, steps=20)
    with Server([str(tmp_path / "runs")], port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            chromium.open(server.address)
            chromium.choose("table-0-0-search", "kd")
            chromium.run("window.same = true")
            shutil.move(tmp_path / "later", tmp_path / "runs" / "later")
            chromium.until("document.querySelector('#table-0-0').textContent.includes('later')")
            assert chromium.run("window.same && document.getElementById('table-0-0-search').value") == "kd"
            assert set(column(chromium, 0)) == {"run-0", "run-1", "later"}
            chromium.draw_all()
        finally:
            server.shutdown()
            thread.join()
    assert chromium.problems == []
    hosts = {re.match(r"http://[^/]+/", one)[0] for one in chromium.requests if one.startswith("http")}  # type: ignore[index]
    assert hosts == {server.address}
