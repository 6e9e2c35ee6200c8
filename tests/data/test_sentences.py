"""Sentences are cut where they end."""

from __future__ import annotations

import pytest

from stillery.data.tasks.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One here. Two there! Three? Four", ["One here.", "Two there!", "Three?", "Four"]),
        ('He said "Go." Then she went (fast.) She won.', ['He said "Go."', "Then she went (fast.)", "She won."]),
        ("The cost is 3.5 million. 12 people came.", ["The cost is 3.5 million.", "12 people came."]),
        ("See Fig. 3 by J. Smith et al. in Vol. 2 (cf. Dr. No). Done.",
         ["See Fig. 3 by J. Smith et al. in Vol. 2 (cf. Dr. No).", "Done."]),
        ("It ended... or so it seemed. Yes.", ["It ended... or so it seemed.", "Yes."]),
        ("A heading\n \nA line\nbroken   in two.  \n\n\n", ["A heading", "A line broken in two."]),
        (" \n\n ", []),
    ],
)  # fmt: skip
def test_where_sentences_end(text: str, sentences: list[str]) -> None:
    assert list(split_sentences(text)) == sentences
