"""Entities, their scores and intervals: the same as seqeval's on thousands of random taggings."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from seqeval.metrics import accuracy_score
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support
from seqeval.metrics.v1 import precision_recall_fscore_support as strict_scores
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES
from seqeval.scheme import Entities as SeqevalEntities

from stillery.errors import UserError
from stillery.evaluation.entities import TagSet, entities, scheme_of, strict_entities
from stillery.evaluation.entity_metrics import (
    Tagged,
    one_tag,
    tag_agreement,
    tag_agreement_evaluation,
    tag_difference,
    tag_evaluation,
    tag_scores,
)

SETS = {
    "IOB2": ("BI", IOB2),
    "IOB1": ("BI", IOB1),
    "IOBES": ("BIES", IOBES),
    "BILOU": ("BILU", BILOU),
}


def tag_set(prefixes: str, types: int = 3) -> TagSet:
    return TagSet(names=("O", *(f"{prefix}-T{kind}" for kind in range(types) for prefix in prefixes)))


def random_tags(names, seed, sentences=40, like=None, offsets=None):
    """Tags drawn at random, with empty sentences among them; `like` others in three of four words."""
    random = np.random.default_rng(seed)
    if offsets is None:
        offsets = np.concatenate([[0], np.cumsum(random.integers(0, 9, sentences))])
    tags = random.integers(0, len(names), offsets[-1])
    # As many words outside as inside, so that entities have room between them.
    tags[random.random(len(tags)) < 0.3] = 0
    if like is not None:
        tags = np.where(random.random(len(tags)) < 0.75, like, tags)
    return tags, offsets


def listed(tags, offsets, names):
    return [[names[tag] for tag in tags[first:last]] for first, last in pairwise(offsets)]


def as_iobes(sentences):
    """What seqeval's default mode can read: it has no rules for L and U."""
    renamed = {"L": "E", "U": "S"}
    return [[renamed.get(tag[0], tag[0]) + tag[1:] for tag in sentence] for sentence in sentences]


@pytest.mark.parametrize("prefixes", ["BI", "BIES", "I", "IE", "BILU", "BIESLU"])
def test_entities_are_those_of_conlleval(prefixes: str) -> None:
    """4,000 random sentences: the same words, the same types."""
    names = tag_set(prefixes)
    for seed in range(100):
        tags, offsets = random_tags(names.names, seed)
        found = entities(tags, offsets, names)
        ours = list(zip([names.types[kind] for kind in found.type], found.start, found.end, strict=True))
        expected = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for first, sentence in zip(offsets[:-1], as_iobes(listed(tags, offsets, names.names)), strict=True):
                expected += [(kind, first + start, first + end) for kind, start, end in get_entities(sentence)]
        assert ours == expected


@pytest.mark.parametrize("scheme", SETS)
def test_strict_entities_are_those_of_seqeval(scheme: str) -> None:
    prefixes, theirs = SETS[scheme]
    names, some = tag_set(prefixes), 0
    for seed in range(60):
        tags, offsets = random_tags(names.names, seed)
        found = strict_entities(tags, offsets, names, scheme)
        rows = zip(found.start.tolist(), found.end.tolist(), found.type.tolist(), strict=True)
        ours = [(start, end + 1, names.types[kind]) for start, end, kind in rows]
        expected = [
            (int(first) + one.start, int(first) + one.end, one.tag)
            for first, sentence in zip(
                offsets[:-1], SeqevalEntities(listed(tags, offsets, names.names), theirs).entities, strict=True
            )
            for one in sentence
        ]
        assert ours == expected
        some += len(ours)
    assert some > 1000


@pytest.mark.parametrize("scheme", SETS)
@pytest.mark.parametrize("strict", [False, True])
def test_scores_are_those_of_seqeval(scheme: str, strict: bool) -> None:
    prefixes, theirs = SETS[scheme]
    names = tag_set(prefixes)
    more = "_strict" if strict else ""
    wanted = [f"{name}{more}" for name in ("precision", "recall", "f1")]
    for seed in range(25):
        gold, offsets = random_tags(names.names, seed)
        guess, _ = random_tags(names.names, seed + 1000, like=gold, offsets=offsets)
        right = Tagged(tags=gold, offsets=offsets, tag_set=names)
        if strict and right.scheme != scheme:
            # Random B and I always have an entity that begins with I: IOB2 has to be said.
            right.__dict__["scheme"] = scheme
        found = tag_scores(right, guess, [*wanted, "accuracy"], draws=2)
        lists = [listed(tags, offsets, names.names) for tags in (gold, guess)]
        if strict:
            expected = strict_scores(*lists, average="micro", zero_division=0, scheme=theirs)[:3]
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read = [as_iobes(one) for one in lists]
                expected = precision_recall_fscore_support(*read, average="micro", zero_division=0)[:3]
                by_type = precision_recall_fscore_support(*read, average=None, zero_division=0)
            ours = [[kind[name] for kind in found.types.values()] for name in ("precision", "recall", "f1")]
            np.testing.assert_allclose(ours, 100 * np.array(by_type[:3]), atol=1e-4)
            assert [kind["entities"] for kind in found.types.values()] == by_type[3].tolist()
        np.testing.assert_allclose([found.metrics[name] for name in wanted], 100 * np.array(expected), rtol=1e-12)
        assert found.metrics["accuracy"] == pytest.approx(100 * accuracy_score(*lists), rel=1e-12)


NER = TagSet(names=("O", "B-PER", "I-PER", "B-LOC", "I-LOC"))


def tagged(*sentences: str, names: TagSet = NER) -> Tagged:
    tags = [[names.names.index(tag) for tag in sentence.split()] for sentence in sentences]
    offsets = np.cumsum([0, *map(len, tags)])
    return Tagged(tags=np.array([tag for one in tags for tag in one]), offsets=offsets, tag_set=names)


def test_a_worked_example() -> None:
    gold = tagged("B-PER I-PER O B-LOC", "O O", "B-LOC I-LOC I-LOC")
    guess = tagged("B-PER I-PER O B-PER", "O I-LOC", "B-LOC I-LOC O").tags
    found = tag_evaluation("ner", gold, guess, gold.tags, draws=50)
    assert (found["task"], found["examples"], found["words"]) == ("ner", 3, 9)
    assert found["metrics"] == {"f1": 28.5714, "precision": 25.0, "recall": 33.3333, "accuracy": 66.6667}
    assert found["types"]["PER"]["precision"] == 50 and found["types"]["PER"]["recall"] == 100
    assert found["types"]["LOC"] == {"precision": 0, "recall": 0, "f1": 0, "interval": [0, 0], "entities": 2}
    assert set(found["teacher_metrics"].values()) == {100.0}
    assert found["difference"]["metric"] == "f1" and found["difference"]["value"] == -71.4286
    assert found["agreement"] == found["metrics"]["accuracy"]
    assert found["entity_agreement"] == found["metrics"]["f1"]
    assert list(found["intervals"]) == list(found["metrics"])


def test_strict_counts_only_what_the_scheme_allows() -> None:
    gold = tagged("B-PER I-PER O", "B-LOC O O")
    guess = tagged("I-PER I-PER O", "B-LOC O O").tags
    assert gold.scheme == "IOB2"
    assert tag_scores(gold, guess, draws=2).metrics["f1"] == 100
    assert tag_scores(gold, guess, ["f1_strict"], draws=2).metrics["f1_strict"] == pytest.approx(200 / 3)
    assert tagged("I-PER O").scheme == "IOB1"
    assert tagged("S-A O", names=TagSet(names=("O", "S-A", "B-A", "E-A"))).scheme == "IOBES"
    with pytest.raises(UserError, match="the prefixes B, L, S of the tags are those of no known scheme"):
        scheme_of(TagSet(names=("O", "B-A", "L-A", "S-A")), np.array([0]), np.array([0, 1]))


def test_a_word_without_a_prediction_is_outside_and_wrong() -> None:
    gold = tagged("O B-PER I-PER", "B-LOC O")
    guess = gold.tags.copy()
    guess[[2, 4]] = -1
    found = tag_scores(gold, guess, draws=2)
    assert found.metrics["accuracy"] == 60 and found.metrics["recall"] == 50 == found.metrics["precision"]


def test_an_interval_is_what_resampled_sentences_give() -> None:
    """The same as drawing whole sentences and scoring what was drawn."""
    gold_tags, offsets = random_tags(NER.names, 1, sentences=30)
    gold = Tagged(tags=gold_tags, offsets=offsets, tag_set=NER)
    guess, _ = random_tags(NER.names, 2, like=gold_tags, offsets=offsets)
    random = np.random.default_rng(0)
    drawn = [np.bincount(random.integers(0, 30, 30), minlength=30) for _ in range(40)]
    lists = [listed(tags, offsets, NER.names) for tags in (gold_tags, guess)]
    values = []
    for times in drawn:
        true, pred = ([one for one, count in zip(each, times, strict=True) for _ in range(count)] for each in lists)
        values.append(100 * precision_recall_fscore_support(true, pred, average="micro", zero_division=0)[2])
    found = tag_scores(gold, guess, ["f1"], draws=40, seed=0)
    assert found.intervals["f1"] == pytest.approx(np.quantile(values, [0.025, 0.975]), rel=1e-12)
    assert found.intervals["f1"][0] < found.metrics["f1"] < found.intervals["f1"][1]


def test_a_difference_is_paired() -> None:
    tags, offsets = random_tags(NER.names, 3, sentences=200)
    gold = Tagged(tags=tags, offsets=offsets, tag_set=NER)
    student, _ = random_tags(NER.names, 4, like=tags, offsets=offsets)
    assert tag_difference(gold, student, student, "f1") == (0, (0, 0))
    teacher = np.where(np.arange(len(tags)) % 50 == 0, tags, student)
    value, (low, high) = tag_difference(gold, student, teacher, "f1")
    alone = [tag_scores(gold, one, ["f1"]) for one in (student, teacher)]
    assert value == pytest.approx(alone[0].metrics["f1"] - alone[1].metrics["f1"]) and low <= value <= high
    apart = [one.intervals["f1"][1] - one.intervals["f1"][0] for one in alone]
    assert high - low < min(apart) / 2
    assert tag_difference(gold, student, teacher, "f1") == (value, (low, high))


def test_plain_tags_have_accuracy_alone() -> None:
    names = TagSet(names=("NOUN", "VERB", "O"))
    gold = tagged("NOUN VERB NOUN", "O", names=names)
    guess = tagged("NOUN NOUN NOUN", "O", names=names).tags
    found = tag_evaluation("pos", gold, guess, guess, draws=20)
    assert found["metrics"] == {"accuracy": 75.0} and "types" not in found and "entity_agreement" not in found
    assert tag_agreement(guess, gold.tags, gold.offsets, names) == {"agreement": 75.0}
    with pytest.raises(UserError, match=r"metric 'f1' is of entities, and the tags \(NOUN, VERB, O\) mark none"):
        tag_scores(gold, guess, ["f1"])


def test_what_cannot_be_scored() -> None:
    gold = tagged("O B-PER")
    with pytest.raises(UserError, match="3 predicted tags cannot be compared with the tags of 2 words"):
        tag_scores(gold, np.zeros(3, dtype=np.int64))
    with pytest.raises(UserError, match=r"unknown metric 'F1'.*f1"):
        tag_scores(gold, gold.tags, ["F1"])
    with pytest.raises(UserError, match="no metric"):
        tag_scores(gold, gold.tags, [])
    with pytest.raises(UserError, match="no sentences"):
        tag_scores(Tagged(tags=gold.tags[:0], offsets=np.array([0]), tag_set=NER), gold.tags[:0])


def test_without_right_tags_a_model_is_compared_with_its_teacher() -> None:
    teacher = tagged("B-PER I-PER O B-LOC", "O O", "B-LOC I-LOC I-LOC")
    guess = tagged("B-PER I-PER O B-PER", "O I-LOC", "B-LOC I-LOC O").tags
    found = tag_agreement_evaluation("new", guess, teacher.tags, teacher.offsets, NER, draws=50)
    assert found["metrics"] == {"agreement": 66.6667, "entity_agreement": 28.5714}
    assert found["metrics"] == pytest.approx(tag_agreement(guess, teacher.tags, teacher.offsets, NER), abs=1e-4)
    assert (found["examples"], found["words"], found["unlabelled"]) == (3, 9, True)
    low, high = found["intervals"]["entity_agreement"]
    assert low < 28.5714 < high
    plain = TagSet(names=("NOUN", "VERB"))
    gold = tagged("NOUN VERB", names=plain)
    found = tag_agreement_evaluation("new", gold.tags, gold.tags, gold.offsets, plain, draws=5)
    assert found["metrics"] == {"agreement": 100.0} and found["intervals"] == {"agreement": [100.0, 100.0]}


def test_one_tag_for_all_words() -> None:
    assert one_tag(np.array([0, 0, -1]), NER) == "O"
    assert one_tag(np.array([0, 1]), NER) is None and one_tag(np.array([-1]), NER) is None


def test_no_entities_at_all_score_nothing() -> None:
    gold = tagged("O O", "O")
    found = tag_scores(gold, gold.tags, draws=5)
    assert found.metrics == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 100} and found.types == {}
