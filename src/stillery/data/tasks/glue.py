"""Specifications of GLUE, as in the Hugging Face data set, and of out-of-domain test sets for GLUE models."""

from __future__ import annotations

from stillery.data.schema.labels import Labels
from stillery.data.tasks.specification import Hub, Task

__all__ = ["TASKS"]

_ONE = (("sentence", None),)
_TWO = (("sentence1", "sentence2"),)
_INFERENCE = (("premise", "hypothesis"), ("sentence1", "sentence2"))
_NOT_ENTAILED = {"neutral": "not_entailment", "contradiction": "not_entailment"}
_FILM = Labels(names=("negative", "positive"), positive="positive")


def _glue(name: str, matched: bool = False) -> Hub:
    """The splits of a GLUE task on the hub; MNLI has two dev and two test splits."""
    splits = {"train": "train", "dev": "validation", "test": "test"}
    if matched:
        splits = {"train": "train"}
        for split, called in (("dev", "validation"), ("test", "test")):
            splits |= {split: f"{called}_matched", f"{split}_mismatched": f"{called}_mismatched"}
    return Hub(repo="nyu-mll/glue", folder=name, splits=splits, also=("glue",))


_ALL = (
    Task(
        name="cola",
        about="is a sentence acceptable English?",
        columns=_ONE,
        labels=Labels(names=("unacceptable", "acceptable"), positive="acceptable"),
        metrics=("matthews",),
        folders=("CoLA", "cola"),
        headerless=("source", "label", "star", "sentence"),
        hub=_glue("cola"),
        submissions={"test": "CoLA"},
    ),
    Task(
        name="sst2",
        about="is a phrase of a film review negative or positive?",
        columns=_ONE,
        labels=_FILM,
        metrics=("accuracy",),
        folders=("SST-2", "sst2"),
        hub=_glue("sst2"),
        submissions={"test": "SST-2"},
    ),
    Task(
        name="mrpc",
        about="do two sentences from the news say the same?",
        columns=(*_TWO, ("#1 String", "#2 String")),
        labels=Labels(names=("not_equivalent", "equivalent"), positive="equivalent"),
        metrics=("f1", "accuracy"),
        folders=("MRPC", "mrpc"),
        hub=_glue("mrpc"),
        submissions={"test": "MRPC"},
    ),
    Task(
        name="stsb",
        about="how similar are two sentences, from 0 to 5?",
        columns=_TWO,
        labels=Labels(regression=True),
        metrics=("pearson", "spearman"),
        folders=("STS-B", "stsb"),
        hub=_glue("stsb"),
        submissions={"test": "STS-B"},
    ),
    Task(
        name="qqp",
        about="do two questions of a forum ask the same?",
        columns=(("question1", "question2"),),
        labels=Labels(names=("not_duplicate", "duplicate"), positive="duplicate"),
        metrics=("f1", "accuracy"),
        folders=("QQP", "qqp"),
        hub=_glue("qqp"),
        submissions={"test": "QQP"},
    ),
    Task(
        name="mnli",
        about="does a premise entail a hypothesis, contradict it, or neither? Dev is the matched split",
        columns=_INFERENCE,
        labels=Labels(names=("entailment", "neutral", "contradiction")),
        metrics=("accuracy",),
        folders=("MNLI", "mnli"),
        hub=_glue("mnli", matched=True),
        submissions={"test": "MNLI-m", "test_mismatched": "MNLI-mm"},
        named=True,
    ),
    Task(
        name="qnli",
        about="does a sentence hold the answer to a question?",
        columns=(("question", "sentence"),),
        labels=Labels(names=("entailment", "not_entailment")),
        metrics=("accuracy",),
        folders=("QNLI", "qnli"),
        hub=_glue("qnli"),
        merges=_NOT_ENTAILED,
        submissions={"test": "QNLI"},
        named=True,
    ),
    Task(
        name="rte",
        about="does one text entail another?",
        columns=_TWO,
        labels=Labels(names=("entailment", "not_entailment")),
        metrics=("accuracy",),
        folders=("RTE", "rte"),
        hub=_glue("rte"),
        merges=_NOT_ENTAILED,
        submissions={"test": "RTE"},
        named=True,
    ),
    Task(
        name="scitail",
        about="does a sentence of science entail another?",
        columns=_INFERENCE,
        labels=Labels(names=("entails", "neutral")),
        metrics=("accuracy",),
        folders=("SciTail", "scitail"),
        headerless=("premise", "hypothesis", "label"),
        hub=Hub(
            repo="allenai/scitail",
            folder="tsv_format",
            splits={"train": "train", "dev": "validation", "test": "test"},
            revision="refs/convert/parquet",
            also=("scitail",),
        ),
        out_of_domain_for="mnli",
        merges={"contradiction": "neutral", "not_entailment": "neutral"},
    ),
    Task(
        name="paws",
        about="do two questions with nearly the same words ask the same? (PAWS-QQP)",
        columns=_TWO,
        labels=Labels(names=("not_paraphrase", "paraphrase"), positive="paraphrase"),
        metrics=("accuracy", "f1"),
        folders=("PAWS-QQP", "paws_qqp", "paws"),
        out_of_domain_for="qqp",
        literals=True,
    ),
    Task(
        name="imdb",
        about="is a whole film review negative or positive?",
        columns=(*_ONE, ("text", None)),
        labels=_FILM,
        metrics=("accuracy", "f1_macro"),
        folders=("IMDb", "imdb"),
        hub=Hub(
            repo="stanfordnlp/imdb",
            folder="plain_text",
            splits={"train": "train", "test": "test"},
            also=("imdb",),
        ),
        package="imdb",
        out_of_domain_for="sst2",
    ),
    Task(
        name="rotten-tomatoes",
        about="is one sentence of a film review negative or positive?",
        columns=(*_ONE, ("text", None)),
        labels=_FILM,
        metrics=("accuracy", "f1_macro"),
        folders=("rotten-tomatoes", "rotten_tomatoes"),
        package="rotten_tomatoes",
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}
"""All named classification and regression tasks."""
