"""Building and initialising an embedding student."""

from __future__ import annotations

import dataclasses
from typing import cast

from stillery.jobs.calibration import Calibration
from stillery.jobs.config.settings import StudentSettings
from stillery.jobs.kinds.classification.student import make_student as make_encoder
from stillery.models.embedder import SentenceEmbedder, arrange
from stillery.models.load_model import Loaded
from stillery.models.student import Student

__all__ = ["make_student"]


def make_student(
    settings: StudentSettings, teacher: Loaded, seed: int, calibration: Calibration | None
) -> tuple[Student, StudentSettings]:
    """Build an encoder from the teacher's layers, another model's, or at random, with the teacher's pooling.

    A narrower one ends in a new dense module, so that its embeddings are as long as the teacher's.
    """
    # What a method does with a classifier's head does not apply.
    student, settings = make_encoder(dataclasses.replace(settings, head="fresh"), teacher, seed, calibration)
    model = cast(SentenceEmbedder, student.model)
    line = arrange(model, cast(SentenceEmbedder, teacher.model), seed)
    student = dataclasses.replace(student, origin=(*student.origin, *([line] if line else [])))
    return student, dataclasses.replace(settings, head=None)
