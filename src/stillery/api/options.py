"""The options of each public function: those available in Python only, and the settings of the command line."""

from __future__ import annotations

from dataclasses import replace

from stillery.api.signatures import Option, of_group, options_of
from stillery.jobs.analyses.settings import ANALYSES
from stillery.jobs.config.settings import (
    ConditionSettings,
    DataSettings,
    GenerationSettings,
    MethodSettings,
    RestartSettings,
    SearchSettings,
    StudentSettings,
    setting_names,
)
from stillery.setting import Panel
from stillery.study.shrink.defaults import GROUPS, HOLDOUT, METHOD, NOT_HERE
from stillery.train.settings import Storing, Training

__all__ = [
    "ANALYSIS",
    "COMPARE",
    "DIAGNOSE",
    "DISTILL",
    "EVALUATE",
    "EXPORT",
    "FINETUNE",
    "PREDICT",
    "REPORT",
    "SHRINK",
]

_DATA = Option(
    name="data", type="Data | None", panel=Panel.FIRST,
    help="A file, or a folder with train, dev and test files; or in memory a DataFrame of pandas or polars, a pyarrow "
    "Table, a datasets.Dataset or DatasetDict, a list of dicts, a dict of splits such as {'train': ..., 'test': ...}.",
)  # fmt: skip
_TOKENIZER = Option(
    name="tokenizer", type="PreTrainedTokenizerBase | None", panel=Panel.FIRST,
    help="The tokenizer of a model that is given in memory.",
)  # fmt: skip
_METRIC = Option(
    name="metric", type="Callable[[Any, Any], float | Mapping[str, float]] | str | None", panel=Panel.TRAINING,
    help="A function of labels and predictions (class names, numbers, or texts) that returns a number, or numbers by "
    "name; more is better, and the first decides which weights are best.",
)  # fmt: skip


def _overwrite(text: str) -> Option:
    return Option(name="overwrite", type="bool", default=False, panel=Panel.OUTPUT, help=text)


_PUSH = Option(
    name="push_to_hub", type="str | None", panel=Panel.OUTPUT,
    help="Upload the model and its card to the hub at the end, as NAME or ACCOUNT/NAME; a new one is private.",
)  # fmt: skip
_RUN = (
    Option(
        name="out", type="StrPath | None", panel=Panel.FIRST,
        help="Folder to write the run to.  [default: a temporary one, which is removed when the process ends]",
    ),
    Option(
        name="preset", type="str | None", panel=Panel.FIRST,
        help="A paper's settings; see `stillery methods --presets`.",
    ),
    _TOKENIZER,
    Option(
        name="on_step", type="Callable[[int, Mapping[str, float]], object] | None", panel=Panel.TRAINING,
        help="Called after every step with its number, the loss and its terms; returning stillery.STOP or False stops "
        "the run, which is then scored and finished.",
    ),
    Option(
        name="on_score", type="Callable[[int, Mapping[str, float]], object] | None", panel=Panel.TRAINING,
        help="Called after every scoring of the dev split with the step and the metrics; it stops a run likewise.",
    ),
    _METRIC,
    Option(
        name="config", type="StrPath | None", panel=Panel.OUTPUT, help="A run file; options given beside it win.",
    ),
    Option(
        name="resume", type="bool", default=False, panel=Panel.OUTPUT, help="Continue the unfinished run in out.",
    ),
    _overwrite("Replace an earlier run in out, as soon as this one begins."),
    _PUSH,
)  # fmt: skip
_SAYING = (
    Option(
        name="quiet", type="bool", default=False, panel=Panel.OUTPUT,
        help="Say nothing but warnings: no progress and no messages.",
    ),
    Option(
        name="verbose", type="bool", default=False, panel=Panel.OUTPUT,
        help="Say details too: splits, starts, pairs of layers, caches, number formats.",
    ),
)  # fmt: skip
_INPUTS = (GenerationSettings, SearchSettings)


def _as_trained(model: str) -> dict[str, str]:
    names = ("max_length", "max_target_length", "prompt", "prefix")
    return dict.fromkeys(names, f"as the {model} was trained")


def _with_default(group: type, **values: object) -> list[Option]:
    """Return options of a group with other defaults than its own."""
    return [replace(one, default=values[one.name]) for one in of_group(group) if one.name in values]


_AS_ITS_RUN = _as_trained("model") | dict.fromkeys(setting_names(SearchSettings), "as in the model's run")

FINETUNE = options_of(
    Option(
        name="model", type="Model | None", panel=Panel.FIRST,
        help="Pretrained model: a folder, a name on the hub, or a model of transformers with its tokenizer.",
    ),
    _DATA, *_RUN, *_SAYING, DataSettings, *_INPUTS, ConditionSettings, RestartSettings, Training,
    inherited=_as_trained("base model"),
)  # fmt: skip
DISTILL = options_of(
    Option(
        name="teacher", type="Model | None", panel=Panel.FIRST,
        help="Fine-tuned model: a run, its folder, a name on the hub, or a model of transformers with its tokenizer.",
    ),
    _DATA, *_RUN, *_SAYING,
    Option(
        name="recipe", type="Recipe | str | None", panel=Panel.METHOD,
        help="A recipe of your own instead of method: a `stillery.recipe.Recipe`, or FILE.py:FUNCTION.",
    ),
    DataSettings, *_INPUTS, ConditionSettings, StudentSettings, MethodSettings, Training, Storing,
    inherited=_as_trained("teacher"),
)  # fmt: skip
SHRINK = options_of(
    Option(
        name="teacher", type="Model | None", panel=Panel.FIRST,
        help="Fine-tuned model: a run, its folder, a name on the hub, or a model of transformers with its tokenizer.",
    ),
    Option(
        name="model", type="Model | None", panel=Panel.FIRST,
        help="A pretrained model to fine-tune as the teacher first, instead of a teacher.",
    ),
    _DATA,
    Option(
        name="within", type="float | None", panel=Panel.FIRST,
        help="Find the smallest student that is so many points below the teacher at most.  [default: 1.0]",
    ),
    Option(
        name="max_params", type="int | str | None", panel=Panel.FIRST,
        help="Find the best student with so many parameters at most, such as 15_000_000 or '15M'.",
    ),
    Option(
        name="max_latency", type="float | None", panel=Panel.FIRST,
        help="Find the best student that takes so many milliseconds a text at most.",
    ),
    Option(
        name="layers", type="Sequence[int] | None", panel=Panel.FIRST,
        help="Depths to try.  [default: every sixth of the teacher's]",
    ),
    Option(
        name="widths", type="Sequence[int] | None", panel=Panel.FIRST,
        help="Widths to try.  [default: the teacher's]",
    ),
    Option(
        name="inits", type="Sequence[str] | None", panel=Panel.FIRST,
        help="Starts to try, such as ['first', 'even'].  [default: the method's]",
    ),
    Option(
        name="out", type="StrPath | None", panel=Panel.FIRST,
        help="Folder of the search; the same call continues it.  [default: a temporary one, which is removed when "
        "the process ends]",
    ),
    _TOKENIZER,
    Option(
        name="every", type="bool", default=False, panel=Panel.STUDENT,
        help="Train every student in full, for the whole curve.",
    ),
    Option(
        name="workers", type="int", default=0, panel=Panel.SPEED,
        help="Worker processes: for each GPU, or in all where there is none; 0 trains in this process.",
    ),
    Option(
        name="retry_failed", type="bool", default=False, panel=Panel.OUTPUT,
        help="Train students again that failed.",
    ),
    *_SAYING, *_with_default(ConditionSettings, holdout=HOLDOUT), *_with_default(MethodSettings, method=METHOD),
    *GROUPS, leave_out=NOT_HERE, inherited=_as_trained("teacher"),
)  # fmt: skip
_MODEL = Option(
    name="model", type="Model", panel=Panel.FIRST, required=True, positional=True,
    help="A run, its folder, a name on the hub, or a model of transformers with its tokenizer.",
)  # fmt: skip
_BATCH_SIZE = Option(name="batch_size", type="int", default=64, panel=Panel.SPEED, help="Texts at a time.")
EVALUATE = options_of(
    Option(
        name="model", type="Model", panel=Panel.FIRST, required=True, positional=True,
        help="A run, its folder, a name on the hub, or a model of transformers with its tokenizer; several in a list "
        "are compared.",
    ),
    _DATA, _TOKENIZER,
    Option(name="against", type="Model | None", panel=Panel.FIRST, help="A teacher to compare with."),
    Option(
        name="split", type="str | None", panel=Panel.DATA,
        help="train, dev or test, of MNLI also dev_mismatched.  [default: a whole file; else test, or dev]",
    ),
    _METRIC, _BATCH_SIZE,
    Option(
        name="predictions", type="StrPath | None", panel=Panel.OUTPUT,
        help="File for every example and what the model made of it.",
    ),
    Option(
        name="submission", type="StrPath | None", panel=Panel.OUTPUT,
        help="Folder for predictions on a GLUE task's test split, in the leaderboard's format.",
    ),
    _overwrite("Replace files of predictions and submission."),
    *_SAYING, DataSettings, *_INPUTS, leave_out=("unlabelled",), inherited=_AS_ITS_RUN,
)  # fmt: skip
COMPARE = options_of(
    Option(
        name="runs", type="Sequence[Result | StrPath]", panel=Panel.FIRST, required=True, positional=True,
        help="Finished runs, or their folders, and folders of exports.",
    ),
    Option(
        name="baseline", type="Result | StrPath | None", panel=Panel.FIRST,
        help="The run that the others are compared with.  [default: the first student]",
    ),
    Option(
        name="metric", type="str | None", panel=Panel.FIRST,
        help="The metric to compare.  [default: the first, a task's official one]",
    ),
)  # fmt: skip
DIAGNOSE = options_of(
    Option(
        name="run", type="Result | StrPath", panel=Panel.FIRST, required=True, positional=True,
        help="A finished run, or its folder.",
    ),
    Option(
        name="probe", type="bool", default=False, panel=Panel.FIRST,
        help="Also try other starts of the student, for 48 steps each.",
    ),
    Option(
        name="difference", type="float", default=5.0, panel=Panel.FIRST,
        help="The difference of two models, in points, that the scores should be able to show.",
    ),
    *_SAYING,
)  # fmt: skip
REPORT = options_of(
    Option(
        name="places", type="Sequence[Result | StrPath] | Result | StrPath", panel=Panel.FIRST, required=True,
        positional=True, help="Finished runs, folders of runs and studies, .json files of analyses; one or several.",
    ),
    Option(name="out", type="StrPath", default="report.html", panel=Panel.FIRST, help="The page to write."),
    _overwrite("Replace the page in out."), *_SAYING,
)  # fmt: skip
PREDICT = options_of(
    _MODEL,
    Option(
        name="data", type="Data", panel=Panel.FIRST, required=True,
        help="A file with texts, a list of texts, or a table in memory.",
    ),
    Option(
        name="out", type="StrPath | None", panel=Panel.FIRST,
        help="File to write; its suffix decides the format.  [default: none, the table is returned]",
    ),
    _overwrite("Replace the file in out, once all rows are written."),
    _TOKENIZER, _BATCH_SIZE, *_SAYING, DataSettings, *_INPUTS,
    leave_out=("task", "data_dir", "label", "regression", "multi_label", "label_separator", "max_classes", "unlabelled",
               "target", "max_target_length"),
    inherited=_AS_ITS_RUN,
)  # fmt: skip


def _of_analyses() -> list[Option]:
    """Return the settings of all analyses; the default of each is that of its analysis."""
    found: dict[str, Option] = {}
    for analysis in ANALYSES.values():
        for option in of_group(analysis.settings):
            kind = option.type if option.type.endswith("| None") else f"{option.type} | None"
            kind = "Model | None" if option.name == "teacher" else kind
            found.setdefault(option.name, replace(option, type=kind, default=None))
    of = {name: [one.name for one in ANALYSES.values() if name in setting_names(one.settings)] for name in found}
    whole = len([one for one in ANALYSES.values() if one.reads])
    return [
        option if len(of[name]) >= whole else replace(option, help=f"{option.help} ({', '.join(of[name])})")
        for name, option in found.items()
    ]


ANALYSIS = options_of(
    Option(
        name="name", type="str", panel=Panel.FIRST, required=True, positional=True,
        help=f"The analysis: {', '.join(ANALYSES)}.",
    ),
    Option(
        name="models", type="Model | Sequence[Model]", panel=Panel.FIRST, required=True, positional=True,
        help="A run, a folder, a name on the hub, or a model of transformers with its tokenizer; of several a list.",
    ),
    _DATA, _TOKENIZER,
    Option(
        name="out", type="StrPath | None", panel=Panel.FIRST,
        help="Folder for NAME.json, .svg and .png.  [default: nothing is written]",
    ),
    _overwrite("Replace earlier files in out."),
    *_of_analyses(), *_SAYING, DataSettings, GenerationSettings, inherited=_as_trained("model"),
)  # fmt: skip
EXPORT = options_of(
    _MODEL, _DATA, _TOKENIZER,
    Option(name="out", type="StrPath", panel=Panel.FIRST, required=True, help="Folder to write."),
    Option(name="int8", type="bool", default=False, panel=Panel.FIRST, help="Write an int8 file too."),
    Option(
        name="split", type="str | None", panel=Panel.DATA,
        help="Split to compare on.  [default: dev; of a whole file all]",
    ),
    Option(
        name="min_agreement", type="float", default=99.9, panel=Panel.OUTPUT,
        help="Least agreement with the checkpoint, in percent.",
    ),
    Option(
        name="min_agreement_int8", type="float", default=98.0, panel=Panel.OUTPUT, help="The same for the int8 file.",
    ),
    Option(name="force", type="bool", default=False, panel=Panel.OUTPUT, help="Write files that agree less."),
    _overwrite("Replace an earlier export in out."),
    _PUSH,
    _BATCH_SIZE,
    Option(name="latency", type="bool", default=True, panel=Panel.SPEED, help="Measure latency too."),
    *_SAYING, DataSettings, leave_out=("unlabelled",), inherited=_as_trained("model"),
)  # fmt: skip
