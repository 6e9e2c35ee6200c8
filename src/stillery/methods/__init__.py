"""Distillation methods, one short file per paper.

A method is a function of keyword options that returns a `Recipe`. A file's `__all__` lists its methods, its `GROUP` is
the heading they are listed under, and the first line of its docstring names the paper. The command-line name of a
method is its function name with dashes. Its options are its keywords, and each default states its source
(`stillery.declare`). Installed packages provide such files by entry points (`stillery.words`).
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from stillery.declare import Group, sources_of, turn_of
from stillery.errors import ErrorList, UserError, nearest
from stillery.losses import (
    BatchFacts,
    Between,
    Kind,
    Mixed,
    ModelOutputs,
    StageModules,
    Views,
    judges_of,
    modules_of,
    stage_pairs,
    stage_terms,
)
from stillery.outputs import StackOutputs
from stillery.recipe import Clock, Match, Recipe, StackName, Stage, part_name
from stillery.stacks import Which, on_stacks
from stillery.words import METHODS, Plugin, plugins

__all__ = ["Method", "build", "describe", "describe_stages", "find", "listed", "names", "terms"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A named method: the function that builds its recipe, its paper, and the heading it is listed under.

    `turn` is its place among the methods to try first, None for all others.
    """

    name: str
    function: Callable[..., Recipe]
    paper: str
    group: Group
    turn: int | None = None

    @property
    def summary(self) -> str:
        """The first line of the method's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n\n")[0].replace("\n", " ")

    @property
    def options(self) -> dict[str, Any]:
        """Option names and their defaults."""
        return {name: given.default for name, given in inspect.signature(self.function).parameters.items()}

    @property
    def sources(self) -> dict[str, str]:
        """The source of each default: paper, code, ..."""
        found = sources_of(self.function)
        return {name: found.get(name, "not stated") for name in self.options}


@cache
def _methods() -> dict[str, Method]:
    found: dict[str, Method] = {}
    files = sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))
    modules = [importlib.import_module(f"{__name__}.{file}") for file in files]
    others = [_imported(plugin) for plugin in plugins(METHODS)]
    for module in (*modules, *others):
        # Methods of packages are listed under one heading, whatever their own GROUP is.
        installed = module in others
        group = Group.INSTALLED if installed else module.GROUP
        paper = (module.__doc__ or "").strip().split("\n")[0].rstrip(".")
        for function_name in module.__all__:
            name = function_name.replace("_", "-")
            if name in found:
                before = found[name].function.__module__
                raise UserError(
                    f"two methods are called {name!r}: one of {before}, one of {module.__name__}; rename one"
                )
            function = getattr(module, function_name)
            turn = None if installed else turn_of(function)
            found[name] = Method(name=name, function=function, paper=paper, group=group, turn=turn)
    return found


def _imported(plugin: Plugin) -> types.ModuleType:
    """The module of methods of an installed package."""
    try:
        module = importlib.import_module(plugin.module)
        if not all(callable(getattr(module, name)) for name in module.__all__):
            raise TypeError("its __all__ lists something that is not a function")
    except Exception as error:  # a package's own code may raise anything
        raise UserError(
            f"the installed methods {plugin.name} ({plugin.module}) cannot be loaded: {type(error).__name__}: {error}"
        ) from None
    return module


def names() -> list[str]:
    """The names of all methods."""
    return list(_methods())


def listed() -> dict[Group, list[Method]]:
    """All methods by heading; those to try first come first, in their order."""
    known = list(_methods().values())
    found = {group: [one for one in known if one.turn is None and one.group is group] for group in Group}
    found[Group.FIRST] = sorted((one for one in known if one.turn is not None), key=lambda one: one.turn or 0)
    return {group: methods for group, methods in found.items() if methods}


def find(name: str) -> Method:
    """The method of that name."""
    try:
        return _methods()[name]
    except KeyError:
        raise UserError(f"unknown method {name!r}: {nearest(name, names())} (see `stillery methods`)") from None


def build(name: str, options: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a method with the given options; wrong options are reported together.

    >>> build("kd", {"temperature": 4}).stages[0].prediction.temperature
    4.0
    """
    method = find(name)
    hints = typing.get_type_hints(method.function)
    errors, values = ErrorList(), {}
    for key, value in (options or {}).items():
        if key not in method.options:
            hint = nearest(key, method.options)
            errors.add(f"method {name} has no option {key!r}: {hint}")
            continue
        with errors.catch():
            values[key] = _as_type(value, hints[key], f"option {key} of method {name}")
    errors.raise_any()
    return method.function(**values)


def _as_type(value: Any, hint: Any, what: str) -> Any:
    """The value in the option's type, parsed from text where it comes from the command line."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(None) in kinds and value is None:
        return None
    for kind in kinds:
        if typing.get_origin(kind) is typing.Literal:
            choices = typing.get_args(kind)
            if value in choices:
                return value
            raise UserError(f"{what} is {value!r}: choose from {', '.join(map(str, choices))}")
        if kind is bool:
            if isinstance(value, bool):
                return value
            if str(value).lower() in ("true", "false"):
                return str(value).lower() == "true"
            raise UserError(f"{what} is {value!r}: choose true or false")
        if kind in (int, float) and not isinstance(value, bool):
            return _as_number(value, kind, what)
    raise UserError(f"{what} is {value!r}: its type {hint} is not supported")


def _as_number(value: Any, kind: type, what: str) -> int | float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UserError(f"{what} is {value!r}: give a number") from None
    if not math.isfinite(number) or number < 0:
        raise UserError(f"{what} is {value!r}: give a number of at least 0")
    if kind is float:
        return number
    if number != int(number) or number < 1:
        raise UserError(f"{what} is {value!r}: give a whole number of at least 1")
    return int(number)


def _describe_match(match: Match) -> dict[str, Any]:
    return {
        "name": match.name,
        "represent": part_name(match.represent),
        "pair": part_name(match.pair),
        "combine": part_name(match.combine) if match.combine else None,
        "flow": part_name(match.flow) if match.flow else None,
        "judge": part_name(match.criterion) if match.criterion else None,
        "project": part_name(match.project) if match.project else None,
        "distance": part_name(match.distance),
        "reduction": match.reduction,
        "over_pairs": match.over_pairs,
        "detach": match.detach,
        "weight": part_name(match.weight) if callable(match.weight) else match.weight,
        "view": match.view,
        "against": match.against,
        **({"stack": match.stack} if match.stack else {}),
    }


def _describe_stage(stage: Stage) -> dict[str, Any]:
    prediction = stage.prediction and {
        "divergence": part_name(stage.prediction.divergence),
        "temperature": stage.prediction.temperature,
        "square": stage.prediction.square,
        "weight": stage.prediction.weight,
    }
    return {
        "name": stage.name,
        "share": stage.share,
        **({"least_steps": stage.least_steps} if stage.least_steps else {}),
        "hard_weight": stage.hard_weight,
        "prediction": prediction,
        "mixing": dataclasses.asdict(stage.mixing) if stage.mixing else None,
        "matches": [_describe_match(match) for match in stage.matches],
    }


def describe_stages(recipe: Recipe) -> list[dict[str, Any]]:
    """The stages of a recipe and their parts as plain data."""
    return [_describe_stage(stage) for stage in recipe.stages]


def describe(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A method as plain data: name, paper, group, summary, options, start, head, and the parts of each stage."""
    method, recipe = find(name), build(name, options)
    return {
        "name": name,
        "paper": method.paper,
        "group": str(method.group),
        "try_first": method.turn is not None,
        "summary": method.summary,
        "details": inspect.getdoc(method.function) or "",
        "options": method.options | dict(options or {}),
        "sources": method.sources,
        "init": recipe.init,
        "start": _start(recipe),
        "head": recipe.head,
        "stages": describe_stages(recipe),
    }


def _start(recipe: Recipe) -> str:
    """The initialisation of the student, and where it comes from."""
    if recipe.init is not None:
        why = "measured; see docs/results/methods.md" if recipe.init_measured else "the paper's"
        return f"{recipe.init} ({why})"
    return "first, or even for a model that generates text (the paper fixes none; see docs/results/starts.md)"


def terms(
    name: str,
    student: ModelOutputs | Views,
    teacher: ModelOutputs | Views,
    batch: Any,
    clock: Clock | None = None,
    *,
    projections: Mapping[str, nn.Module] | None = None,
    flows: Mapping[str, nn.Module] | None = None,
    judges: Mapping[str, nn.Module] | None = None,
    mixed: Mixed | None = None,
    stacks: Which = "both",
    cross_attention: bool = False,
    **options: Any,
) -> dict[str, Tensor]:
    """All loss terms of a method by name, unweighted, computed from two traces.

    `student` and `teacher` are traces (`stillery.models.trace.trace`), or traces by view for a method with MixUp.
    `batch` has the `labels` and, for a criterion with state, the `index` of its examples. `clock.stage` selects the
    stage. Modules that are not given are initialised from the clock's seed, as in a run of that seed. For a model that
    generates text the labels are the targets of its trace; `stacks` and `cross_attention` are those of `on_stacks`.

    It has many parameters because it stands for a whole training step, all of whose inputs may be given.

    >>> terms("kd", student, teacher, batch, Clock())  # doctest: +SKIP
    {'hard': tensor(0.71), 'soft': tensor(0.05)}
    """
    clock = clock or Clock()
    ours, theirs = (one if isinstance(one, Mapping) else {"plain": one} for one in (student, teacher))
    recipe = on_stacks(build(name, options), _models_kind(ours), which=stacks, cross_attention=cross_attention)
    stage = recipe.stages[clock.stage]
    index = getattr(batch, "index", range(len(next(iter(ours.values())).logits)))
    if stage.matches:
        between = {match.stack: _between(ours, theirs, match.stack) for match in stage.matches}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(clock.seed)
            made = modules_of(stage, between, clock)
            judging = judges_of(stage, between, clock, classes=_classes(ours), examples=int(max(index)) + 1)
        projections = made[0] | dict(projections or {})
        flows, judges = made[1] | dict(flows or {}), judging | dict(judges or {})
    facts = BatchFacts(labels=batch.labels, index=torch.as_tensor(index), mixed=mixed, kind=_kind(ours, batch.labels))
    modules = StageModules(projections=projections or {}, flows=flows or {}, judges=judges or {})
    return stage_terms(stage, stage_pairs(stage, ours, theirs, clock), ours, theirs, facts, clock, modules)


def _classes(views: Views) -> int:
    return int(next(iter(views.values())).logits.shape[-1])


def _models_kind(views: Views) -> str:
    """The kind of a model, by the stacks it has."""
    outputs = next(iter(views.values()))
    if outputs.decoder is None:
        return "encoder"
    return "decoder" if outputs.encoder is None else "encoder-decoder"


def _between(student: Views, teacher: Views, name: StackName | None) -> Between:
    left, right = (next(iter(views.values())).stack(name) for views in (student, teacher))
    return Between(depths=(left.depth, right.depth), widths=(_width(left), _width(right)))


def _kind(views: Views, labels: Tensor | None) -> Kind:
    """The kind of prediction, by the stacks of the model and the shapes of logits and labels."""
    outputs = next(iter(views.values()))
    if outputs.logits.ndim == 3:
        return "tags" if outputs.decoder is None else "text"
    if labels is not None and labels.ndim == 2:
        return "labels"
    return "score" if _classes(views) == 1 else "classes"


def _width(stack: StackOutputs) -> int:
    """The width of a stack, by whichever of its outputs there is."""
    outputs = (stack.hidden, stack.query, stack.key, stack.value, stack.cross_query)
    return next(iter(next(values for values in outputs if values).values())).shape[-1]
