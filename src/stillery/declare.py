"""Declarations of parts: decorators that register a distance, a pairing, ... under its name on the command line.

    @declare.distance("huber", "squared near 0, absolute beyond", over="elements")
    def huber(student, teacher, mask=None, reduction="mean", key_mask=None): ...

The declaration is all that is needed for `--distance huber`, the help, the checks before a run and
`stillery methods --parts`. Name and help text are literals, because the command line reads them from the source
(`stillery.words`). A user's own recipe may also use parts without a declaration.

Every default of a method states its source: `temperature: Grid[float] = 10.0`. `GROUP` is the heading under which the
methods of a file are listed.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache, partial, wraps
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from stillery.errors import UserError, nearest
from stillery.recipe import Recipe, Representation

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
    "options",
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
"""A default stated in the paper."""

Grid = Annotated[Value, "grid"]
"""A default from the grid that the paper searched."""

Code = Annotated[Value, "code"]
"""A default from the released code, where the paper does not state it or has a misprint."""

ThirdParty = Annotated[Value, "third party"]
"""A default from third-party code or descriptions, where neither paper nor released code was available."""

Inferred = Annotated[Value, "inferred"]
"""A default chosen here, for a reason given in the method's docstring or in docs/methods.md."""


class Group(StrEnum):
    """The headings under which methods are listed, in this order."""

    FIRST = "To try first"
    BASELINE = "Without layers"
    ONE_TO_ONE = "States, layer by layer"
    SEVERAL = "No choice of layers: drawn, mixed, or all of them"
    ATTENTION = "Attention and relations too"
    CLASSIFIER = "The teacher's classifier, reused"
    INSTALLED = "Installed packages"


Over = Literal["elements", "rows", "examples"]
"""The unit that a distance averages over: valid elements, valid rows, or examples."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Declared:
    """The declaration of a part.

    Attributes:
        kind: distance, pairing, representation, ...
        word: its name on the command line, None for parts that are used in recipes only.
        help: a one-line description.
        part: the part itself.
        over: the unit that a distance or a reduction averages over; None for a sum.
        rowwise: whether a distance treats each row independently, so that rows of several layers can be concatenated.
        together: whether it depends on the batch composition, so that micro-batches change it.
        of_layers: whether a pairing is a choice of layers, which `--pair` may replace. One that is not is left out
            where a model has no such pair.
        uses: the parts that come with a pairing, by kind: a name, or a name and options.
        needs: the measurements that a pairing requires.
        raw: whether a divergence compares outputs without a softmax.
        module: the module that defines it.
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


def _register(declaration: Declared, part: Any) -> None:
    """Register a part under its kind and name; running a file again replaces its own parts."""
    function = part.extract if isinstance(part, Representation) else part
    while isinstance(function, partial):
        function = function.func
    module = str(getattr(function, "__module__", ""))
    made = Declared(**{**vars(declaration), "part": part, "module": module})
    if not isinstance(part, (str, Representation)):
        part.__declared__ = made
    if made.word is None:
        return
    before = _KNOWN.get((made.kind, made.word))
    if before is not None and before.module != module:
        raise UserError(
            f"two parts are called {made.kind} {made.word!r}: one of {before.module}, one of {module}; rename one"
        )
    _KNOWN[made.kind, made.word] = made


def _declaring(declaration: Declared) -> Callable[[Part], Part]:
    def declare(part: Part) -> Part:
        _register(declaration, part)
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

    A distance may omit the keywords that it does not use.
    """
    return _declaring(Declared(kind="distance", word=word, help=help, over=over, rowwise=rowwise, together=together))


def pairing(
    word: str | None,
    help: str,  # noqa: A002
    *,
    of_layers: bool = True,
    uses: Mapping[str, str | tuple[str, Mapping[str, Any]]] = MappingProxyType({}),
    needs: tuple[Literal["similarity"], ...] = (),
) -> Callable[[Part], Part]:
    """Declare a pairing: (student layers, teacher layers, clock) -> [(student layer, teacher layer), ...].

    One that needs the `similarity` receives it as a keyword: a matrix with a row for each student layer and a column
    for each teacher layer, the embedding output first, measured once before training.
    """
    return _declaring(Declared(kind="pairing", word=word, help=help, of_layers=of_layers, uses=uses, needs=needs))


def representation(word: str, help: str, what: Representation) -> Representation:  # noqa: A002
    """Declare a representation and return it."""
    _register(Declared(kind="representation", word=word, help=help), what)
    return what


def divergence(
    word: str | None,
    help: str,  # noqa: A002
    *,
    raw: bool = False,
    together: bool = False,
) -> Callable[[Part], Part]:
    """Declare a divergence of predictions, averaged over the batch; `together` if it compares a batch's examples."""
    return _declaring(Declared(kind="divergence", word=word, help=help, raw=raw, together=together))


def token_divergence(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare the token-level form of the divergence of that name."""
    return _declaring(Declared(kind="token_divergence", word=word, help=help))


def combination(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare a combination of several teacher layers into one target."""
    return _declaring(Declared(kind="combination", word=word, help=help))


def projection(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare a trainable projection between widths."""
    return _declaring(Declared(kind="projection", word=word, help=help))


def flow(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare a flow (optimal transport), which weights each pair of layers in the sum."""
    return _declaring(Declared(kind="flow", word=word, help=help))


def schedule(word: str, help: str) -> Callable[[Part], Part]:  # noqa: A002
    """Declare a schedule, which distributes the losses of a method over stages."""
    return _declaring(Declared(kind="schedule", word=word, help=help))


def batch_reduction(word: str, help: str, *, over: Over | None) -> str:  # noqa: A002
    """Declare a reduction that depends on the batch size; methods may use it, `--reduction` does not offer it."""
    return reduction(word, help, over=over, together=True)


def reduction(word: str, help: str, *, over: Over | None, together: bool = False) -> str:  # noqa: A002
    """Declare a reduction of a distance over the elements of rows, and return its name."""
    _KNOWN["reduction", word] = Declared(
        kind="reduction", word=word, help=help, part=word, over=over, together=together, module=__name__
    )
    return word


def facts_of(part: Any) -> Declared | None:
    """Return the declaration of a part, wrapped in `partial` or not; None if it has none."""
    while isinstance(part, partial):
        part = part.func
    found = getattr(part, "__declared__", None)
    return found if isinstance(found, Declared) else None


def find(kind: str, word: str) -> Declared:
    """Return the loaded part of that kind and name; raise UserError if there is none."""
    try:
        return _KNOWN[kind, word]
    except KeyError:
        others = [name for of, name in _KNOWN if of == kind]
        raise UserError(f"there is no {kind} {word!r}: {nearest(word, others)}") from None


def known(kind: str, word: str) -> Declared | None:
    """Return the loaded part of that kind and name, or None."""
    return _KNOWN.get((kind, word))


def declared(kind: str | None = None) -> list[Declared]:
    """Return the loaded parts of one kind, or of all, in order of declaration."""
    return [one for (of, _), one in _KNOWN.items() if kind in (None, of)]


def of_module(kind: str, module: str) -> dict[str, Any]:
    """Return the parts of a kind that a module declares, by name."""
    return {word: one.part for (of, word), one in _KNOWN.items() if of == kind and one.module == module}


def takes(part: Callable[..., Any], name: str) -> bool:
    """Return whether a part takes a keyword of that name, already set by `partial` or not."""
    while isinstance(part, partial):
        part = part.func
    found = _parameters(part)
    return name in found or any(one.kind is Parameter.VAR_KEYWORD for one in found.values())


def option_of(part: Callable[..., Any], name: str) -> Any:
    """Return an option's value set by `partial`, else its default; None if the part has no such option."""
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


def options(kind: type[Any]) -> Callable[[Callable[[Any], Recipe]], Callable[..., Recipe]]:
    """Give a method the fields of a dataclass as its keyword options; it receives them as one object.

    Methods share such dataclasses for their common options. Each field states its default and the source of it.
    """

    def wrap(method: Callable[[Any], Recipe]) -> Callable[..., Recipe]:
        hints = typing.get_type_hints(kind, include_extras=True)
        wanted = [
            Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
            for one in fields(kind)
        ]

        @wraps(method)
        def build(**values: Any) -> Recipe:
            return method(kind(**values))

        changed: Any = build
        changed.__signature__ = Signature(wanted, return_annotation=Recipe)
        changed.__annotations__ = {one.name: one.annotation for one in wanted} | {"return": Recipe}
        del changed.__wrapped__
        return build

    return wrap


def sources_of(method: Callable[..., Any]) -> dict[str, str]:
    """Return the source of each default of a method, from its signature."""
    found = {}
    for name, hint in typing.get_type_hints(method, include_extras=True).items():
        if name != "return" and typing.get_origin(hint) is Annotated:
            found[name] = str(hint.__metadata__[0])
    return found


def try_first(turn: int) -> Callable[[Part], Part]:
    """Mark a method as one of the few to try first, at place `turn`."""

    def mark(method: Part) -> Part:
        marked: Any = method
        marked.__try_first__ = turn
        return method

    return mark


def turn_of(method: Callable[..., Any]) -> int | None:
    """Return the place of a method among those to try first, or None."""
    found = getattr(method, "__try_first__", None)
    return found if isinstance(found, int) else None
