"""Assignment of roles to the columns of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stillery.data.readers.delimited import other_separator
from stillery.data.schema.roles import ID, Role, Schema
from stillery.errors import ErrorList, UserError, nearest
from stillery.lines import listed

__all__ = ["Columns", "find"]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The relevant columns by role, as spelled in the file; `flags` are 0/1 columns of single labels."""

    names: Mapping[str, str]
    id: str | None = None
    flags: tuple[str, ...] = ()

    def __getitem__(self, role: str) -> str:
        """The column of a role."""
        return self.names[role]

    def get(self, role: str) -> str | None:
        """The column of a role, if it has one."""
        return self.names.get(role)


def find(names: Sequence[str], where: str, schema: Schema, *, need: bool = True, look: bool = True) -> Columns:
    """Find the columns by their usual names, or take those that are named; errors are reported together.

    Args:
        names: the columns of the file.
        where: the name of the file in errors.
        schema: the roles, and the columns named by the user.
        need: whether an answer is required; otherwise even a named answer column may be absent.
        look: whether to look for an answer at all.
    """
    present = _Present(names=tuple(names), where=where)
    answer = schema.answer.role
    of_inputs, of_answer = ErrorList(), ErrorList()
    found: dict[str, str] = {}
    for role in schema.read:
        with of_inputs.catch():
            found |= present.asked(role, schema.asked.get(role.name))
    flags: tuple[str, ...] = ()
    if look:
        with of_answer.catch():
            flags = _flags(present, answer, schema.asked.get(answer.name), need)
            found |= {} if flags else present.asked(answer, schema.asked.get(answer.name), need)
    with of_inputs.catch():
        _refuse_twice(where, [role for role in (*schema.inputs, answer) if role.name in found], found)
        _refuse_twice(where, [role for role in (*schema.beside, answer) if role.name in found], found)
    if not of_inputs.lines:
        with of_inputs.catch():
            found = _usual_inputs(present, schema, found) | found
    # The language of a target can only be inferred if the source is known.
    known = not of_inputs.lines or not answer.languages
    if look and known and not flags and schema.asked.get(answer.name) is None:
        with of_answer.catch():
            found |= _usual_answer(present, schema, found, need)
    for line in of_answer.lines:
        of_inputs.add(line)
    of_inputs.raise_any()
    beside = [found[role.name] for role in schema.beside if role.name in found]
    order = [role.name for role in (*schema.read, answer) if role.name in found]
    return Columns(names={name: found[name] for name in order}, id=present.first(ID, beside), flags=flags)


@dataclass(frozen=True, kw_only=True)
class _Present:
    """The columns of a file."""

    names: tuple[str, ...]
    where: str

    def find(self, wanted: str) -> str | None:
        """The column of that name; an exact match takes precedence over one that differs in case."""
        if wanted in self.names:
            return wanted
        return next((name for name in self.names if name.strip().casefold() == wanted.strip().casefold()), None)

    def first(self, candidates: Sequence[str], beside: Sequence[str] = ()) -> str | None:
        """The first candidate that exists and is not one of the columns in `beside`."""
        return next((name for name in map(self.find, candidates) if name is not None and name not in beside), None)

    def asked(self, role: Role, wanted: str | None, need: bool = True) -> dict[str, str]:
        """The column named by the user, under its role."""
        found = None if wanted is None else self.find(wanted)
        if found is None and wanted is not None and need:
            hint = other_separator(self.names) or nearest(wanted, self.names)
            raise UserError(f"{self.where}: no column {wanted!r} ({role.option}); {hint}")
        return {} if found is None else {role.name: found}

    def missing(self, role: Role) -> UserError:
        """The error that no column has the role, with the existing columns."""
        shown = listed(map(repr, self.names), 20)
        choose = other_separator(self.names) or f"the columns are {shown}; name one with {role.option}"
        return UserError(f"{self.where}: no {role.title} column; {choose}{role.cure}")


def _usual_inputs(present: _Present, schema: Schema, found: Mapping[str, str]) -> dict[str, str]:
    """The input columns by their usual names, unless the first input is named by the user."""
    roles, beside = schema.inputs, {role.name for role in schema.beside}
    taken = {column for name, column in found.items() if name not in beside}
    if roles[0].name in found:
        return {}
    for names in schema.partners:
        columns = {role.name: present.find(name) for role, name in zip(roles, names, strict=True)}
        free = {name: column for name, column in columns.items() if column is not None and column not in taken}
        # A column named by the user may be one of the partners.
        if all(found[name] == column if name in found else name in free for name, column in columns.items()):
            return free
    usual: dict[str, str] = {}
    for role in roles:
        column = None if role.name in found else present.first(role.usual, [*taken, *usual.values()])
        if column is not None:
            usual[role.name] = column
        elif role.required and role.name not in found:
            raise present.missing(role)
    return usual


def _usual_answer(present: _Present, schema: Schema, found: Mapping[str, str], need: bool) -> dict[str, str]:
    role = schema.answer.role
    column = present.first(role.usual, list(found.values()))
    if column is None and role.languages:
        column = _other_language(present, role, found[schema.inputs[0].name])
    if column is None and need:
        raise present.missing(role)
    return {} if column is None else {role.name: column}


def _other_language(present: _Present, role: Role, source: str) -> str | None:
    """The only other language column, if the source is one, such as `en`."""
    if source.strip().casefold() not in role.languages:
        return None
    others = [name for name in present.names if name != source and name.strip().casefold() in role.languages]
    if len(others) > 1:
        shown = listed(others)
        raise UserError(f"{present.where}: {source!r} could be translated to {shown}; name one with {role.option}")
    return others[0] if others else None


def _flags(present: _Present, role: Role, asked: str | None, need: bool) -> tuple[str, ...]:
    """The 0/1 columns of single labels; none if one column holds the labels.

    A label option such as `toxic,threat`, unless it is the name of a column, means one column for each of the names.
    """
    wanted = [name.strip() for name in (asked or "").split(",") if name.strip()]
    if not role.spread or asked is None or len(wanted) < 2 or present.find(asked) is not None:
        return ()
    found = {name: present.find(name) for name in wanted}
    absent = [name for name, column in found.items() if column is None]
    if len(absent) == len(found) and not need:
        return ()
    errors = ErrorList()
    for name in absent:
        errors.add(f"{present.where}: no column {name!r} ({role.option}); {nearest(name, present.names)}")
    columns = tuple(column for column in found.values() if column is not None)
    if len(set(columns)) < len(wanted) and not absent:
        errors.add(f"{present.where}: {role.option} {asked} names a column twice")
    errors.raise_any()
    return columns


def _refuse_twice(where: str, roles: Sequence[Role], found: Mapping[str, str]) -> None:
    """Raise UserError if one column has two roles."""
    first: dict[str, Role] = {}
    for role in roles:
        other = first.setdefault(found[role.name], role)
        if other is not role:
            name = found[role.name]
            raise UserError(
                f"{where}: {other.option} and {role.option} both name the column {name!r}; give two columns"
            )
