"""The public JSON shapes: `pairs`, `methods`, `layers`, `evaluate`."""

from __future__ import annotations

import json

import pytest
from csv_files import write_csv

FORWARD = [[0, 0], [1, 4], [2, 8], [3, 12]]
ISSUED = {"none", "kd", "pkd", "layer-forward", "layer-reverse", "layer-all-to-one", "layer-random"}


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        (("layer-forward", 12, 3), FORWARD),
        (("layer-forward", 12, 6), [[0, 0], [1, 2], [2, 4], [3, 6], [4, 8], [5, 10], [6, 12]]),
        (("layer-forward", 12, 3, "--option", "embedding=false"), FORWARD[1:]),
        (("layer-reverse", 12, 3), [[0, 0], [1, 12], [2, 8], [3, 4]]),
        (("layer-all-to-one", 12, 3), [[0, 6], [1, 6], [2, 6], [3, 6]]),
        (("pkd", 12, 6), [[1, 2], [2, 4], [3, 6], [4, 8], [5, 10]]),
        (("pkd", 12, 6, "--option", "layers=last"), [[1, 7], [2, 8], [3, 9], [4, 10], [5, 11]]),
        (("u-ild", 8, 3), [[1, 3], [2, 6], [3, 8], [0, 0]]),
        (("tinybert", 12, 5), [[1, 3], [2, 5], [3, 8], [4, 10], [5, 12], [0, 0]]),
        (("kd", 12, 3), []),
        (("none", 12, 3), []),
    ],
)
def test_pairs(command, options, pairs):
    method, teacher, student, *rest = options
    done = command("pairs", "--method", method, "--teacher-layers", teacher, "--layers", student, *rest, "--json")
    assert done.code == 0 and done.err == ""
    assert done.json == pairs


def test_pairs_of_models_that_write_text(command):
    asked = ("pairs", "--method", "layer-forward", "--teacher-layers", 8, "--layers", 3, "--json")
    both = [[0, 0], [1, 3], [2, 6], [3, 8]]
    assert command(*asked, "--kind", "encoder-decoder").json == {"encoder": both, "decoder": both}
    deep = command(*asked, "--kind", "encoder-decoder", "--teacher-decoder-layers", 12, "--decoder-layers", 2).json
    assert deep == {"encoder": both, "decoder": [[0, 0], [1, 6], [2, 12]]}
    assert command(*asked, "--kind", "decoder").json == both[1:]
    done = command(*asked, "--kind", "decoder", "--decoder-layers", 2)
    assert done.code == 2 and "--kind encoder-decoder" in done.err
    done = command(*asked, "--kind", "encoder-decoder", "--decoder-layers", 9)
    assert done.code == 2 and "--decoder-layers 9" in done.err
    drawn = ("pairs", "--method", "layer-random", "--teacher-layers", 24, "--layers", 12, "--kind", "encoder-decoder")
    found = command(*drawn, "--json").json
    assert found["encoder"] != found["decoder"], "each stack has a permutation of its own"
    assert sorted(theirs for _, theirs in found["encoder"]) == sorted(theirs for _, theirs in found["decoder"])
    assert "decoder_hidden:" in command(*drawn).out


def test_random_pairs_follow_the_seed_and_not_the_epoch(command):
    def pairs(**options):
        given = [part for name, value in options.items() for part in (f"--{name}", value)]
        return command(
            "pairs", "--method", "layer-random", "--teacher-layers", 12, "--layers", 6, *given, "--json"
        ).json

    found = pairs()
    assert found == pairs(epoch=3) == pairs(seed=0)
    assert sorted(teacher for _, teacher in found) == [0, 2, 4, 6, 8, 10, 12]
    assert len({json.dumps(pairs(seed=seed)) for seed in range(5)}) > 1


def test_pairs_in_words(command):
    done = command("pairs", "--method", "layer-forward", "--teacher-layers", 12, "--layers", 1)
    assert done.out == "hidden:\n  student embedding - teacher embedding\n  student 1 - teacher 12\n"
    assert command("pairs", "--method", "kd", "--teacher-layers", 12, "--layers", 1).out == "kd matches no layers\n"


def test_methods(command):
    found = command("methods", "--json").json
    assert {method["name"] for method in found} >= ISSUED
    for method in found:
        assert method["paper"] and method["summary"] and method["stages"]
        assert all({"name", "hard_weight", "prediction", "matches"} <= stage.keys() for stage in method["stages"])
        shown = command("methods", method["name"])
        assert shown.code == 0 and method["paper"] in shown.out
        assert all(option in shown.out for option in method["options"])
    listed = command("methods").out
    assert all(method["name"] in listed for method in found)
    assert command("methods", "pkd", "--json").json == [method for method in found if method["name"] == "pkd"]


def test_layers(command, tiny_teacher):
    found = command("layers", tiny_teacher, "--json").json
    (stack,) = found["stacks"]
    assert (found["type"], found["labels"]) == ("bert", ["negative", "positive"])
    assert (stack["layers"], stack["width"], stack["heads"]) == (4, 32, 4)
    assert [row["layer"] for row in stack["rows"]] == [0, 1, 2, 3, 4]
    assert 0 < sum(row["parameters"] for row in stack["rows"]) < found["parameters"]
    shown = command("layers", tiny_teacher).out
    assert "4 layers, width 32, 4 heads" in shown and "head: negative, positive" in shown


def test_evaluate(command, tiny_teacher, reviews):
    done = command("evaluate", tiny_teacher, "--data", reviews, "--json")
    assert done.code == 0, done.err
    found = done.json
    assert (found["task"], found["examples"]) == ("reviews.csv", 160)
    assert 0 <= found["metrics"]["accuracy"] <= 100
    assert not found.keys() & {"teacher_metrics", "agreement"}
    test = command("evaluate", tiny_teacher, "--data", reviews, "--split", "test", "--json").json
    assert test["examples"] == 16
    assert "160 examples" in command("evaluate", tiny_teacher, "--data", reviews).out


def test_evaluate_against_a_teacher(command, tiny_teacher, make_bert, reviews):
    # The same classes in another order are the same classes.
    other = make_bert(id2label={0: "positive", 1: "negative"}, label2id={"positive": 0, "negative": 1})
    found = command("evaluate", other, "--data", reviews, "--against", tiny_teacher, "--json").json
    assert found["teacher_metrics"] == command("evaluate", tiny_teacher, "--data", reviews, "--json").json["metrics"]
    assert 0 <= found["agreement"] <= 100
    own = command("evaluate", tiny_teacher, "--data", reviews, "--against", tiny_teacher, "--json").json
    assert own["agreement"] == 100 and own["difference"]["value"] == 0
    assert "agreement with the teacher" in command("evaluate", other, "--data", reviews, "--against", other).out


def test_a_constant_regression_still_prints_json(command, make_bert, scores):
    model = make_bert(num_labels=1, problem_type="regression", initializer_range=0.0)
    done = command("evaluate", model, "--data", scores, "--json")
    assert done.code == 0, done.err
    json.loads(done.out, parse_constant=pytest.fail)


def test_evaluate_a_folder_and_a_run(command, tiny_teacher, texts, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    rows = [(text, ("negative", "positive")[row % 2]) for row, text in enumerate(texts)]
    write_csv(data / "train.csv", ("text", "label"), rows[:20])
    write_csv(data / "dev.csv", ("text", "label"), rows[20:30])
    write_csv(data / "test.csv", ("text", "label"), rows[30:])
    out = tmp_path / "run"
    options = ("--layers", 1, "--max-steps", 2, "--batch-size", 8)
    done = command("distill", "--teacher", tiny_teacher, "--data", data, *options, "--out", out)
    assert done.code == 0, done.err
    written = json.loads((out / "metrics.json").read_text())
    found = command("evaluate", out, "--data", data, "--against", tiny_teacher, "--json").json
    assert {name: written[name] for name in found} == found
    assert command("evaluate", out, "--data", data, "--split", "dev", "--json").json["examples"] == 10
