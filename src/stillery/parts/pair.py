"""Pairings: which teacher layer each student layer is matched with.

A pairing is a function (student layers M, teacher layers N, clock) -> [(student layer, teacher layer), ...]. Layers are
1-based and 0 is the embedding output. Options are keywords; fix them with `functools.partial`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillery import declare
from stillery.errors import UserError
from stillery.recipe import Clock, Pairs

__all__ = [
    "all_to_one",
    "all_together",
    "block",
    "embedding",
    "even_layers",
    "every_layer",
    "fixed_random",
    "forward",
    "last",
    "last_layer",
    "random_each_epoch",
    "random_together",
    "reverse",
    "similar",
    "skip",
    "together",
    "top",
    "uniform",
]


def even_layers(count: int, layers: int) -> list[int]:
    """Evenly spaced layers ending with the last: ceil(i * layers / count) for i = 1..count.

    >>> even_layers(3, 12), even_layers(9, 12), even_layers(3, 8)
    ([4, 8, 12], [2, 3, 4, 6, 7, 8, 10, 11, 12], [3, 6, 8])
    """
    return [-(-i * layers // count) for i in range(1, count + 1)]


def _matched(teachers: Sequence[int], embedding: bool) -> Pairs:
    return [*([(0, 0)] if embedding else []), *enumerate(teachers, start=1)]


@declare.pairing("forward", "student layer i with teacher layer ceil(i N / M)")
def forward(student_layers: int, teacher_layers: int, clock: Clock, *, embedding: bool = True) -> Pairs:
    """Layer selection, forward: student layer i is matched with teacher layer ceil(i * N / M).

    >>> forward(3, 12, Clock())
    [(0, 0), (1, 4), (2, 8), (3, 12)]
    """
    return _matched(even_layers(student_layers, teacher_layers), embedding)


@declare.pairing("reverse", "the teacher layers of forward in opposite order")
def reverse(student_layers: int, teacher_layers: int, clock: Clock, *, embedding: bool = True) -> Pairs:
    """Layer selection, reverse: the teacher layers of forward in opposite order; the embedding pair stays.

    >>> reverse(3, 12, Clock())
    [(0, 0), (1, 12), (2, 8), (3, 4)]
    """
    return _matched(even_layers(student_layers, teacher_layers)[::-1], embedding)


@declare.pairing("random", "the teacher layers of forward in an order drawn from the seed")
def fixed_random(student_layers: int, teacher_layers: int, clock: Clock, *, embedding: bool = True) -> Pairs:
    """Layer selection, random: one permutation of the teacher layers of forward, drawn from the seed, kept for the run.

    It is not drawn anew each epoch and not sorted, unlike RAIL-KD's (`random_each_epoch`).
    """
    order = np.random.default_rng([clock.seed, 0x1A7E5]).permutation(student_layers)
    teachers = even_layers(student_layers, teacher_layers)
    return _matched([teachers[i] for i in order], embedding)


@declare.pairing("all-to-one", "every student layer with teacher layer N // 2")
def all_to_one(student_layers: int, teacher_layers: int, clock: Clock, *, embedding: bool = True) -> Pairs:
    """Layer selection, all to one: every student layer, embedding included, is matched with teacher layer N // 2.

    The released code has layer 6 of 12 for encoders and N // 2 for the 36-layer decoder; N // 2 covers both. Of a
    one-layer teacher it is that layer.

    >>> all_to_one(3, 12, Clock())
    [(0, 6), (1, 6), (2, 6), (3, 6)]
    """
    middle = max(teacher_layers // 2, 1)
    return [(i, middle) for i in range(0 if embedding else 1, student_layers + 1)]


@declare.pairing("skip", "layers 1..M-1 with every (N // M)th teacher layer")
def skip(student_layers: int, teacher_layers: int, clock: Clock, *, include_last: bool = False) -> Pairs:
    """PKD-skip and ILD-RTC: student layer m of 1..M-1 with teacher layer floor(N / M) * m; `include_last` adds (M, N).

    >>> skip(6, 12, Clock()), skip(3, 12, Clock()), skip(8, 12, Clock())[-1]
    ([(1, 2), (2, 4), (3, 6), (4, 8), (5, 10)], [(1, 4), (2, 8)], (7, 7))
    """
    stride = teacher_layers // student_layers
    pairs = [(m, stride * m) for m in range(1, student_layers)]
    return [*pairs, (student_layers, teacher_layers)] if include_last else pairs


@declare.pairing(None, "layers 1..M-1 with the teacher's last ones")
def top(student_layers: int, teacher_layers: int, clock: Clock, *, include_last: bool = False) -> Pairs:
    """ILD-RTC, Table 9: student layers 1..M-1 with teacher layers N-M+1..N-1; `include_last` adds (M, N).

    >>> top(6, 12, Clock(), include_last=True)
    [(1, 7), (2, 8), (3, 9), (4, 10), (5, 11), (6, 12)]
    """
    count = student_layers if include_last else student_layers - 1
    return [(m, teacher_layers - student_layers + m) for m in range(1, count + 1)]


@declare.pairing("last", "layers 1..M-1 with the teacher's last ones but one")
def last(student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """PKD-last: student layers 1..M-1 with teacher layers N-M+1..N-1.

    >>> last(6, 12, Clock()), last(3, 12, Clock())
    ([(1, 7), (2, 8), (3, 9), (4, 10), (5, 11)], [(1, 10), (2, 11)])
    """
    return top(student_layers, teacher_layers, clock)


@declare.pairing("last-layer", "the last layers only")
def last_layer(student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """L-ILD, MiniLM, DistilBERT: the last layers only.

    >>> last_layer(6, 12, Clock())
    [(6, 12)]
    """
    return [(student_layers, teacher_layers)]


@declare.pairing(None, "the embedding outputs only", of_layers=False)
def embedding(student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """The embedding outputs only."""
    return [(0, 0)]


@declare.pairing(None, "all student layers concatenated with all teacher layers concatenated")
def all_together(student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """CoDIR: all student layers concatenated with all teacher layers concatenated.

    >>> all_together(2, 3, Clock())
    [((1, 2), (1, 2, 3))]
    """
    return [(tuple(range(1, student_layers + 1)), tuple(range(1, teacher_layers + 1)))]


@declare.pairing("uniform", "student layer i with teacher layer i N / M, rounded up")
def uniform(student_layers: int, teacher_layers: int, clock: Clock, *, embedding: bool = False) -> Pairs:
    """TinyBERT and U-ILD: student layer i with teacher layer i N / M, rounded up where M does not divide N.

    The released code of both has only depths that divide. Rounding up is layer selection's rule, so that the last
    layers are matched.

    >>> uniform(4, 12, Clock(), embedding=True), uniform(3, 8, Clock())
    ([(0, 0), (1, 3), (2, 6), (3, 9), (4, 12)], [(1, 3), (2, 6), (3, 8)])
    """
    return _matched(even_layers(student_layers, teacher_layers), embedding)


@declare.pairing(
    "attend",
    "layers 1..M-1, each with all teacher layers weighted by attention",
    uses={"combine": "attend", "project": "to-teacher"},
)
def every_layer(student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """ALP-KD: each of student layers 1..M-1 with all of teacher layers 1..N-1 at once.

    >>> every_layer(3, 4, Clock())
    [(1, (1, 2, 3)), (2, (1, 2, 3))]
    """
    return [(m, tuple(range(1, teacher_layers))) for m in range(1, student_layers)]


def _drawn(
    student_layers: int, teacher_layers: int, clock: Clock, candidates: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """M-1 of the candidates without replacement, in ascending order, anew each epoch of each stage."""
    among = candidates or tuple(range(1, teacher_layers))
    if len(among) < student_layers - 1:
        raise UserError(
            f"{student_layers - 1} teacher layers are to be drawn, there are only {len(among)} to draw from"
        )
    return _some(student_layers - 1, tuple(among), (clock.seed, 0x4A11, clock.stage, clock.epoch))


@lru_cache(maxsize=64)
def _some(count: int, among: tuple[int, ...], seed: tuple[int, ...]) -> tuple[int, ...]:
    """A random choice of that many, in ascending order; cached, because every step of an epoch needs the same."""
    drawn = np.random.default_rng(seed).permutation(len(among))[:count]
    return tuple(sorted(among[j] for j in drawn))


@declare.pairing("random-each-epoch", "layers 1..M-1 with as many teacher layers, drawn each epoch, ascending")
def random_each_epoch(
    student_layers: int, teacher_layers: int, clock: Clock, *, candidates: tuple[int, ...] | None = None
) -> Pairs:
    """RAIL-KD, layer-wise: student layers 1..M-1 with M-1 of teacher layers 1..N-1, drawn each epoch, ascending.

    `candidates` are other teacher layers to draw from.
    """
    return list(enumerate(_drawn(student_layers, teacher_layers, clock, candidates), start=1))


@declare.pairing("random-together", "random-each-epoch with the layers of each side concatenated")
def random_together(
    student_layers: int, teacher_layers: int, clock: Clock, *, candidates: tuple[int, ...] | None = None
) -> Pairs:
    """RAIL-KD, concatenated: student layers 1..M-1 concatenated with the drawn teacher layers concatenated."""
    if student_layers < 2:
        return []
    return [(tuple(range(1, student_layers)), _drawn(student_layers, teacher_layers, clock, candidates))]


@declare.pairing(None, "embedding and all student layers jointly with evenly spaced teacher layers")
def together(student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """Layer relations (CKD, Park et al.): embedding and all student layers jointly with evenly spaced teacher layers.

    >>> together(2, 12, Clock())
    [((0, 1, 2), (0, 6, 12))]
    """
    ours = tuple(range(student_layers + 1))
    return [(ours, (0, *even_layers(student_layers, teacher_layers)))]


@declare.pairing(
    "combine", "each student layer with a block of teacher layers, concatenated", uses={"project": "to-student"}
)
def block(
    student_layers: int,
    teacher_layers: int,
    clock: Clock,
    *,
    partition: Literal["regular", "overlap", "skip-middle", "cross"] = "regular",
    partitions: tuple[tuple[int, ...], ...] | None = None,
) -> Pairs:
    """CKD-combine (Wu et al., 2020): student layer m with a block of teacher layers, which are concatenated.

    `regular` divides the layers into M blocks, `overlap` widens each by one layer on either side. `skip-middle` and
    `cross` are defined for two student layers only; `partitions` names the blocks for other depths.

    >>> block(2, 6, Clock()), block(2, 6, Clock(), partition="overlap")
    ([(1, (1, 2, 3)), (2, (4, 5, 6))], [(1, (1, 2, 3, 4)), (2, (3, 4, 5, 6))])
    >>> block(2, 6, Clock(), partition="skip-middle"), block(2, 6, Clock(), partition="cross")
    ([(1, (1, 2)), (2, (5, 6))], [(1, (1, 3)), (2, (4, 6))])
    """
    if partitions is None:
        partitions = _blocks(student_layers, teacher_layers, partition)
    if len(partitions) != student_layers:
        raise UserError(f"partitions names {len(partitions)} blocks, the student has {student_layers} layers")
    return list(enumerate(partitions, start=1))


def _blocks(student_layers: int, teacher_layers: int, partition: str) -> tuple[tuple[int, ...], ...]:
    cuts = [0, *even_layers(student_layers, teacher_layers)]
    regular = [(low + 1, high) for low, high in pairwise(cuts)]
    if partition == "regular":
        return tuple(tuple(range(low, high + 1)) for low, high in regular)
    if partition == "overlap":
        return tuple(tuple(range(max(low - 1, 1), min(high + 1, teacher_layers) + 1)) for low, high in regular)
    if student_layers != 2 or teacher_layers < 4:
        raise UserError(
            f"partition {partition!r} is defined for two student layers and at least four teacher layers; name the "
            "blocks with partitions, or take regular or overlap"
        )
    half = teacher_layers // 2
    if partition == "skip-middle":
        third = max(teacher_layers // 3, 1)
        return tuple(range(1, third + 1)), tuple(range(teacher_layers - third + 1, teacher_layers + 1))
    # The two ends of each half, as the paper's 1, 3 and 4, 6 of six layers.
    return (1, half), (half + 1, teacher_layers)


@declare.pairing(
    "similar",
    "each student layer with its most similar teacher layer (CKA), in order: measured once on a few texts before "
    "training; a random student (--init random) gives only noise",
    needs=("similarity",),
)
def similar(
    student_layers: int,
    teacher_layers: int,
    clock: Clock,
    *,
    similarity: Sequence[Sequence[float]] | None = None,
    embedding: bool = False,
) -> Pairs:
    """Each student layer with its most similar teacher layer, in order: the choice of largest total similarity.

    Teacher layers ascend strictly; where the student has more layers than the teacher they may repeat. `similarity` has
    a row for each student layer and a column for each teacher layer, the embedding output first. Without it all layers
    count as equally similar, which only checks before a run use.

    >>> similar(2, 4, Clock(), similarity=[[1, 0, 0, 0, 0], [0, 0.2, 0.9, 0.3, 0.1], [0, 0.1, 0.95, 0.5, 0.6]])
    [(1, 2), (2, 4)]
    """
    if similarity is None:
        scores = np.zeros((student_layers, teacher_layers))
    else:
        scores = np.asarray(similarity, dtype=np.float64)[1:, 1:]
    if scores.shape != (student_layers, teacher_layers):
        raise UserError(
            f"the similarity is of {scores.shape[0]} x {scores.shape[1]} layers, the models have {student_layers} x "
            f"{teacher_layers}"
        )
    return _matched(_ascending(scores), embedding)


def _ascending(scores: NDArray[np.float64]) -> list[int]:
    """The ascending 1-based columns, one per row, of the largest sum; the earliest where sums are equal."""
    rows, columns = scores.shape
    strictly = rows <= columns
    # best[i, j]: the largest sum of rows i and following over columns j and following.
    best = np.full((rows + 1, columns + 1), -np.inf)
    best[rows] = 0.0
    for row in reversed(range(rows)):
        for column in reversed(range(columns)):
            here = scores[row, column] + best[row + 1, column + 1 if strictly else column]
            best[row, column] = max(here, best[row, column + 1])
    chosen, column = [], 0
    for row in range(rows):
        while scores[row, column] + best[row + 1, column + 1 if strictly else column] < best[row, column]:
            column += 1
        chosen.append(column + 1)
        column += strictly
    return chosen
