"""Models that generate text: encoder-decoders and decoders, trained on sources and targets."""

from __future__ import annotations

from stillery.jobs.config.inherited import as_taught
from stillery.jobs.kinds.base import Kind, Refusal
from stillery.jobs.kinds.generation import encoding, inputs, method, scoring
from stillery.jobs.kinds.generation.conditions import under
from stillery.jobs.kinds.generation.predicting import PREDICTING
from stillery.jobs.kinds.generation.student import make_generator, wanted_sizes
from stillery.jobs.kinds.generation.teacher_texts import rewrite
from stillery.models.generator_student import check_same_outputs
from stillery.models.load_model import Loaded, load_generator
from stillery.models.option_words import DEFAULT_TEXT_START

__all__ = ["KIND"]

_REFUSES = (
    Refusal(
        names=(
            *("text", "text_pair", "label", "query", "regression", "multi_label", "label_separator", "max_classes"),
            "label_map",
        ),
        line="{option} is for classifiers: a model that generates text has --source and --target",
    ),
    Refusal(names=("unlabelled",), line="{option} is for classifiers: a model that generates text needs target texts"),
    Refusal(
        names=("restarts",), line="{option} is for classifiers: a model that generates text does not fall to one class"
    ),
    Refusal(
        names=("metric", "class_weights"),
        line="{option} is for classifiers: of a model that generates text the likelihood of its targets decides",
    ),
    Refusal(
        names=("pooling", "similarity_weight"),
        line="{option} is for models that embed texts; this one generates text",
    ),
    Refusal(
        names=("reuse", "projector", "allow_custom_head"),
        line="{option} is for classifiers: a model that generates text keeps its own head",
    ),
)


def _load_for_layers(name: str, teacher: Loaded | None) -> Loaded:
    loaded = load_generator(name)
    if teacher is not None:
        check_same_outputs(teacher, loaded)
    return loaded


KIND = Kind(
    name="generation",
    layouts=("encoder-decoder", "decoder"),
    start=DEFAULT_TEXT_START,
    refuses=_REFUSES,
    load=load_generator,
    load_base=lambda name, read, seed: load_generator(name),
    load_for_layers=_load_for_layers,
    make_student=make_generator,
    student_sizes=wanted_sizes,
    read=inputs.read,
    read_texts=inputs.read_texts,
    read_to_score=inputs.read_to_score,
    under=under,
    to_select=inputs.to_select,
    summary=lambda read: "texts to generate",
    calibration=encoding.calibration,
    inherit=as_taught,
    encoding=encoding.encoding,
    written_out=encoding.written_out,
    method=method.for_family,
    recipe=method.on_stacks_of,
    checks=method.CHECKS,
    policy=method.policy,
    outputs=lambda read: "text",
    rewrite=rewrite,
    scorer=scoring.scorer,
    batch_size=scoring.batch_size,
    readers=scoring.readers,
    answers=scoring.answers,
    evaluation=scoring.evaluation,
    compared=scoring.compared,
    write_answers=scoring.write_answers,
    finishing=scoring.finishing,
    latency_examples=20,
    predicting=PREDICTING,
)
