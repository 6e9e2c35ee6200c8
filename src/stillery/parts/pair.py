"""Which layers meet: plain functions (student layers, teacher layers, clock) -> [(student, teacher), ...].

Layers are 1-based and 0 is the embedding output. Options come as keywords; fix them with `functools.partial`.
"""

from __future__ import annotations

import numpy as np

from stillery.recipe import Clock, Pairs

__all__ = ["all_to_one", "even_layers", "fixed_random", "forward", "last", "reverse", "skip"]


def even_layers(count: int, layers: int) -> list[int]:
    """Evenly spaced layers ending with the last: ceil(i * layers / count) for i = 1..count.

    >>> even_layers(3, 12), even_layers(9, 12), even_layers(3, 8)
    ([4, 8, 12], [2, 3, 4, 6, 7, 8, 10, 11, 12], [3, 6, 8])
    """
    return [-(-i * layers // count) for i in range(1, count + 1)]


def _matched(teachers: list[int], embedding: bool) -> Pairs:
    start: Pairs = [(0, 0)] if embedding else []
    return start + list(enumerate(teachers, start=1))


def forward(student_layers: int, teacher_layers: int, clock: Clock, *, embedding: bool = True) -> Pairs:
    """Layer selection, forward: student layer i meets teacher layer ceil(i * N / M).

    >>> forward(3, 12, Clock())
    [(0, 0), (1, 4), (2, 8), (3, 12)]
    """
    return _matched(even_layers(student_layers, teacher_layers), embedding)


def reverse(student_layers: int, teacher_layers: int, clock: Clock, *, embedding: bool = True) -> Pairs:
    """Layer selection, reverse: the forward teacher layers in opposite order; the embedding pair stays.

    >>> reverse(3, 12, Clock())
    [(0, 0), (1, 12), (2, 8), (3, 4)]
    """
    return _matched(even_layers(student_layers, teacher_layers)[::-1], embedding)


def fixed_random(student_layers: int, teacher_layers: int, clock: Clock, *, embedding: bool = True) -> Pairs:
    """Layer selection, random: one permutation of the forward teacher layers, drawn from the seed, kept for the run.

    Not resampled per epoch and not sorted: that is RAIL-KD's choice, another part.
    """
    order = np.random.default_rng([clock.seed, 0x1A7E5]).permutation(student_layers)
    teachers = even_layers(student_layers, teacher_layers)
    return _matched([teachers[i] for i in order], embedding)


def all_to_one(student_layers: int, teacher_layers: int, clock: Clock, *, embedding: bool = True) -> Pairs:
    """Layer selection, all to one: every student state, embedding included, meets teacher layer N // 2.

    The released code fixes layer 6 of 12 for encoders and N // 2 for the 36-layer decoder; N // 2 covers both. A
    one-layer teacher has no middle below its only layer, so that layer is taken.

    >>> all_to_one(3, 12, Clock())
    [(0, 6), (1, 6), (2, 6), (3, 6)]
    """
    middle = max(teacher_layers // 2, 1)
    return [(i, middle) for i in range(0 if embedding else 1, student_layers + 1)]


def skip(student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """PKD-skip and ILD-RTC: student layers 1..M-1 meet floor(N / M) * m; neither last layer takes part.

    >>> skip(6, 12, Clock()), skip(3, 12, Clock()), skip(8, 12, Clock())[-1]
    ([(1, 2), (2, 4), (3, 6), (4, 8), (5, 10)], [(1, 4), (2, 8)], (7, 7))
    """
    stride = teacher_layers // student_layers
    return [(m, stride * m) for m in range(1, student_layers)]


def last(student_layers: int, teacher_layers: int, clock: Clock) -> Pairs:
    """PKD-last: student layers 1..M-1 meet teacher layers N-M+1..N-1.

    >>> last(6, 12, Clock()), last(3, 12, Clock())
    ([(1, 7), (2, 8), (3, 9), (4, 10), (5, 11)], [(1, 10), (2, 11)])
    """
    return [(m, teacher_layers - student_layers + m) for m in range(1, student_layers)]
