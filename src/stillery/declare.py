"""How a part says what it is, where it is defined: its word, what it does, what it needs, what it is a mean over.

    @declare.distance("huber", "squared near 0, absolute beyond", over="elements")
    def huber(student, teacher, mask=None, reduction="mean", key_mask=None): ...

Nothing else has to be told of it: `--distance huber`, the help, the checks before a run and `stillery methods --parts`
know it by themselves. Word and help text are written out as texts, since they are read from the source too
(`stillery.words`). A part without a declaration works as well, in a recipe of one's own.

What a default of a method comes from stands beside it: `temperature: Grid[float] = 10.0`. Under which heading a file's
methods are listed is its `GROUP`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from stillery.errors import UserError, nearest
from stillery.recipe import Representation

__all__ = [
    "Code",
    "Declared",
    "Grid",
    "Group",
    "Inferred",
    "Over",
    "Paper",
    "ThirdParty",
    "batch_reduction",
    "combination",
    "declared",
    "distance",
    "divergence",
    "facts_of",
    "find",
    "flow",
    "known",
    "of_module",
    "option_of",
    "pairing",
    "projection",
    "reduction",
    "representation",
    "schedule",
    "sources_of",
    "takes",
    "token_divergence",
    "try_first",
    "turn_of",
]

Part = TypeVar("Part", bound=Callable[..., Any])
Value = TypeVar("Value")

Paper = Annotated[Value, "paper"]
"""A default that the paper states."""

Grid = Annotated[Value, "grid"]
"""One value of the grid the paper searched."""

Code = Annotated[Value, "code"]
"""From the released code, where the paper is silent or plainly a misprint."""

ThirdParty = Annotated[Value, "third party"]
"""From others' code or descriptions, where neither paper nor released code was to be had."""

Inferred = Annotated[Value, "inferred"]
"""Chosen here, with a reason in the method's docstring or in docs/methods.md."""


class Group(StrEnum):
    """Under which heading the methods of a file are listed, in this order."""

    FIRST = "To try first"
    BASELINE = "Without layers"
    ONE_TO_ONE = "States, layer by layer"
    SEVERAL = "No choice of layers: drawn, mixed, or all of them"
    ATTENTION = "Attention and relations too"
    CLASSIFIER = "The teacher's classifier, reused"
    INSTALLED = "Installed packages"


Over = Literal["elements", "rows", "examples"]
"""What a distance is a mean over: valid elements, valid rows, or examples."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Declared:
    """What a part says about itself.

    `over` is what a distance, or a reduction, is a mean over; None: a sum. A distance that is `rowwise` measures each
    row by itself, so that rows of several layers can be measured in one go. What holds `together` depends on who shares
    a batch: cutting a step into micro-batches changes it, and that is known. A pairing that is not `of_layers` is no
    choice of layers: no switch changes it, and it is left out where a model has no such pair. `uses` are the parts it
    comes with, by kind: a word, or a word and options. `needs` is what it has to be given. A `raw` divergence compares
    outputs as they are, without a softmax.
    """

    kind: str
    word: str | None
    help: str
    part: Any = None
    over: Over | None = None
    rowwise: bool = False
    together: bool = False
    of_layers: bool = True
    uses: Mapping[str, str | tuple[str, Mapping[str, Any]]] = field(default_factory=lambda: MappingProxyType({}))
    needs: tuple[Literal["similarity"], ...] = ()
    raw: bool = False
    module: str = ""


_KNOWN: dict[tuple[str, str], Declared] = {}


def _note(said: Declared, part: Any) -> None:
    """Remember a part by its word; a file that is run again replaces its own."""
    module = str(getattr(part, "__module__", ""))
    made = Declared(**{**vars(said), "part": part, "module": module})
    if said.kind != "representation" and not isinstance(part, str):
        part.__declared__ = made
    if said.word is None:
        return
    before = _KNOWN.get((said.kind, said.word))
    if before is not None and before.module != module:
        raise UserError(
            f"two parts are called {said.kind} {said.word!r}: one of {before.module}, one of {module}; rename one"
        )
    _KNOWN[said.kind, said.word] = made


def _declaring(said: Declared) -> Callable[[Part], Part]:
    def declare(part: Part) -> Part:
        _note(said, part)
        return part

    return declare


def distance(
    word: str | None,
    help: str,  # noqa: A002
    *,
    over: Over = "elements",
    rowwise: bool = False,
    together: bool = False,
) -> Callable[[Part], Part]:
    """Declare a distance: (student rows, teacher rows, mask=, reduction=, key_mask=) -> its mean, or a sum and a count.

    It takes those of the keywords that it has a use for.
    """
    said = Declared(kind="distance", word=word, help=help, over=over, rowwise=rowwise, together=together)
    return _declaring(said)


def pairing(
    word: str | None,
    help: str,  # noqa: A002
    *,
    of_layers: bool = True,
    uses: Mapping[str, str | tuple[str, Mapping[str, Any]]] = MappingProxyType({}),
    needs: tuple[Literal["similarity"], ...] = (),
) -> Callable[[Part], Part]:
    """Declare a pairing: (student layers, teacher layers, clock) -> [(student layer, teacher layer), ...].

    One that needs the `similarity` is given it by that keyword: a row for each of the student's layers, a column for
    each of the teacher's, the embedding output first, measured once before training.
    """
    return _declaring(Declared(kind="pairing", word=word, help=help, of_layers=of_layers, uses=uses, needs=needs))


def representation(word: str, help: str, what: Representation) -> Representation:  # noqa: A002
    """Declare a representation, and give it back."""
    show: Any = what.show
    while isinstance(show, partial):
        show = show.func
    said = Declared(kind="representation", word=word, help=help, part=what, module=str(show.__module__))
    before = _KNOWN.get(("representation", word))
    if before is not None and before.module != said.module:
        raise UserError(
            f"two parts are called representation {word!r}: one of {before.module}, one of {said.module}; rename one"
        )
    _KNOWN["representation", word] = said
    return what


def divergence(word: str, help: str, *, raw: bool = False) -> Callable[[Part], Part]:  # noqa: A002
    """Declare a divergence of predictions: the mean over the batch."""
    return _declaring(Declared(kind="divergence", word=word, help=help, raw=raw))


def token_divergence(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare how the divergence of that word is measured token by token."""
    return _declaring(Declared(kind="token_divergence", word=word, help=help))


def combination(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare how one target is made of several teacher layers."""
    return _declaring(Declared(kind="combination", word=word, help=help))


def projection(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare a trainable map between widths."""
    return _declaring(Declared(kind="projection", word=word, help=help))


def flow(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare what gives every pair its weight in the sum."""
    return _declaring(Declared(kind="flow", word=word, help=help))


def schedule(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare how the losses of a method are spread over stages."""
    return _declaring(Declared(kind="schedule", word=word, help=help))


def batch_reduction(word: str, help: str, *, over: Over | None) -> str:  # noqa: A002
    """Declare a reduction that depends on the batch size: for methods that are known with it, not for a switch."""
    return reduction(word, help, over=over, together=True)


def reduction(word: str, help: str, *, over: Over | None, together: bool = False) -> str:  # noqa: A002
    """Declare how a distance over the elements of rows is reduced, and give its word back."""
    _KNOWN["reduction", word] = Declared(
        kind="reduction", word=word, help=help, part=word, over=over, together=together, module=__name__
    )
    return word


def facts_of(part: Any) -> Declared | None:
    """What a part says about itself, with options fixed or not; None where it says nothing."""
    while isinstance(part, partial):
        part = part.func
    found = getattr(part, "__declared__", None)
    return found if isinstance(found, Declared) else None


def find(kind: str, word: str) -> Declared:
    """The part of that kind and word among those that were loaded."""
    try:
        return _KNOWN[kind, word]
    except KeyError:
        others = [name for of, name in _KNOWN if of == kind]
        raise UserError(f"there is no {kind} {word!r}: {nearest(word, others)}") from None


def known(kind: str, word: str) -> Declared | None:
    """The part of that kind and word among those that were loaded, or None."""
    return _KNOWN.get((kind, word))


def declared(kind: str | None = None) -> list[Declared]:
    """The parts that were loaded, of one kind or of all, in the order of their declarations."""
    return [one for (of, _), one in _KNOWN.items() if kind in (None, of)]


def of_module(kind: str, module: str) -> dict[str, Any]:
    """The parts of a kind that a module declares, by their words."""
    return {word: one.part for (of, word), one in _KNOWN.items() if of == kind and one.module == module}


def takes(part: Callable[..., Any], name: str) -> bool:
    """Whether a part has a keyword of that name that is still free to be given or changed."""
    while isinstance(part, partial):
        part = part.func
    found = _parameters(part)
    return name in found or any(one.kind is Parameter.VAR_KEYWORD for one in found.values())


def option_of(part: Callable[..., Any], name: str) -> Any:
    """What an option of a part is set to, or its default; None where it has no such option."""
    while isinstance(part, partial):
        if name in part.keywords:
            return part.keywords[name]
        part = part.func
    found = _parameters(part).get(name)
    return None if found is None or found.default is Parameter.empty else found.default


@cache
def _parameters(part: Callable[..., Any]) -> Mapping[str, Parameter]:
    try:
        return signature(part).parameters
    except (TypeError, ValueError):
        return {}


def sources_of(method: Callable[..., Any]) -> dict[str, str]:
    """Where each default of a method comes from, as its signature says."""
    found = {}
    for name, hint in typing.get_type_hints(method, include_extras=True).items():
        if name != "return" and typing.get_origin(hint) is Annotated:
            found[name] = str(hint.__metadata__[0])
    return found


def try_first(turn: int) -> Callable[[Part], Part]:
    """Mark a method as one of the few to try first; `turn` says in which order."""

    def mark(method: Part) -> Part:
        marked: Any = method
        marked.__try_first__ = turn
        return method

    return mark


def turn_of(method: Callable[..., Any]) -> int | None:
    """In which order a method is to be tried first, or None where it is none of those."""
    found = getattr(method, "__try_first__", None)
    return found if isinstance(found, int) else None
