"""Models that tag words through the command line: from files to a student and its predictions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from tagging_models import FAMILIES, SMALL, TAGS, conll, jsonl, make_encoder, tagged
from transformers import AutoModelForTokenClassification, AutoTokenizer, ByT5Tokenizer, pipeline

from stillery import methods
from stillery.train import checkpoint

OF_THE_TEXT = {
    **dict.fromkeys(("pkd", "alp-kd", "ckd-combine", "ild-rtc", "ild-top", "simkd"), "first token's state"),
    **dict.fromkeys(("codir", "universal-kd"), "compares texts by their classes, and here each word has a tag"),
}
"""Methods that a model that tags words is not distilled with as they are, and why."""


@pytest.fixture(scope="session")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty tagged sentences in one CoNLL file."""
    return conll(tmp_path_factory.mktemp("tagged") / "names.conll", tagged())


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> dict[str, Path]:
    return {name: make_encoder(tmp_path_factory.mktemp("encoder") / name, name, tokenizer) for name in FAMILIES}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def teachers(
    tmp_path_factory: pytest.TempPathFactory, encoders: dict[str, Path], sentences: Path, stillery: Any
) -> dict[str, Path]:
    """A fine-tuned run of each family."""
    found = {}
    for name, encoder in encoders.items():
        found[name] = tmp_path_factory.mktemp("runs") / f"{name}-teacher"
        done = stillery("finetune", "--model", encoder, "--data", sentences, "--max-steps", 30, "--batch-size", 16,
                        "--lr", 0.01, "--max-length", 32, "--out", found[name])  # fmt: skip
        assert done.returncode == 0, done.stderr
    return found


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def distil(teacher: Path, data: Path, out: Path, *more: object) -> tuple[object, ...]:
    return ("distill", "--teacher", teacher, "--data", data, "--layers", 2, *SMALL, *more, "--out", out)


def plain_tags(folder: Path, words: list[str]) -> list[str | None]:
    """What transformers alone makes of a sentence's words, by their first pieces."""
    model, tokenizer = AutoModelForTokenClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=32, return_tensors="pt")
    with torch.no_grad():
        logits = model.eval()(**encoded).logits[0]
    tags: list[str | None] = [None] * len(words)
    for place, word in reversed(list(enumerate(encoded.word_ids()))):
        if word is not None:
            tags[word] = model.config.id2label[int(logits[place].argmax())]
    return tags


def test_from_files_to_predictions(command, teachers, sentences, family, tmp_path):
    teacher, student = teachers[family], tmp_path / "student"
    metrics = read(teacher / "metrics.json")
    assert list(metrics["metrics"]) == ["f1", "precision", "recall", "accuracy"]
    assert metrics["metrics"]["f1"] > 60 and metrics["types"].keys() == {"LOC", "PER"} and metrics["words"] > 30
    done = command(*distil(teacher, sentences, student, "--max-steps", 30, "--lr", 0.01, "--head", "reuse"))
    assert done.code == 0, done.err
    assert "AutoModelForTokenClassification.from_pretrained" in done.out and "entities" in done.out
    found = read(student / "metrics.json")
    assert found["split"] == "test" and found["teacher_metrics"].keys() == found["metrics"].keys()
    assert found["agreement"] > 50 and "entity_agreement" in found
    assert "hidden" in json.loads((student / "log.jsonl").read_text().splitlines()[0])["terms"]

    rows = pq.read_table(student / "predictions.parquet").to_pylist()
    assert rows[0].keys() == {"id", "tokens", "tags", "prediction", "teacher_prediction"}
    for row in rows:
        assert row["prediction"] == plain_tags(student, row["tokens"])
        assert row["teacher_prediction"] == plain_tags(teacher, row["tokens"])

    done = command("evaluate", student, "--data", sentences, "--split", "test", "--against", teacher,
                   "--predictions", tmp_path / "scored.jsonl", "--json")  # fmt: skip
    assert done.code == 0, done.err
    for name in ("metrics", "teacher_metrics", "intervals", "types", "agreement", "difference"):
        assert done.json[name] == found[name], name
    scored = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert scored == rows

    bare = jsonl(tmp_path / "new.jsonl", [{"words": row["tokens"], "n": row["id"]} for row in rows])
    done = command("predict", student, "--data", bare, "--out", tmp_path / "new.parquet")
    assert done.code == 0, done.err
    tagged_rows = pq.read_table(tmp_path / "new.parquet").to_pylist()
    assert [row["prediction"] for row in tagged_rows] == [row["prediction"] for row in rows]
    assert tagged_rows[0].keys() == {"words", "n", "prediction"}


def test_the_cards_sample_runs(teachers, family, capsys):
    """It finds the entities that the tags of the words are."""
    folder = teachers[family]
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: token-classification" in card and "Entities of type PER: precision" in card
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    text = "in Oslo , Ada met Grace Hopper ."
    exec(code.replace("THIS_FOLDER", str(folder)).replace("some text", text), {})
    shown = [line.rsplit(" ", 2) for line in capsys.readouterr().out.splitlines()]
    tags = plain_tags(folder, text.split())
    starts = [tag for tag, before in zip(tags, ["O", *tags], strict=False) if tag != "O" and tag[2:] != before[2:]]
    assert starts and [line[1] for line in shown] == [tag[2:] for tag in starts]
    assert len(pipeline("token-classification", model=str(folder), aggregation_strategy="first")(text)) == len(shown)


@pytest.mark.parametrize("kind", ["conll", "jsonl", "parquet", "folder"])
def test_the_same_sentences_from_every_format(command, encoders, kind, tmp_path):
    """Columns are found by name, and so is what is meant: no option says that words are tagged."""
    rows = [{"tokens": words, "ner_tags": tags} for words, tags in tagged()]
    path = tmp_path / f"data.{kind}"
    if kind == "conll":
        conll(path, tagged())
    elif kind == "jsonl":
        jsonl(path, [row | {"text": " ".join(row["tokens"])} for row in rows])
    elif kind == "parquet":
        numbers = [[TAGS.index(tag) for tag in row["ner_tags"]] for row in rows]
        table = pa.table({"tokens": [row["tokens"] for row in rows], "ner_tags": numbers})
        features = {"ner_tags": {"feature": {"names": TAGS, "_type": "ClassLabel"}, "_type": "Sequence"}}
        named = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
        pq.write_table(table.replace_schema_metadata(named), path)
    else:
        path = tmp_path / "splits"
        path.mkdir()
        conll(path / "train.conll", tagged()[:40])
        conll(path / "dev.conll", tagged()[40:50])
        conll(path / "test.conll", tagged()[50:])
    done = command("finetune", "--model", encoders["bert"], "--data", path, *SMALL, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    config = read(tmp_path / "run" / "config.json")
    assert config["architectures"] == ["BertForTokenClassification"] and set(config["label2id"]) == set(TAGS)
    predicted = pq.read_table(tmp_path / "run" / "predictions.parquet").to_pylist()
    known = {tuple(words): tags for words, tags in tagged()}
    assert all(row["tags"] == known[tuple(row["tokens"])] for row in predicted)
    if kind == "folder":
        assert [row["tokens"] for row in predicted] == [words for words, _ in tagged()[50:]]


def test_columns_are_named_with_text_and_label(command, encoders, tmp_path):
    rows = [{"a": words, "b": tags, "tags": ["X", *["Y"] * (len(words) - 1)]} for words, tags in tagged()]
    named = ("--text", "a", "--label", "b")
    path = jsonl(tmp_path / "data.jsonl", rows)
    asked = ("finetune", "--model", encoders["bert"], "--data", path, *SMALL)
    assert command(*asked, *named, "--out", tmp_path / "run").code == 0
    assert "data: data.jsonl" in command("check", tmp_path / "run" / "run.toml").out
    assert set(read(tmp_path / "run" / "config.json")["label2id"]) == set(TAGS)
    assert command(*asked, "--text", "a", "--out", tmp_path / "other").code == 0
    other = read(tmp_path / "other" / "metrics.json")
    assert set(read(tmp_path / "other" / "config.json")["label2id"]) == {"X", "Y"}
    assert list(other["metrics"]) == ["accuracy"] and "types" not in other


def test_texts_with_a_class_are_still_classified(command, encoders, tmp_path):
    """Lists of words beside a text and its label mean nothing."""
    rows = [{"text": " ".join(words), "tokens": words, "label": row % 2} for row, (words, _) in enumerate(tagged())]
    path = jsonl(tmp_path / "data.jsonl", rows)
    done = command("finetune", "--model", encoders["bert"], "--data", path, *SMALL, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert read(tmp_path / "run" / "config.json")["architectures"] == ["BertForSequenceClassification"]


@pytest.mark.parametrize("name", methods.names())
def test_every_method_trains_two_steps_or_is_refused(command, teachers, sentences, name, tmp_path):
    options = ("--max-steps", 6, "--cache", "off")
    if name in ("l-ild", "u-ild", "emd-ild", "tinybert", "minilm", "minilm-v2", "cr-ild"):
        options += ("--option", "layer_share=0.5", "--option", "least_steps=2")
    done = command(*distil(teachers["bert"], sentences, tmp_path / "run", "--method", name, "--log-every", 1, *options))
    if name in OF_THE_TEXT:
        lines = done.err.strip().splitlines()
        assert done.code == 2 and not (tmp_path / "run").exists()
        assert len(lines) == 1 and name in lines[0] and OF_THE_TEXT[name] in lines[0]
        return
    assert done.code == 0, done.err
    events = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "train"]
    assert len(steps) == 6
    for stage in {event["stage"] for event in steps}:
        assert len([event for event in steps if event["stage"] == stage]) >= 2
    assert all(value >= 0 for event in steps for value in event["terms"].values())


@pytest.mark.parametrize("name", sorted(name for name, why in OF_THE_TEXT.items() if "first" in why))
def test_a_method_of_the_first_token_trains_on_all_tokens(command, teachers, sentences, name, tmp_path):
    """As the line that refuses it says."""
    more = ("--method", name, "--represent", "tokens", "--max-steps", 2)
    done = command(*distil(teachers["bert"], sentences, tmp_path / "run", *more))
    assert done.code == 0, done.err


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


def test_resume_and_the_run_file_repeat_the_run(command, teachers, sentences, tmp_path, monkeypatch):
    def ask(out: Path, *more: object) -> tuple[object, ...]:
        regular = ("--checkpoint-every", 2, "--eval-every", 2, "--lr", 0.01)
        return distil(teachers["bert"], sentences, out, *regular, *more)

    whole, broken, repeated = (tmp_path / name for name in ("whole", "broken", "repeated"))
    assert command(*ask(whole)).code == 0
    save = checkpoint.save

    def save_and_stop(*arguments, **named):
        save(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        assert command(*ask(broken)).code == 130
    assert command(*ask(broken), "--resume").code == 0
    assert command("distill", "--config", whole / "run.toml", "--out", repeated).code == 0
    for out in (broken, repeated):
        assert all(torch.equal(tensor, weights(whole)[name]) for name, tensor in weights(out).items())
        for file in ("run.toml", "predictions.parquet"):
            assert (out / file).read_bytes() == (whole / file).read_bytes()


def logged(out: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "train"]


def test_accumulation_adds_up_to_the_whole_step(command, teachers, sentences, tmp_path):
    """4 x 8 = 1 x 32: the mean is over the words of the step, not of its parts."""
    steps = {}
    for size, times in ((32, 1), (8, 4)):
        cut = ("--batch-size", size, "--accumulate", times, "--log-every", 1, "--max-steps", 3)
        out = tmp_path / str(size)
        assert command(*distil(teachers["bert"], sentences, out, *cut)).code == 0
        steps[size] = logged(out)
    for whole, parts in zip(steps[32], steps[8], strict=True):
        assert parts["terms"] == pytest.approx(whole["terms"], rel=1e-5)


@pytest.mark.parametrize("method", ["kd", "layer-forward", "rail-kd", "minilm-v2"])
def test_a_cached_teacher_is_the_live_one(command, teachers, sentences, method, tmp_path):
    """Logits of tokens, states of tokens, means of texts, queries and keys."""
    short = ("--option", "layer_share=0.5", "--option", "least_steps=2") if method == "minilm-v2" else ()
    for cache in ("off", "on"):
        more = ("--method", method, *short, "--cache", cache, "--log-every", 1, "--verbose")
        done = command(*distil(teachers["bert"], sentences, tmp_path / cache, *more))
        assert done.code == 0, done.err
        assert cache == "off" or "token logits" in done.err
        assert "teacher cache: off" not in done.err
    for live, cached in zip(logged(tmp_path / "off"), logged(tmp_path / "on"), strict=True):
        assert cached["terms"] == pytest.approx(live["terms"], rel=1e-4, abs=1e-6)


def test_tokens_are_cached(command, teachers, sentences, tmp_path, monkeypatch):
    from stillery.data.tokens import token_cache

    monkeypatch.setattr(token_cache, "FEWEST", 10)
    said = []
    for name in ("a", "b"):
        done = command(
            *distil(teachers["bert"], sentences, tmp_path / name, "--method", "kd", "--max-steps", 2, "--verbose")
        )
        assert done.code == 0, done.err
        said.append("tokens of 48 sentences read from the cache" in done.err)
    assert said == [False, True]
    assert all(torch.equal(tensor, weights(tmp_path / "a")[name]) for name, tensor in weights(tmp_path / "b").items())


def test_sentences_without_tags_are_learnt_from_the_teacher(command, teachers, tmp_path):
    path = jsonl(tmp_path / "bare.jsonl", [{"tokens": words} for words, _ in tagged()])
    done = command(*distil(teachers["bert"], path, tmp_path / "run", "--unlabelled"))
    assert done.code == 0, done.err
    found = read(tmp_path / "run" / "metrics.json")
    assert found["unlabelled"] and list(found["metrics"]) == ["agreement", "entity_agreement"]
    assert logged(tmp_path / "run")[0]["terms"].keys() == {"soft", "hidden"}
    assert pq.read_table(tmp_path / "run" / "predictions.parquet")["tags"].null_count == found["examples"]


def test_another_start_and_other_texts_for_the_layers(command, teachers, encoders, sentences, tmp_path):
    """RoBERTa's words are read alike by the teacher, a checkpoint to start from and the texts of the layers."""
    path = jsonl(tmp_path / "bare.jsonl", [{"tokens": words} for words, _ in tagged(40)])
    more = ("--init-from", encoders["roberta"], "--schedule", "sequential", "--ild-data", path, "--pair", "similar",
            "--samples", 30, "--ild-teacher", encoders["roberta"])  # fmt: skip
    done = command(*distil(teachers["roberta"], sentences, tmp_path / "run", *more))
    assert done.code == 0, done.err
    narrow = ("--width", 16, "--heads", 2, "--init", "important")
    assert command(*distil(teachers["roberta"], sentences, tmp_path / "narrow", *narrow)).code == 0
    done = command("pairs", "--teacher", teachers["roberta"], "--layers", 2)
    assert done.code == 0 and "student 2 - teacher 4" in done.out
    assert "B-PER" in command("layers", teachers["roberta"]).out


def test_words_beyond_the_length_are_no_tags(command, teachers, tmp_path):
    words = ["Ada", *["word"] * 40]
    path = jsonl(tmp_path / "long.jsonl", [{"tokens": words}, {"tokens": ["Oslo"]}])
    done = command("predict", teachers["bert"], "--data", path, "--out", tmp_path / "out.jsonl", "--max-length", 12)
    assert done.code == 0 and "1 of 2 sentences are longer than 12 tokens and were cut" in done.err
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows[0]["prediction"]) == 41 and rows[0]["prediction"][10:] == [None] * 31
    assert None not in rows[0]["prediction"][:10] and len(rows[1]["prediction"]) == 1


def test_a_tagger_is_fine_tuned_further(command, teachers, sentences, tmp_path):
    """With the same tags its head is kept; a student may be scored beside a teacher with the tags in another order."""
    done = command("finetune", "--model", teachers["bert"], "--data", sentences, *SMALL, "--verbose",
                   "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0 and "new (random)" not in done.err
    others = [(words, [f"{tag}X" if tag != "O" else tag for tag in tags]) for words, tags in tagged()]
    path = conll(tmp_path / "others.conll", others)
    done = command(
        "finetune", "--model", teachers["bert"], "--data", path, *SMALL, "--verbose", "--out", tmp_path / "other"
    )
    assert done.code == 0 and "new (random): classifier.bias, classifier.weight" in done.err
    done = command("evaluate", tmp_path / "other", "--data", path, "--against", teachers["bert"])
    assert done.code == 2 and "B-LOC" in done.err and "cannot be compared" in done.err


@pytest.fixture(scope="session")
def place(tmp_path_factory, teachers, encoders, sentences, tokenizer, tiny_teacher) -> Path:
    """A folder with everything that can be wrong."""
    folder = tmp_path_factory.mktemp("bad")
    rows = tagged()
    for name, source in (("teacher", teachers["bert"]), ("encoder", encoders["bert"]), ("texts", tiny_teacher)):
        (folder / name).symlink_to(source)
    (folder / "good.conll").symlink_to(sentences)
    lines = sentences.read_text().split("\n")
    (folder / "short.conll").write_text("\n".join([*lines[:3], "lonely", *lines[4:]]))
    (folder / "tagless.conll").write_text("\n".join([*lines[:3], "lonely\t", *lines[4:]]))
    (folder / "one.conll").write_text("\n".join(line.split("\t")[0] for line in lines))
    (folder / "outside.conll").write_text("\n".join(re.sub(r"\t.*", "\tO", line) for line in lines))
    conll(folder / "unknown.conll", [*rows[:2], (["Mars"], ["B-PLANET"]), *rows[2:]])
    json_rows = [{"tokens": words, "tags": tags} for words, tags in rows]

    def broken(name: str, row: int, **changes: Any) -> None:
        jsonl(folder / name, [one | (changes if at == row else {}) for at, one in enumerate(json_rows, 1)])

    broken("lengths.jsonl", 5, tags=["O", "O"])
    broken("empty.jsonl", 6, tokens=[], tags=[])
    broken("blank.jsonl", 7, tokens=["Ada", " "], tags=["B-PER", "O"])
    broken("number.jsonl", 8, tokens=["Ada", 3], tags=["B-PER", "O"])
    broken("string.jsonl", 9, tokens="Ada lives")
    broken("planet.jsonl", 4, tokens=["on", "Mars"], tags=["O", "B-PLANET"])
    jsonl(folder / "numbers.jsonl", [{"tokens": words, "tags": [0] * len(words)} for words, _ in rows])
    jsonl(folder / "strings.jsonl", [{"tokens": " ".join(words), "tags": tags} for words, tags in rows])
    jsonl(folder / "other.jsonl", [{"pieces": words, "tags": tags} for words, tags in rows])
    parts = folder / "parts"
    parts.mkdir()
    conll(parts / "train.conll", rows[:40])
    conll(parts / "dev.conll", [*rows[40:50], (["Mars"], ["B-PLANET"])])
    slow = folder / "slow"
    make_encoder(slow, "bert", tokenizer)
    for path in slow.glob("*token*"):
        path.unlink()
    ByT5Tokenizer().save_pretrained(slow)
    return folder


TUNE = "finetune --model {encoder} --out OUT"
DISTILL = "distill --teacher {teacher} --layers 2 --out OUT"
GOOD = f"{DISTILL} --data {{good.conll}}"
PREDICT = "predict {teacher} --out OUT"

CASES = [
    (f"{TUNE} --data {{short.conll}}", "short.conll line 4 sentence 1, token 4 1 field file has 2"),
    (f"{TUNE} --data {{tagless.conll}}", "tagless.conll line 4 sentence 1, token 4 tag is empty"),
    (f"{TUNE} --data {{one.conll}}", "one.conll no tags column --label"),
    (f"{TUNE} --data {{outside.conll}}", "outside.conll all tags are the same 'O' at least two"),
    (f"{DISTILL} --data {{unknown.conll}}", "unknown.conll sentence 3, token 1 tag 'B-PLANET' not known"),
    (f"{TUNE} --data {{parts}}", "dev.conll sentence 11, token 1 'B-PLANET' not known"),
    (f"{TUNE} --data {{lengths.jsonl}}", "lengths.jsonl, row 5 tokens and 2 tags give each token one tag"),
    (f"{TUNE} --data {{empty.jsonl}}", "empty.jsonl, row 6 no tokens"),
    (f"{TUNE} --data {{blank.jsonl}}", "blank.jsonl, row 7, token 2 token is empty"),
    (f"{TUNE} --data {{number.jsonl}}", "number.jsonl, row 8, token 2 token is 3, not text"),
    (f"{TUNE} --data {{string.jsonl}}", 'string.jsonl, row 9 "Ada lives" is not a list of tokens'),
    (f"{DISTILL} --data {{planet.jsonl}}", "planet.jsonl, row 4, token 2 tag 'B-PLANET' not known"),
    (f"{TUNE} --data {{numbers.jsonl}}", "numbers.jsonl, row 1, token 1 tag is the number 0 write names"),
    (f"{DISTILL} --data {{strings.jsonl}}", "strings.jsonl, row 1 'tokens' not a list of tokens --text"),
    (f"{DISTILL} --data {{other.jsonl}}", "other.jsonl no tokens column 'pieces' --text"),
    (f"{DISTILL} --data {{other.jsonl}} --text piece", "other.jsonl 'piece' --text did you mean 'pieces'"),
    (f"{DISTILL} --task rte", "--task rte no named task has a tag for each word --data"),
    (f"{GOOD} --label-noise 0.1", "--label-noise is for classifiers of texts"),
    (f"{GOOD} --multi-label", "--multi-label is for classifiers of texts --label"),
    (f"{GOOD} --text-pair b", "--text-pair is for classifiers of texts"),
    (f"{GOOD} --source a", "--source is for models that generate text this one tags words"),
    (f"{GOOD} --on-policy 0.5", "--on-policy is for models that generate text"),
    (f"{GOOD} --method simkd --option feature=pooled --head reuse-frozen", "simkd pooled feature does not have"),
    (f"{GOOD} --method kd --represent cls", "kd"),
    (f"{GOOD} --head reuse --reuse pooler+linear", "pooler+linear no pooler"),
    ("finetune --model {slow} --data {good.conll} --out OUT", "slow ByT5Tokenizer fast tokenizer"),
    ("distill --teacher {encoder} --layers 2 --data {good.conll} --out OUT", "encoder no trained"),
    (f"{PREDICT} --data {{strings.jsonl}}", "strings.jsonl, row 1 'tokens' not a list of tokens"),
    ("evaluate {teacher} --data {unknown.conll}", "unknown.conll sentence 3, token 1 'B-PLANET' not known"),
    ("evaluate {teacher} --data {one.conll}", "one.conll no tags column"),
    ("evaluate {teacher} --data {good.conll} --against {texts}", "texts no trained token classification head"),
    ("evaluate {teacher} --data {good.conll} --split best", "--split best train, dev, test"),
]


@pytest.mark.parametrize(("asked", "words"), CASES, ids=[f"{asked} {words[:20]}" for asked, words in CASES])
def test_bad_input(command: Callable[..., Any], place: Path, tmp_path: Path, asked: str, words: str) -> None:
    """One line that says where and what, exit code 2, and nothing written."""
    out = tmp_path / "out.jsonl"
    filled = re.sub(r"\{([^}]+)\}", lambda found: str(place / found[1]), asked).replace("OUT", str(out))
    done = command(*filled.split(" "))
    lines = done.err.strip().splitlines()
    assert done.code == 2 and not out.exists() and len(lines) == 1, done.err
    for word in re.findall(r"'[^']*'|\"[^\"]*\"|\S+", words):
        assert word in lines[0], lines[0]
