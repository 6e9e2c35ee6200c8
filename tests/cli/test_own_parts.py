"""A distance, a pairing, a representation and a method of one's own, from an installed package or a recipe's file.

They are named here and nowhere else, and have to be known and to keep the same promises as those that ship.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

PARTS = """
from __future__ import annotations

import torch
import torch.nn.functional as F

from stillery import declare
from stillery.recipe import Representation, View


@declare.distance("own-huber", "squared near 0 and absolute beyond, as a sum and a count")
def own_huber(student, teacher, mask=None, key_mask=None):
    apart = F.smooth_l1_loss(student, teacher, reduction="none")
    valid = torch.ones_like(apart, dtype=torch.bool)
    if key_mask is not None:
        valid &= spread(key_mask, apart)
    if mask is not None:
        valid &= (mask[:, None, :, None] if apart.ndim == 4 else mask[..., None]).bool()
    return apart.where(valid, 0).sum(), valid.sum()


@declare.distance("own-large", "the mean of what is apart by more than a tenth: how much that is only the values say")
def own_large(student, teacher, mask=None):
    apart = (student - teacher).abs()
    valid = apart > 0.1
    if mask is not None:
        valid &= mask[..., None].bool()
    return apart.where(valid, 0).sum(), valid.sum()


def spread(keys, values):
    keys = keys.bool()
    return (keys[:, None, None, :] if keys.ndim == 2 else keys).expand_as(values)


@declare.pairing("own-ends", "the first layers with the first, the last with the last")
def own_ends(student_layers, teacher_layers, clock):
    return [(1, 1), (student_layers, teacher_layers)]


def show(stack, layer):
    heads = [each.unflatten(-1, (stack.heads, -1)).transpose(1, 2) for each in (stack.query[layer], stack.key[layer])]
    scores = heads[0] @ heads[1].transpose(-1, -2)
    real = stack.mask[:, None, None, :].bool()
    return View(scores.masked_fill(~real, -1e9).softmax(-1), stack.mask, stack.mask)


own_maps = declare.representation(
    "own-maps",
    "attention without its scale",
    Representation(
        name="own_maps", extract=show, rows="tokens", needs=("query", "key"), sized=False, heads="own", reads="real"
    ),
)
"""

METHODS = '''
"""Somebody et al. (2026), A Method of One's Own."""

from __future__ import annotations

from own_parts.parts import own_ends, own_huber, own_maps
from stillery.declare import Grid, Group, Paper, try_first
from stillery.parts import divergence
from stillery.recipe import Match, Prediction, Recipe, Stage

__all__ = ["own_method"]

GROUP = Group.ATTENTION


@try_first(1)
def own_method(*, hard_weight: Paper[float] = 0.5, layer_weight: Grid[float] = 5.0, plain: bool = False) -> Recipe:
    """A method of one's own: attention without its scale at both ends."""
    maps = Match(name="maps", represent=own_maps, pair=own_ends, distance=own_huber, weight=layer_weight)
    prediction = None if plain else Prediction(divergence=divergence.kl)
    return Recipe(stages=(Stage(matches=(maps,), prediction=prediction, hard_weight=hard_weight),), init="even")
'''

METADATA = "Metadata-Version: 2.1\nName: own-parts\nVersion: 1.0\n"
ENTRIES = """[stillery.parts]
own = own_parts.parts

[stillery.methods]
own = own_parts.methods
"""

WORDS = ("own-huber", "own-ends", "own-maps", "own-method")


def installed(folder: Path, parts: str = PARTS) -> Path:
    """A package with the parts, as pip would put it into a folder."""
    package, facts = folder / "own_parts", folder / "own_parts-1.0.dist-info"
    package.mkdir(parents=True)
    facts.mkdir()
    (package / "__init__.py").write_text("raise ImportError('nothing may be imported')\n" if parts != PARTS else "")
    (package / "parts.py").write_text(parts)
    (package / "methods.py").write_text(METHODS)
    (facts / "METADATA").write_text(METADATA)
    (facts / "entry_points.txt").write_text(ENTRIES)
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def calm_teacher(tiny_teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny teacher with dropout off, which its students inherit: each micro-batch draws dropout of its own."""
    folder = tmp_path_factory.mktemp("calm")
    model = AutoModelForSequenceClassification.from_pretrained(tiny_teacher)
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0
    model.save_pretrained(folder)
    for file in tiny_teacher.glob("token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def run(site: Path, *arguments: object, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, *launcher, "-m", "stillery", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
    )


def distill(site: Path, teacher: Path, data: Path, out: Path, *more: object, launcher: tuple[str, ...] = ()) -> Path:
    common = ["distill", "--teacher", teacher, "--data", data, "--out", out, "--layers", 2, "--init", "even"]
    common += ["--max-steps", 4, "--lr", 1e-3, "--log-every", 1, "--cache", "off"]
    done = run(site, *common, *more, launcher=launcher)
    assert done.returncode == 0, done.stderr
    return out


def terms(out: Path) -> list[dict[str, float]]:
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [event["terms"] for event in events if event["event"] == "train"]


def test_they_are_in_the_help_and_the_lists(package: Path) -> None:
    told = run(package, "distill", "--help").stdout
    assert all(word in told for word in WORDS)
    parts = run(package, "methods", "--parts").stdout
    assert all(word in parts for word in WORDS[:3]) and "attention without its scale" in parts
    listed = run(package, "methods").stdout
    assert "own-method" in listed and "A method of one's own" in listed
    # Whatever such a file says of itself, it is under this heading and not among those to try first.
    last = listed.rpartition("\n\n")[0].rpartition("\n\n")[2]
    assert last.startswith("Installed packages:\n  own-method ") and last.count("\n") == 1
    shown = run(package, "methods", "own-method").stdout
    assert "Somebody et al. (2026)" in shown and "layer_weight = 5  (grid)" in shown and "(not stated)" in shown
    for asked in (("--method", "own-method"), ("--pair", "own-ends", "--method", "pkd")):
        met = run(package, "pairs", "--teacher-layers", 12, "--layers", 3, "--json", *asked).stdout
        assert json.loads(met) == [[1, 1], [3, 12]]
    assert not any(word in run(package / "nowhere", "distill", "--help").stdout for word in WORDS)


def test_the_help_runs_no_code_of_a_package(tmp_path: Path) -> None:
    broken = installed(tmp_path, PARTS + "\nraise RuntimeError('it ran')\n")
    told = run(broken, "distill", "--help")
    assert told.returncode == 0 and "own-huber" in told.stdout
    done = run(broken, "methods")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "own (own_parts.methods) cannot be loaded" in done.stderr


SWITCHED = ("--method", "tinybert", "--schedule", "joint", "--distance", "own-huber", "--pair", "own-ends",
            "--represent", "own-maps")  # fmt: skip
ASKED = {
    "method": ("--method", "own-method"),
    "switched": SWITCHED,
    "counted": ("--method", "layer-forward", "--distance", "own-large"),
    "pooled": ("--method", "rail-kd", "--distance", "own-huber", "--pair", "own-ends"),
}


@pytest.mark.parametrize("asked", ["method", "switched", "counted"])
def test_a_step_may_be_cut_and_padded(asked: str, package: Path, calm_teacher: Path, reviews: Path, tmp_path: Path):
    """4 x 8 is 1 x 32: the micro-batches are padded to other lengths, too."""
    more = ASKED[asked]
    whole = distill(package, calm_teacher, reviews, tmp_path / "whole", *more, "--batch-size", 32)
    cut = distill(package, calm_teacher, reviews, tmp_path / "cut", *more, "--batch-size", 8, "--accumulate", 4)
    first, second = terms(whole), terms(cut)
    assert first[0].keys() == second[0].keys() and len(first[0]) > 1
    for name, value in first[0].items():
        assert second[0][name] == pytest.approx(value, rel=1e-6, abs=1e-7), name
    for one, other in zip(first[1:], second[1:], strict=True):
        assert other == pytest.approx(one, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ASKED)
def test_two_processes_are_one(asked: str, package: Path, calm_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    more = ASKED[asked]
    one = distill(package, calm_teacher, reviews, tmp_path / "one", *more, "--batch-size", 12)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    two = distill(package, calm_teacher, reviews, tmp_path / "two", *more, "--batch-size", 6, launcher=launcher)
    for name, value in terms(one)[0].items():
        assert terms(two)[0][name] == pytest.approx(value, rel=1e-5), name
    first, second = (load_file(out / "model.safetensors") for out in (one, two))
    for name, value in first.items():
        atol = 1e-4 if "word_embeddings" in name else 2e-5
        torch.testing.assert_close(second[name], value, atol=atol, rtol=0, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["method", "counted", pytest.param("switched", marks=pytest.mark.slow)])
def test_a_run_that_was_killed_goes_on(asked: str, package: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path):
    more = [*ASKED[asked], "--batch-size", 8, "--accumulate", 2, "--checkpoint-every", 2]
    whole = distill(package, tiny_teacher, reviews, tmp_path / "whole", *more)
    # As a kill would: the process ends without a word when it is about to log its third step.
    killing = tmp_path / "killing"
    killing.mkdir()
    (killing / "sitecustomize.py").write_text(
        "import os, builtins\n"
        "import json\n"
        "plain = json.dumps\n"
        "def dumps(value, *rest, **more):\n"
        "    if isinstance(value, dict) and value.get('event') == 'train' and value['step'] == 4:\n"
        "        os._exit(9)\n"
        "    return plain(value, *rest, **more)\n"
        "json.dumps = dumps\n"
    )
    common = ["distill", "--teacher", tiny_teacher, "--data", reviews, "--out", tmp_path / "cut", "--layers", 2]
    common += ["--init", "even", "--max-steps", 4, "--lr", 1e-3, "--log-every", 1, "--cache", "off", *more]
    paths = os.pathsep.join([str(killing), str(package)])
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, [paths, os.environ.get("PYTHONPATH")]))}
    killed = subprocess.run(
        [sys.executable, "-m", "stillery", *map(str, common)], capture_output=True, env=os.environ | environment
    )
    assert killed.returncode == 9, killed.stderr.decode()
    assert list((tmp_path / "cut" / "checkpoints").glob("step-*"))
    done = run(package, *common, "--resume")
    assert done.returncode == 0, done.stderr
    weights = [(out / "model.safetensors").read_bytes() for out in (whole, tmp_path / "cut")]
    assert weights[0] == weights[1]


WRONG = """
import torch
from stillery import declare
from stillery.parts import pair, represent
from stillery.parts.distance import mse
from stillery.recipe import Match, Recipe, Representation, Stage, View


def leaky(student, teacher, mask=None, reduction="mean"):
    return (student - teacher).square().mean()


def broken(student, teacher, mask=None):
    return (student @ teacher).mean()


@declare.distance("centred", "squared error of rows less the mean of their batch", together=True)
def centred(student, teacher, mask=None, reduction="mean"):
    return mse(student - student.mean(0), teacher - teacher.mean(0), mask, reduction)


def undeclared(student, teacher, mask=None, reduction="mean"):
    return mse(student - student.mean(0), teacher - teacher.mean(0), mask, reduction)


@declare.distance("cubed", "cubes of what is apart")
def cubed(student, teacher, mask=None, key_mask=None, reduction="mean"):
    cubes = (student - teacher).abs().pow(3) if mask is None else (student - teacher).abs().pow(3)[mask.bool()]
    return cubes.mean()


@declare.pairing("outside", "beyond the last layer")
def outside(student_layers, teacher_layers, clock):
    return [(1, teacher_layers + 1)]


def show(stack, layer):
    return View(stack.hidden[layer].cumsum(1)[:, -1])


unsteady = Representation(name="unsteady", extract=show, rows="examples")


def build(what=represent.tokens, which=pair.last_layer, how=mse):
    return Recipe(stages=(Stage(matches=(Match(name="own", represent=what, pair=which, distance=how),)),), init="even")


def build_leaky():
    return build(how=leaky)


def build_broken():
    return build(how=broken)


def build_centred():
    return build(represent.pool, how=centred)


def build_undeclared():
    return build(represent.pool, how=undeclared)


def build_outside():
    return build(which=outside)


def build_unsteady():
    return build(unsteady)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(WRONG)
    return path


def own(command, file: Path, name: str, teacher: Path, data: Path, out: Path, *more: object):
    return command(
        "distill", "--teacher", teacher, "--data", data, "--out", out, "--layers", 2, "--max-steps", 2,
        "--recipe", f"{file}:{name}", *more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("build_leaky", "leaky on tokens changes when a step is cut"),
        ("build_broken", "broken on tokens fails on a small batch: RuntimeError"),
        ("build_undeclared", "undeclared on pool changes when a step is cut"),
        ("build_outside", "pair (1, 5) is outside the student's 0..2 and the teacher's 0..4"),
        ("build_unsteady", "mse on unsteady changes when a step is cut"),
    ],
)
def test_what_is_wrong_is_found_before_the_first_step(
    name: str, words: str, command, file: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path
) -> None:
    done = own(command, file, name, tiny_teacher, reviews, tmp_path / "out")
    assert done.code == 2 and words in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_says_that_it_depends_on_its_batch_trains(
    command, file: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path
) -> None:
    assert own(command, file, "build_centred", tiny_teacher, reviews, tmp_path / "out").code == 0


def test_the_parts_of_a_recipes_file_have_words_too(
    command, file: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path
) -> None:
    done = own(command, file, "build", tiny_teacher, reviews, tmp_path / "out", "--distance", "cubed")
    assert done.code == 0, done.err
    found = command("pairs", "--recipe", f"{file}:build", "--pair", "outside", "--teacher-layers", 4, "--layers", 2)
    assert found.code == 0 and "student 1 - teacher 5" in found.out
    done = own(command, file, "build", tiny_teacher, reviews, tmp_path / "other", "--distance", "cubd")
    assert done.code == 2 and "choose from" in done.err and "cubed" in done.err
