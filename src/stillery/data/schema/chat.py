"""Conversion of chat conversations to targets, the last assistant message, and sources, the messages before it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stillery.data.readers.row_errors import RowErrors
from stillery.data.schema.roles import Role, Schema
from stillery.data.schema.values import holds_lists, refuse_nested
from stillery.errors import UserError

__all__ = ["as_pairs"]

CHATS = ("messages", "conversation", "conversations")
SPEAKERS = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
NAMES = ("source", "target")
Turn = tuple[str, str]


def as_pairs(schema: Schema, batch: pa.RecordBatch, where: str, before: int, need: bool) -> pa.RecordBatch:
    """Convert a column of conversations to `source` and `target`; other rows stay as they are.

    A conversation is a list of messages `{"role": ..., "content": ...}`. It is ignored if other columns are named, or
    if the file has sources and targets of its own. With `need`, the last message must be the assistant's.
    """
    name = _column(schema, batch)
    if name is None:
        return batch
    refuse_nested(batch, name, where)
    errors = RowErrors(where, gather=True)
    pairs: list[tuple[str | None, str | None]] = []
    for row, messages in enumerate(batch.column(name).to_pylist(), start=before + 1):
        turns, wrong = _turns(messages, name)
        source, target = _pair(turns)
        if not wrong and need and turns and target is None:
            wrong = f"the last message in column {name!r} is not the assistant's, so there is no target; remove the row"
        if wrong:
            errors.add(row, wrong)
        pairs.append((source, target))
    if errors.found:
        raise UserError(*errors.lines())
    made = {new: [pair[place] for pair in pairs] for place, new in enumerate(NAMES)}
    if not need and all(target is None for target in made["target"]):
        del made["target"]
    kept = {one: batch.column(one) for one in batch.schema.names if one not in (name, *NAMES)}
    columns = {one: pa.array(values, pa.large_string()) for one, values in made.items()} | kept
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _column(schema: Schema, batch: pa.RecordBatch) -> str | None:
    """The column of conversations, if it is to be used."""
    names = {name.strip().casefold(): name for name in batch.schema.names}
    name = next((names[chat] for chat in CHATS if chat in names), None)
    if name is None:
        return None
    kind = batch.schema.field(name).type
    asked = {column for column in schema.asked.values() if column is not None}
    # For splits other than train, the schema names the columns that were converted for train.
    if not asked <= set(NAMES) or (asked and asked <= names.keys()):
        return None
    if not asked and all(_has(role, names) for role in (schema.inputs[0], schema.answer.role)):
        return None
    nested = holds_lists(kind) and pa.types.is_struct(kind.value_type)
    return name if nested or batch.schema.field(name).metadata else None


def _has(role: Role, names: dict[str, str]) -> bool:
    return any(usual in names for usual in role.usual)


def _turns(messages: Any, column: str) -> tuple[list[Turn], str]:
    """The role and content of each message, and an error message, empty if there is none."""
    turns = []
    for message in messages or []:
        said = message or {}
        who, content = said.get("role") or said.get("from"), said.get("content") or said.get("value")
        if not isinstance(who, str) or not isinstance(content, str):
            return [], f'a message in column {column!r} is not {{"role": a text, "content": a text}}; correct it'
        turns.append((SPEAKERS.get(who.casefold(), who.casefold()), content))
    return turns, ""


def _pair(turns: list[Turn]) -> tuple[str | None, str | None]:
    """The source and the target: the last message if it is the assistant's, and the messages before it."""
    answered = bool(turns) and turns[-1][0] == "assistant"
    before = turns[:-1] if answered else turns
    source = before[0][1] if len(before) == 1 else "\n".join(f"{who}: {content}" for who, content in before)
    return source or None, turns[-1][1] if answered else None
