"""Embedding models through the command line: from texts to a student that sentence-transformers loads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from csv_files import write_csv
from embedding_models import SMALL, embedded, make_embedder, sentences, write_pairs, write_texts
from scipy.stats import spearmanr
from tagging_models import make_encoder

from stillery.train import checkpoint

OF_CLASSES = {
    **dict.fromkeys(("codir", "universal-kd"), "compares texts by their classes"),
    "none": "learns from labels alone",
}
"""Methods that an embedding model is not distilled with, and why."""


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts") / "texts.txt")


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.csv")


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A folder of sentence-transformers with a dense module."""
    return make_embedder(tmp_path_factory.mktemp("teacher") / "embedder", tokenizer)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """An encoder without a head, and without the files of sentence-transformers."""
    return make_encoder(tmp_path_factory.mktemp("plain") / "encoder", "bert", tokenizer)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def distil(teacher: Path, data: Path, out: Path, *more: object) -> tuple[object, ...]:
    return ("distill", "--teacher", teacher, "--data", data, "--layers", 2, *SMALL, *more, "--out", out)


def steps(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "train"]


TRAINED = ("kd", "layer-forward", "rail-kd", "pkd", "tinybert", "minilm", "cr-ild", "emd-ild", "ild-rtc")


@pytest.mark.parametrize("name", [*TRAINED, *OF_CLASSES])
def test_every_method_trains_or_is_refused(command, teacher, texts, name, tmp_path):
    options = ("--cache", "off")
    if name in ("l-ild", "u-ild", "emd-ild", "tinybert", "minilm", "minilm-v2", "cr-ild"):
        options += ("--option", "layer_share=0.5", "--option", "least_steps=2")
    done = command(*distil(teacher, texts, tmp_path / "run", "--method", name, *options))
    if name in OF_CLASSES:
        lines = done.err.strip().splitlines()
        assert done.code == 2 and not (tmp_path / "run").exists()
        assert len(lines) == 1 and name in lines[0] and OF_CLASSES[name] in lines[0]
        return
    assert done.code == 0, done.err
    found = steps(tmp_path / "run")
    assert len(found) == 6 and all("hard" not in step["terms"] for step in found)
    assert any("soft" in step["terms"] for step in found)


def test_from_texts_to_a_folder_of_sentence_transformers(command, teacher, pairs, tmp_path):
    """Scores, predictions and files agree with what transformers alone makes of the exported folder."""
    student = tmp_path / "student"
    done = command(*distil(teacher, pairs, student, "--width", 16, "--heads", 2))
    assert done.code == 0, done.err
    assert f'sentence_transformers.SentenceTransformer("{student}")' in done.out
    assert [module["path"] for module in read(student / "modules.json")] == ["", "1_Pooling", "2_Dense", "3_Normalize"]
    assert read(student / "2_Dense" / "config.json")["in_features"] == 16
    assert read(student / "sentence_bert_config.json")["max_seq_length"] == 40
    found = read(student / "metrics.json")
    rows = pq.read_table(student / "predictions.parquet").to_pylist()
    for column, folder in (("prediction", student), ("teacher_prediction", teacher)):
        left, right = (embedded(folder, [row[name] for row in rows]) for name in ("text", "text_pair"))
        cosines = torch.nn.functional.cosine_similarity(left, right).tolist()
        assert [row[column] for row in rows] == pytest.approx(cosines, abs=1e-5)
    scores = [row["label"] for row in rows]
    mine, theirs = (100 * spearmanr(scores, [row[name] for row in rows]).statistic
                    for name in ("prediction", "teacher_prediction"))  # fmt: skip
    assert found["metrics"]["spearman"] == pytest.approx(mine, abs=1e-3) and found["split"] == "test"
    assert found["teacher_metrics"]["spearman"] == pytest.approx(theirs, abs=1e-3)
    assert found["intervals"].keys() == {"spearman", "pearson"} and 0 < found["teacher_cosine"] <= 100

    done = command("evaluate", student, "--data", pairs, "--split", "test", "--against", teacher, "--json")
    assert done.code == 0, done.err
    for name in ("metrics", "teacher_metrics", "intervals", "teacher_cosine", "difference"):
        assert done.json[name] == found[name], name

    done = command("predict", student, "--data", pairs, "--out", tmp_path / "embedded.parquet")
    assert done.code == 0, done.err
    table = pq.read_table(tmp_path / "embedded.parquet")
    assert table.column_names == ["sentence1", "sentence2", "score", "embedding"]
    vectors = np.stack(table["embedding"].to_numpy())
    np.testing.assert_allclose(vectors, embedded(student, table["sentence1"].to_pylist()), atol=1e-6)

    assert command("check", student / "run.toml").code == 0
    card = (student / "README.md").read_text()
    assert "library_name: sentence-transformers" in card and "pipeline_tag: sentence-similarity" in card
    done = command("compare", student, student)
    assert done.code == 0 and "spearman" in done.out


def test_texts_are_scored_by_the_teachers_embeddings(command, teacher, texts, tmp_path, monkeypatch):
    """A run that was killed continues to the same bits, and a run file repeats it."""

    def ask(out: Path) -> tuple[object, ...]:
        return distil(teacher, texts, out, "--checkpoint-every", 2, "--eval-every", 2)

    whole, cut, again = (tmp_path / name for name in ("whole", "cut", "again"))
    assert command(*ask(whole)).code == 0
    found = read(whole / "metrics.json")
    rows = pq.read_table(whole / "predictions.parquet").to_pylist()
    ours, theirs = (embedded(folder, [row["text"] for row in rows]) for folder in (whole, teacher))
    cosine = 100 * float(torch.nn.functional.cosine_similarity(ours, theirs).mean())
    assert found["metrics"] == {"cosine": pytest.approx(cosine, abs=1e-3)} and found["unlabelled"]
    assert [event["step"] for event in steps(whole)] == [1, 2, 3, 4, 5, 6]

    save = checkpoint.save

    def save_and_stop(*arguments: Any) -> None:
        save(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        assert command(*ask(cut)).code == 130
    assert command(*ask(cut), "--resume").code == 0
    assert command("distill", "--config", whole / "run.toml", "--out", again).code == 0
    for out in (cut, again):
        for file in ("model.safetensors", "2_Dense/model.safetensors", "run.toml", "predictions.parquet"):
            assert (out / file).read_bytes() == (whole / file).read_bytes()


def test_a_divided_step_has_the_same_terms(command, teacher, texts, tmp_path):
    """Four micro-batches of 8 are one batch of 32, for a projected match and the embeddings; cached or not."""
    runs = []
    for name, more in {
        "whole": ("--batch-size", 32), "divided": ("--batch-size", 8, "--accumulate", 4),
        "cached": ("--batch-size", 8, "--accumulate", 4, "--cache", "on"),
    }.items():  # fmt: skip
        method = ("--method", "rail-kd", "--width", 16, "--heads", 2, "--divergence", "mse", "--cache", "off")
        assert command(*distil(teacher, texts, tmp_path / name, *method, "--max-steps", 3, *more)).code == 0
        runs.append(steps(tmp_path / name))
    for other, close in ((runs[1], 1e-5), (runs[2], 1e-3)):
        for one, two in zip(runs[0], other, strict=True):
            assert one["terms"] == pytest.approx(two["terms"], rel=close, abs=1e-7)


def test_similarities_within_a_batch(command, teacher, texts, tmp_path):
    """They are added to the term of the embeddings, and are refused where a step is divided."""
    asked = ("--method", "kd", "--max-steps", 2)
    for name, more in {
        "cosine": (), "similarity": ("--divergence", "similarity"), "both": ("--similarity-weight", 2.5)
    }.items():  # fmt: skip
        assert command(*distil(teacher, texts, tmp_path / name, *asked, *more)).code == 0
    cosine, similarity, both = (steps(tmp_path / name)[0]["terms"]["soft"] for name in ("cosine", "similarity", "both"))
    assert similarity > 0 and both == pytest.approx(cosine + 2.5 * similarity, rel=1e-5)
    done = command(*distil(teacher, texts, tmp_path / "no", *asked, "--similarity-weight", 1, "--accumulate", 2))
    assert done.code == 2 and "compares the examples of a batch with each other" in done.err
    assert len(done.err.strip().splitlines()) == 1 and not (tmp_path / "no").exists()
    assert command("check", tmp_path / "both" / "run.toml").code == 0


@pytest.mark.parametrize("pooling", ["cls", "max"])
def test_a_plain_encoder_is_pooled_as_asked(command, plain, texts, pooling, tmp_path):
    """By default its token states are averaged; its student's folder states the pooling."""
    for name, more in {"asked": ("--pooling", pooling), "usual": ()}.items():
        out = tmp_path / f"{name}.jsonl"
        assert command("predict", plain, "--data", texts, "--out", out, *more).code == 0
        vectors = torch.tensor([json.loads(line)["embedding"] for line in out.read_text().splitlines()])
        folder = tmp_path / name
        shutil.copytree(plain, folder)
        flags = {"pooling_mode_cls_token": name == "asked" and pooling == "cls",
                 "pooling_mode_max_tokens": name == "asked" and pooling == "max"}  # fmt: skip
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(flags))
        modules = [{"type": "models.Transformer", "path": ""}, {"type": "models.Pooling", "path": "1_Pooling"}]
        (folder / "modules.json").write_text(json.dumps(modules))
        torch.testing.assert_close(vectors, embedded(folder, sentences()), atol=1e-5, rtol=0)
    done = command(*distil(plain, texts, tmp_path / "run", "--pooling", pooling, "--max-steps", 1))
    assert done.code == 0, done.err
    flags = read(tmp_path / "run" / "1_Pooling" / "config.json")
    assert [name for name, on in flags.items() if on is True] == [
        f"pooling_mode_{pooling}_token{'s' * (pooling == 'max')}"
    ]
    line = command("predict", tmp_path / "run", "--data", texts, "--out", tmp_path / "x.csv", "--pooling", "mean").err
    assert f"the pooling of {tmp_path / 'run'} is {pooling}, by its files" in line


def test_texts_to_learn_from_and_pairs_to_score(command, teacher, tmp_path):
    """A folder may have plain texts for training, and pairs with scores to choose weights by and to report."""
    data = tmp_path / "data"
    data.mkdir()
    write_texts(data / "train.txt", 40)
    write_pairs(data / "dev.csv", 20)
    write_pairs(data / "test.csv", 30)
    done = command(*distil(teacher, data, tmp_path / "run"))
    assert done.code == 0, done.err
    assert "40 train, 20 dev, 30 test examples, embeddings, scored by pairs of texts" in done.err
    found = read(tmp_path / "run" / "metrics.json")
    assert found["examples"] == 30 and found["training"]["dev_best"].keys() == {"spearman"}


def test_retrieval(command, teacher, tmp_path):
    """Queries and documents in one file, or in BEIR's three, have the same scores, by numpy and transformers."""
    texts = sentences(12)
    queries, documents = texts[:4], texts[4:]
    grades = {(row, (5 * row + step) % 8): 2 - step for row in range(4) for step in range(3)}
    rows = [(queries[query], documents[place], grade) for (query, place), grade in grades.items()]
    one = write_csv(tmp_path / "judged.csv", ("Query", "passage", "relevance"), rows)
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    # A title stands before its text.
    halves = [text.partition(" ") for text in documents]
    corpus = [{"_id": f"d{place}", "title": half[0], "text": half[2]} for place, half in enumerate(halves)]
    (beir / "corpus.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in corpus))
    asked = [{"_id": f"q{place}", "text": text} for place, text in enumerate(queries)]
    (beir / "queries.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in asked))
    judged = [f"q{query}\td{place}\t{grade}" for (query, place), grade in grades.items()]
    (beir / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")

    left, right = embedded(teacher, queries), embedded(teacher, documents)
    ranking = (left @ right.T).argsort(dim=1, descending=True, stable=True).tolist()
    gains = [1 / np.log2(rank + 2) for rank in range(10)]
    ndcg = [
        sum(grades.get((query, place), 0) * gain for place, gain in zip(places, gains, strict=False))
        / (2 * gains[0] + gains[1])
        for query, places in enumerate(ranking)
    ]
    for data in (one, beir):
        done = command("evaluate", teacher, "--data", data, "--json", "--predictions", tmp_path / f"{data.name}.jsonl")
        assert done.code == 0, done.err
        assert done.json["metrics"] == {"ndcg@10": pytest.approx(100 * np.mean(ndcg), abs=1e-3), "recall@10": 100.0}
        assert (done.json["examples"], done.json["documents"]) == (4, 8)
        low, high = done.json["intervals"]["ndcg@10"]
        assert low <= 100 * np.mean(ndcg) <= high
    written = [json.loads(line) for line in (tmp_path / "beir.jsonl").read_text().splitlines()]
    assert [row["documents"] for row in written] == [[f"d{place}" for place in places] for places in ranking]


BAD = {
    "labels": ("distill --teacher {teacher} --layers 2 --data {reviews} --out OUT",
               "its labels are not for a model that embeds texts", "--unlabelled"),
    "task": ("distill --teacher {teacher} --layers 2 --task rte --out OUT", "--task rte", "--unlabelled"),
    "finetune": ("finetune --model {plain} --pooling cls --data {reviews} --out OUT",
                 "which stillery finetune does not train", "stillery distill"),
    "nothing to score by": ("evaluate {teacher} --data {texts}", "nothing that embeddings are scored by", "--against"),
    "divergence": ("distill --teacher {teacher} --layers 2 --divergence kl --data {texts} --out OUT",
                   "embeddings are compared by mse, cosine, similarity", "--divergence kl"),
    "hard weight": ("distill --teacher {teacher} --layers 2 --hard-weight 0.5 --data {texts} --out OUT",
                    "--hard-weight is for predictions of classes", "--divergence"),
    "similarity twice": (
        "distill --teacher {teacher} --layers 2 --divergence similarity --similarity-weight 1 --data {texts} --out OUT",
        "nothing beside it", "leave it out"),
    "feature": (
        "distill --teacher {teacher} --layers 2 --method simkd --option feature=pooled --data {texts} --out OUT",
        "matches the feature that a classifier reads", "layer-forward"),
    "judged": ("distill --teacher {teacher} --layers 2 --data {judged} --out OUT",
               "queries and documents are for stillery evaluate", "under another name"),
    "relevance": ("evaluate {teacher} --data {judged}", "judged.csv, row 2: the relevance is 'much'", "give a number"),
    "classifier": ("distill --teacher {classifier} --layers 2 --similarity-weight 1 --data {reviews} --out OUT",
                   "--similarity-weight is for models that embed texts", "a classifier"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_has_one_line(command, teacher, plain, texts, reviews, tiny_teacher, case, tmp_path):
    judged = write_csv(tmp_path / "judged.csv", ("query", "document", "relevance"), [("a", "b", 1), ("a", "c", "much")])
    asked, said, cure = BAD[case]
    places = {"teacher": teacher, "plain": plain, "texts": texts, "reviews": reviews, "judged": judged,
              "classifier": tiny_teacher}  # fmt: skip
    done = command(*asked.format(**places).replace("OUT", str(tmp_path / "out")).split())
    (line,) = done.err.strip().splitlines()
    assert done.code == 2 and said in line and cure in line, line
    assert not (tmp_path / "out").exists()


def test_labelled_texts_are_distilled_unlabelled(command, teacher, reviews, tmp_path):
    done = command(*distil(teacher, reviews, tmp_path / "run", "--unlabelled", "--max-steps", 2))
    assert done.code == 0, done.err
    assert list(read(tmp_path / "run" / "metrics.json")["metrics"]) == ["cosine"]
