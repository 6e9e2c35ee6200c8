"""The jobs as functions; their signatures and docstrings are generated from `stillery.api.options`."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stillery.api.options import (
    ANALYSIS,
    COMPARE,
    DIAGNOSE,
    DISTILL,
    EVALUATE,
    EXPORT,
    FINETUNE,
    PREDICT,
    REPORT,
    SHRINK,
)
from stillery.api.signatures import Option, described
from stillery.errors import ErrorList, UserError
from stillery.verbosity import Verbosity, verbosity_as

if TYPE_CHECKING:
    from stillery.analyse.finding import Finding
    from stillery.api.given import Given
    from stillery.jobs.comparison.result import Comparison
    from stillery.jobs.config.settings import Asked
    from stillery.jobs.diagnosis.findings import Diagnosis
    from stillery.jobs.exported import Exported
    from stillery.jobs.from_python import FromPython
    from stillery.jobs.result import Result
    from stillery.study.shrink.run import Shrunk

__all__ = [
    "analysis",
    "compare",
    "diagnose",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "predict",
    "report",
    "score",
    "shrink",
]

_CALLBACKS = ("on_step", "on_score")

Run = TypeVar("Run")
Function = TypeVar("Function", bound=Callable[..., Any])


def _saying(function: Function) -> Function:
    """Add the keywords `quiet` and `verbose`, which set the verbosity while the function runs."""

    @functools.wraps(function)
    def run(*given: Any, quiet: bool = False, verbose: bool = False, **named: Any) -> Any:
        if quiet and verbose:
            raise UserError("both quiet and verbose are given: give one")
        with verbosity_as(Verbosity.of(quiet=quiet, verbose=verbose)):
            return function(*given, **named)

    return cast(Function, run)


@described(FINETUNE, "Result")
@_saying
def finetune(**given: Any) -> Result:
    """Fine-tune a pretrained model on labelled examples, and write a run folder.

    Options have the names of the command line's, with underscores.
    """
    from stillery.api.given import given as taken
    from stillery.jobs.config.settings import Finetune
    from stillery.jobs.first_checks import check_first
    from stillery.jobs.push import check_push, push_result

    out = _out(given, "finetune")
    with taken(out) as memory:
        asked, functions = _asked(Finetune, given, memory, subject="model")
        check_first(asked, out, **_anew(given))
        check_push(given.get("push_to_hub"))
        from stillery.jobs.finetune import run_finetune

        result = run_finetune(asked, out, **_anew(given), given=functions)
        push_result(result, given.get("push_to_hub"))
        return result


@described(DISTILL, "Result")
@_saying
def distill(**given: Any) -> Result:
    """Distil a fine-tuned teacher into a smaller student, and write a run folder.

    Options have the names of the command line's, with underscores.
    """
    from stillery.api.given import given as taken
    from stillery.jobs.config.settings import Distill
    from stillery.jobs.first_checks import check_first
    from stillery.jobs.push import check_push, push_result

    out, recipe = _out(given, "distill"), given.get("recipe")
    own = None if isinstance(recipe, str) else recipe
    with taken(out) as memory:
        given = given | ({} if own is None else {"recipe": "given in Python"})
        asked, functions = _asked(Distill, given, memory, subject="teacher")
        check_first(asked, out, **_anew(given))
        check_push(given.get("push_to_hub"))
        from stillery.jobs.distill import run_distill

        result = run_distill(asked, out, **_anew(given), recipe=own, given=functions)
        push_result(result, given.get("push_to_hub"))
        return result


@described(SHRINK, "Shrunk")
@_saying
def shrink(**given: Any) -> Shrunk:
    """Find the smallest student within a margin of its teacher, or the best one under a limit.

    The result prints the curve and what it says; `recommended` is the folder of a model. Options have the names of the
    command line's, with underscores.
    """
    from stillery.api.searching import search

    _only_known(given, SHRINK)
    return search(given, _out(given, "shrink"), _plain(given))


@described(EVALUATE, "dict[str, Any] | Comparison")
@_saying
def evaluate(model: Any, **given: Any) -> Any:
    """Score a model on labelled examples, with 95% intervals, and beside its teacher; or compare several models.

    Returns the dictionary that `stillery evaluate --json` prints, of a list of models a Comparison: the table, and
    paired differences from the first. Options have the names of the command line's, with underscores.
    """
    from stillery.api.given import given as taken
    from stillery.jobs.first_checks import check_scoring

    metric = given.get("metric")
    extra = ("tokenizer", "against", "split", "batch_size", "predictions", "submission", "overwrite")
    own = extra if isinstance(metric, str) else (*extra, "metric")
    settings = _plain({name: value for name, value in given.items() if name not in own})
    with taken() as memory:
        _only_known(given, EVALUATE)
        teacher = memory.model(given.get("against"), "against")
        if isinstance(model, list | tuple):
            return _compare_scored(model, teacher, settings, given, memory)
        place = memory.model(model, "model", given.get("tokenizer"))
        settings["data"] = memory.data(settings.get("data"))
        predictions, submission = _path(given.get("predictions")), _path(given.get("submission"))
        overwrite = bool(given.get("overwrite"))
        check_scoring(
            (place, teacher), settings["data"], settings.get("data_dir"), file=("predictions", predictions),
            submission=submission, overwrite=overwrite,
        )  # fmt: skip
        from stillery.jobs.config.inherited import as_trained, reading_of
        from stillery.jobs.evaluate import Request, run_evaluate

        return run_evaluate(
            Request(
                model=place,
                inputs=as_trained(place, settings),
                against=teacher,
                theirs=None if teacher is None else reading_of(teacher, settings),
                split=given.get("split"),
                batch_size=given.get("batch_size", 64),
                predictions=predictions,
                submission=submission,
                overwrite=overwrite,
                metric=metric if callable(metric) else None,
            )
        )


def _compare_scored(
    models: Sequence[Any], teacher: str | None, settings: dict[str, Any], given: Mapping[str, Any], memory: Given
) -> Comparison:
    """Score several models on the same data, and compare them."""
    from stillery.jobs.comparison.scored import Several, compare_scored, refuse_for_several

    refuse_for_several(**{name: given.get(name) for name in ("tokenizer", "predictions", "submission")})
    if not models:
        raise UserError("model is an empty list: give one model, or several to compare")
    places = [memory.model(one, f"model[{place}]") for place, one in enumerate(models)]
    settings["data"] = memory.data(settings.get("data"))
    metric, split, size = given.get("metric"), given.get("split"), given.get("batch_size", 64)
    own = metric if callable(metric) else None
    return compare_scored(Several.of(places, teacher, settings, split=split, batch_size=size, metric=own))


@described(COMPARE, "Comparison")
def compare(runs: Sequence[Any], **given: Any) -> Comparison:
    """Show finished runs and their teachers in one table, with paired differences; no model is loaded.

    The runs must have been scored on the same examples. With folders of exports among them, all models are scored, on
    the examples of the first run. The result prints the table, also at the end of a notebook's cell; its rows and
    differences are data.
    """
    from stillery.jobs.comparison.compare import compare_runs

    _only_known(given, COMPARE)
    if isinstance(runs, str | os.PathLike) or hasattr(runs, "metrics"):
        runs = [runs]
    if not runs:
        raise UserError("runs is empty: give finished runs, or their folders")
    baseline = given.get("baseline")
    return compare_runs(
        [_run(one) for one in runs],
        baseline=None if baseline is None else _run(baseline),
        metric=given.get("metric"),
    )


@described(DIAGNOSE, "Diagnosis")
@_saying
def diagnose(run: Any, **given: Any) -> Diagnosis:
    """Say why a student may be bad: each cause with its number and the option to change.

    The result prints as text, also at the end of a notebook's cell; its findings are data.
    """
    from stillery.jobs.diagnosis.diagnose import diagnose as examine

    _only_known(given, DIAGNOSE)
    difference = given.get("difference", 5.0)
    if isinstance(difference, bool) or not isinstance(difference, int | float) or not difference > 0:
        raise UserError(f"difference is {difference!r}: give a number of points above 0")
    return examine(_run(run), probe=bool(given.get("probe")), difference=float(difference))


@described(REPORT, "Path")
@_saying
def report(places: Any, **given: Any) -> Path:
    """Write one HTML page of runs and studies, and return its path; no model is loaded.

    It needs no network and opens from disk: scores with intervals, costs, learning curves, and the examples on which
    teachers and students disagree.
    """
    from stillery.reports.write import write_report

    _only_known(given, REPORT)
    if isinstance(places, str | os.PathLike) or hasattr(places, "metrics"):
        places = [places]
    if not places:
        raise UserError("places is empty: give finished runs, or folders of runs and studies")
    out = Path(given.get("out") or "report.html")
    return write_report([_run(one) for one in places], out, overwrite=bool(given.get("overwrite")))


def _run(value: Any) -> str:
    """Return the folder of a run that is given as a result, or as a path."""
    from stillery.jobs.result import Result

    if isinstance(value, Result):
        return str(value.out)
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    raise UserError(f"a run is a {type(value).__qualname__}: give what finetune or distill returned, or a folder")


@described(EVALUATE, "dict[str, Any] | Comparison")
def score(model: Any, **given: Any) -> Any:
    """The old name of `stillery.evaluate`, which does the same."""
    return evaluate(model, **given)


@described(PREDICT, "Any")
@_saying
def predict(model: Any, **given: Any) -> Any:
    """Add a model's predictions to texts: labels and probabilities, or the texts that it generates.

    With `out` the rows are written there, and their number is returned. Without, they are returned as a table of the
    kind that was given: a DataFrame of pandas or polars or a pyarrow Table; of anything else a pandas DataFrame, where
    pandas is not installed a pyarrow Table.
    """
    from stillery.api.frames import like
    from stillery.api.given import given as taken
    from stillery.jobs.first_checks import check_scoring

    with taken() as memory:
        _only_known(given, PREDICT)
        if given.get("data") is None:
            raise UserError("data is not given: give a file, a list of texts, or a table")
        data, out = given["data"], _path(given.get("out"))
        settings = {name: value for name, value in given.items() if name not in ("data", "out", "tokenizer")}
        place = memory.model(model, "model", given.get("tokenizer"))
        file = Path(memory.data(data))
        check_scoring((place,), file, file=("out", out), overwrite=bool(given.get("overwrite")))
        from stillery.jobs.predict import run_predict

        if out is not None:
            return run_predict(place, file, out, **settings)
        written = memory.folder / "predictions.parquet"
        run_predict(place, file, written, **settings)
        return like(data, written)


@described(ANALYSIS, "Finding")
@_saying
def analysis(name: str, models: Any, **given: Any) -> Finding:
    """Carry out one of the papers' analyses on models or runs; see `stillery analyse --help` for what each shows.

    The result has arrays (`data`), one sentence that reads them, a Vega-Lite specification of the picture (`spec`) and
    a short table. With `out` it is also written as NAME.json, NAME.svg and NAME.png.
    """
    from stillery.api.given import given as taken

    with taken() as memory:
        _only_known(given, ANALYSIS)
        from stillery.jobs.analyses.write import analysed

        several = list(models) if isinstance(models, list | tuple) else [models]
        tokenizer = given.get("tokenizer")
        places = [
            memory.model(one, f"models[{place}]" if len(several) > 1 else "models", tokenizer)
            for place, one in enumerate(several)
        ]
        own = ("out", "overwrite", "tokenizer")
        values = _plain({key: value for key, value in given.items() if key not in own})
        values["data"] = memory.data(values.get("data"))
        values["teacher"] = memory.model(values.get("teacher"), "teacher")
        return analysed(name, places, values, _path(given.get("out")), overwrite=bool(given.get("overwrite")))


@described(EXPORT, "Exported")
@_saying
def export(model: Any, **given: Any) -> Exported:
    """Write a trained encoder as ONNX and int8, if it still predicts what its checkpoint predicts.

    It is compared on real examples, those of its run's dev split or of data or task. The result prints the table of
    checkpoint, ONNX and int8; `record` is the contents of `export.json`.
    """
    from stillery.api.given import given as taken
    from stillery.jobs.first_checks import check_scoring
    from stillery.jobs.push import check_push, push

    own = ("out", "int8", "split", "min_agreement", "min_agreement_int8", "force", "overwrite", "batch_size", "latency")
    apart = (*own, "push_to_hub", "tokenizer")
    with taken() as memory:
        _only_known(given, EXPORT)
        if given.get("out") is None:
            raise UserError("out is not given: give the folder to write")
        settings = _plain({name: value for name, value in given.items() if name not in apart})
        place = memory.model(model, "model", given.get("tokenizer"))
        settings["data"] = memory.data(settings.get("data"))
        check_scoring((place,), settings["data"], settings.get("data_dir"))
        check_push(given.get("push_to_hub"))
        from stillery.jobs.export import Request, run_export

        names = {"min_agreement": "least", "min_agreement_int8": "least_int8"}
        said = {names.get(name, name): given[name] for name in own if given.get(name) is not None}
        found = run_export(Request(model=place, settings=settings, named=str, **said | {"out": Path(given["out"])}))
        push(found.out, given.get("push_to_hub"))
        return found


def _anew(given: Mapping[str, Any]) -> dict[str, bool]:
    """Return the keywords `resume` and `overwrite` as truth values."""
    return {name: bool(given.get(name)) for name in ("resume", "overwrite")}


def _out(given: Mapping[str, Any], job: str) -> Path:
    """Return the folder of a run; a temporary one if none is given."""
    from stillery.api.given import temporary_run

    out = given.get("out")
    if out is None and given.get("resume"):
        raise UserError("resume continues the run in a folder, and out is not given: name the folder")
    if out is None and "output_dir" in given:
        raise UserError("output_dir is not a setting: it is called out here")
    return temporary_run(job) if out is None else Path(out)


def _asked(kind: type[Run], given: Mapping[str, Any], memory: Given, *, subject: str) -> tuple[Asked[Any], FromPython]:
    """Return the requested run, with objects in memory saved as files, and the functions given in Python."""
    from stillery.jobs.config.run_file import ask
    from stillery.jobs.from_python import FromPython

    errors = ErrorList()
    functions = {name: given.get(name) for name in (*_CALLBACKS, "metric")}
    if isinstance(functions["metric"], str):
        functions["metric"] = None
    for name, function in functions.items():
        if function is not None and not callable(function):
            errors.add(f"{name} is a {type(function).__qualname__}: give a function")
    # A metric given by name is a setting.
    metric = [] if isinstance(given.get("metric"), str) else ["metric"]
    own = {"out", "config", "resume", "overwrite", "push_to_hub", "tokenizer", *_CALLBACKS, *metric}
    settings = _plain({name: value for name, value in given.items() if name not in own})
    tokenizers = {subject: given.get("tokenizer"), "ild_teacher": None}
    wrong: set[str] = set()
    for name in (*tokenizers, "data", "ild_data"):
        before = len(errors.lines)
        with errors.catch():
            if name in tokenizers and (name in given or tokenizers[name] is not None):
                settings[name] = memory.model(given.get(name), name, tokenizers[name])
            elif name in given:
                settings[name] = memory.data(given[name], name, trains=name == "data")
        if len(errors.lines) > before:
            # A placeholder, so that it is not reported as missing too; it is never read.
            settings[name] = name if name in (subject, "data") else None
            wrong.add(name)
    found = FromPython(staged=memory.staged, **functions)
    asked: Asked[Any] = ask(kind, settings | {"given_in_python": found.functions}, _path(given.get("config")))
    if errors.lines:
        asked = dataclasses.replace(asked, errors=(*asked.errors, *errors.lines), wrong=asked.wrong | wrong)
    return asked, found


def _only_known(given: Mapping[str, Any], options: Sequence[Option]) -> None:
    """Raise UserError for unknown keywords."""
    from stillery.jobs.config.other_names import not_a_setting

    known = [option.name for option in options]
    errors = ErrorList()
    for name in given:
        if name not in known:
            errors.add(not_a_setting(name, known))
    errors.raise_any()


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in settings.items()}


def _path(value: Any) -> Path | None:
    return None if value is None else Path(value)
