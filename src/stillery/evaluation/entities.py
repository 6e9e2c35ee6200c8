"""Extraction of entities (word spans with a type) from sequences of tags.

The results equal those of seqeval (tested): `entities` follows conlleval, which counts every run of tags of one type as
an entity, however it begins; `strict_entities` only counts what the tagging scheme allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stillery.errors import UserError

__all__ = ["OUTSIDE", "SCHEMES", "Entities", "TagSet", "entities", "scheme_of", "strict_entities"]

OUTSIDE = "O"
"""The tag of a word outside of all entities."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TagSet:
    """Tags in the order of a model's outputs: of a scheme (O, B-PER, I-PER) or of none (NOUN, VERB)."""

    names: tuple[str, ...]

    @cached_property
    def marks_entities(self) -> bool:
        """Whether the tags are O and prefixed types, so that they mark entities."""
        others = [name for name in self.names if name != OUTSIDE]
        return bool(others) and all(name[:1] in _PREFIXES and name[1:2] in ("", "-") for name in others)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The entity types, sorted; a tag without a type has the type `_`."""
        return tuple(sorted({_type(name) for name in self.names if name != OUTSIDE}))

    @cached_property
    def prefixes(self) -> NDArray[np.str_]:
        """The prefix of each tag, followed by that of a missing tag, which counts as outside."""
        return np.array([*(name[0] for name in self.names), OUTSIDE])

    @cached_property
    def type_ids(self) -> Ints:
        """The index of each tag's type, -1 for outside, followed by -1 for a missing tag."""
        places = {name: place for place, name in enumerate(self.types)}
        return np.array([*(-1 if name == OUTSIDE else places[_type(name)] for name in self.names), -1], dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Entities:
    """Entities as the index of the first and last word of each, counted over all sentences, and its type."""

    start: Ints
    end: Ints
    type: Ints

    def __len__(self) -> int:
        return len(self.start)

    def within(self, other: Entities) -> NDArray[np.bool_]:
        """A mask of the entities that are also in `other`, with the same words and the same type."""
        ours, theirs = (np.stack([one.start, one.end, one.type], axis=1) for one in (self, other))
        known = set(map(tuple, theirs.tolist()))
        return np.fromiter((tuple(row) in known for row in ours.tolist()), dtype=np.bool_, count=len(ours))


def _type(name: str) -> str:
    return name[1:].split("-", 1)[-1] or "_"


def entities(tags: Ints, offsets: Ints, tag_set: TagSet) -> Entities:
    """Extract entities as conlleval counts them, by the rules of seqeval's default mode.

    Those rules do not have L and U; here L is treated as E, and U as S.

    Args:
        tags: the tag of each word, sentence after sentence; -1 is a word without a tag, which is outside.
        offsets: sentence i has the words `offsets[i]:offsets[i + 1]`.
        tag_set: the names of the tags.
    """
    known = np.array([_AS_IOBES.get(prefix, prefix) for prefix in tag_set.prefixes.tolist()])
    prefix, kind = known[tags], tag_set.type_ids[tags]
    begins = np.zeros(len(tags) + 1, dtype=np.bool_)
    begins[offsets] = True
    # The positions before and after a sentence are outside.
    before = np.where(begins, OUTSIDE, np.append(OUTSIDE, prefix))
    kind_before = np.where(begins, -1, np.append(-1, kind))
    now, kind_now = np.append(prefix, OUTSIDE), np.append(kind, -1)
    started = _starts(before, now, kind_before, kind_now)
    # A chunk that reaches the end of its sentence ends there.
    last = np.append(OUTSIDE, prefix)
    kind_last = np.append(-1, kind)
    ended = _ends(last, np.where(begins, OUTSIDE, now), kind_last, np.where(begins, -1, kind_now))
    start, end = np.flatnonzero(started), np.flatnonzero(ended) - 1
    return Entities(start=start, end=end, type=kind[start] if len(start) else start)


def _ends(before: NDArray[np.str_], now: NDArray[np.str_], kind_before: Ints, kind: Ints) -> NDArray[np.bool_]:
    """Mask of words whose predecessor ends an entity."""
    closed = np.isin(before, ("E", "S"))
    opened = np.isin(before, ("B", "I")) & np.isin(now, ("B", "S", OUTSIDE))
    found: NDArray[np.bool_] = closed | opened | ((before != OUTSIDE) & (kind_before != kind))
    return found


def _starts(before: NDArray[np.str_], now: NDArray[np.str_], kind_before: Ints, kind: Ints) -> NDArray[np.bool_]:
    """Mask of words that begin an entity."""
    opened = np.isin(now, ("B", "S"))
    after = np.isin(before, ("E", "S", OUTSIDE)) & np.isin(now, ("E", "I"))
    found: NDArray[np.bool_] = opened | after | ((now != OUTSIDE) & (kind_before != kind))
    return found


Pattern = tuple[str, str, bool | None]
"""Prefixes of the previous and of this word, and whether both have the same type; None if that does not matter."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """The transitions between words with which an entity begins, continues and ends in a tagging scheme."""

    prefixes: str
    starts: tuple[Pattern, ...]
    inside: tuple[Pattern, ...]
    ends: tuple[Pattern, ...]


_ANY = "BIESLUO"

SCHEMES: dict[str, Scheme] = {
    "IOB1": Scheme(
        prefixes="BI",
        starts=(("O", "I", None), ("I", "I", False), ("B", "I", None), ("BI", "B", True)),
        inside=(("BI", "I", True),),
        ends=(("BI", "I", False), ("BI", "O", None), ("I", "B", None), ("B", "B", True)),
    ),
    "IOB2": Scheme(
        prefixes="BI",
        starts=((_ANY, "B", None),),
        inside=(("BI", "I", True),),
        ends=(("BI", "OB", None), ("BI", "I", False)),
    ),
    "IOBES": Scheme(
        prefixes="BIES",
        starts=((_ANY, "BS", None),),
        inside=(("BI", "IE", True),),
        ends=(("SE", _ANY, None),),
    ),
    "BILOU": Scheme(
        prefixes="BILU",
        starts=((_ANY, "BU", None),),
        inside=(("BI", "IL", True),),
        ends=(("UL", _ANY, None),),
    ),
}
"""Tagging schemes by name. BIO is IOB2, BIOES is IOBES."""

_PREFIXES = frozenset("BIESLU")
_AS_IOBES = {"L": "E", "U": "S"}


def scheme_of(tag_set: TagSet, gold: Ints, offsets: Ints) -> str:
    """Infer the name of the tagging scheme of gold tags from their prefixes.

    With B and I it is IOB1 if any entity begins with I, as in CoNLL-2003, else IOB2.
    """
    prefixes = {name[0] for name in tag_set.names if name != OUTSIDE}
    name = next((name for name in ("IOB2", "IOBES", "BILOU") if prefixes <= set(SCHEMES[name].prefixes)), None)
    if name is None:
        raise UserError(f"the prefixes {', '.join(sorted(prefixes))} of the tags are those of no known scheme")
    if name != "IOB2":
        return name
    found = entities(gold, offsets, tag_set)
    return "IOB1" if (tag_set.prefixes[gold[found.start]] == "I").any() else "IOB2"


def strict_entities(tags: Ints, offsets: Ints, tag_set: TagSet, scheme: str) -> Entities:
    """Extract the entities that strictly follow a tagging scheme, as in seqeval's strict mode."""
    rules = SCHEMES[scheme]
    found: list[tuple[int, int, int]] = []
    prefixes, types = tag_set.prefixes[tags].tolist(), tag_set.type_ids[tags].tolist()
    for first, behind in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        sentence = [*zip(prefixes[first:behind], types[first:behind], strict=True), (OUTSIDE, -1)]
        place, before = 0, (OUTSIDE, -1)
        while place < len(sentence):
            end = place + 1
            if _fits(rules.starts, before, sentence[place]):
                while _fits(rules.inside, sentence[end - 1], sentence[end]):
                    end += 1
                if _fits(rules.ends, sentence[end - 1], sentence[end]):
                    found.append((first + place, first + end - 1, sentence[place][1]))
            before, place = sentence[end - 1], end
    start, end_, kind = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return Entities(start=start, end=end_, type=kind)


def _fits(patterns: Sequence[Pattern], before: tuple[str, int], now: tuple[str, int]) -> bool:
    return any(
        before[0] in prefixes and now[0] in these and same in (None, before[1] == now[1])
        for prefixes, these, same in patterns
    )
