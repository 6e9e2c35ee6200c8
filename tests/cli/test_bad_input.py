"""Bad input: one line for each error, exit code 2, and nothing written.

Every case is a command that fails; `{name}` stands for a file or folder of the fixture `place`, and the words must all
be in what it says. `OUT` is a folder that must not be there afterwards.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from csv_files import write_csv
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModel, BertConfig, PreTrainedTokenizerFast

HEADER = ("text", "label")


@pytest.fixture(scope="session")
def place(tmp_path_factory, tiny_teacher, reviews, scores, make_bert, texts, tokenizer) -> Path:
    """A folder with everything that can be wrong."""
    folder = tmp_path_factory.mktemp("bad")
    rows = [(text, ("negative", "positive")[row % 2]) for row, text in enumerate(texts)]
    shutil.copy(reviews, folder / "good.csv")
    shutil.copy(scores, folder / "scores.csv")
    shutil.copytree(tiny_teacher, folder / "teacher")

    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("text,label\n")
    (folder / "note.xml").write_text("text,label\na,b\n")
    (folder / "ragged.csv").write_text("text,label\na,negative\nb,positive,c\n")
    (folder / "latin.csv").write_bytes("text,label\ncafé,negative\n".encode("latin-1"))
    (folder / "array.jsonl").write_text('[{"text": "a"}, 1]\n')
    write_csv(folder / "columns.csv", ("words", "verdict"), rows)
    write_csv(folder / "one_class.csv", HEADER, [(text, "positive") for text, _ in rows])
    write_csv(folder / "three_classes.csv", HEADER, [*rows, ("so so", "neutral")])
    write_csv(folder / "gap.csv", HEADER, [*rows[:4], ("", "positive"), ("  ", "positive"), *rows[4:]])
    write_csv(folder / "nan.csv", HEADER, [*rows[:2], ("NaN", "positive"), *rows[2:]])
    write_csv(folder / "no_label.csv", HEADER, [*rows[:6], ("some text", ""), *rows[6:]])
    scored = [(text, 0.5 * row) for row, text in enumerate(texts)]
    write_csv(folder / "bad_score.csv", ("text", "score"), [*scored[:7], ("good", "high"), *scored[7:]])
    write_csv(folder / "few.csv", HEADER, rows[:2])
    write_csv(folder / "taken.csv", ("text", "prediction"), rows)
    parts = folder / "parts"
    parts.mkdir()
    write_csv(parts / "train.csv", HEADER, rows)
    write_csv(parts / "dev.csv", HEADER, [("so so", "neutral")])
    (folder / "no_parts").mkdir()

    shutil.copytree(tiny_teacher, folder / "truncated")
    weights = folder / "truncated" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    shutil.copytree(tiny_teacher, folder / "no_tokenizer")
    for path in (folder / "no_tokenizer").glob("*token*"):
        path.unlink()
    shutil.copytree(tiny_teacher, folder / "bad_config")
    (folder / "bad_config" / "config.json").write_text("{")
    headless = AutoModel.from_config(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4))
    headless.save_pretrained(folder / "headless")
    tokenizer.save_pretrained(folder / "headless")
    (folder / "no_model").mkdir()
    shutil.copytree(make_bert(vocab_size=5), folder / "other_words")
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2, "good": 3, "film": 4}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    for path in (folder / "other_words").glob("*token*"):
        path.unlink()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(
        folder / "other_words"
    )
    shutil.copytree(make_bert(id2label={0: "ham", 1: "spam"}, label2id={"ham": 0, "spam": 1}), folder / "spam")
    shutil.copytree(make_bert(num_labels=1, problem_type="regression"), folder / "scorer")

    (folder / "a_file").write_text("here")
    (folder / "full").mkdir()
    (folder / "full" / "thesis.txt").write_text("years of work")
    (folder / "unfinished").mkdir()
    (folder / "unfinished" / "run.toml").write_text('job = "distill"\n')
    (folder / "broken_run").mkdir()
    (folder / "broken_run" / "run.toml").write_text("job = \n")
    (folder / "not.toml").write_text("a b c\n")
    (folder / "job.toml").write_text('job = "dance"\nteacher = "teacher"\ndata = "good.csv"\n')
    (folder / "tune.toml").write_text('job = "finetune"\nmodel = "teacher"\ndata = "good.csv"\n')
    (folder / "typo.toml").write_text('teacher = "teacher"\ndata = "good.csv"\nlayer = 2\n')
    (folder / "types.toml").write_text(
        'teacher = 3\ndata = "good.csv"\nlayers = "2"\noptions = 1\nfingerprints = "x"\n'
    )
    return folder


DISTILL = "distill --teacher {teacher} --layers 2 --out OUT"
GOOD = f"{DISTILL} --data {{good.csv}}"
TUNE = "finetune --model {teacher} --out OUT"
PREDICT = "predict {teacher} --out OUT"
EVALUATE = "evaluate {teacher}"

CASES = [
    # The examples.
    (f"{DISTILL} --data {{nowhere.csv}}", "no such file nowhere.csv"),
    (f"{TUNE} --data {{nowhere.csv}}", "no such file nowhere.csv"),
    (f"{DISTILL} --data {{empty.csv}}", "empty.csv empty header rows"),
    (f"{TUNE} --data {{header.csv}}", "header.csv header but no rows"),
    (f"{TUNE} --data {{note.xml}}", "note.xml format .csv .parquet"),
    (f"{TUNE} --data {{ragged.csv}}", "ragged.csv row 2 3 fields quotes"),
    (f"{TUNE} --data {{latin.csv}}", "latin.csv row 1 UTF-8 --encoding latin-1"),
    (f"{TUNE} --data {{array.jsonl}}", "array.jsonl row 2 JSON int not an object no label column --label"),
    (f"{TUNE} --data {{latin.csv}} --encoding latn", "--encoding latn no such encoding utf-16"),
    (f"{TUNE} --task imdb --encoding latin-1", "--encoding cannot go with --task"),
    (f"{TUNE} --data {{good.csv}} --label-map 0neg", "--label-map 0neg 0=neg,1=pos"),
    (
        f"{TUNE} --data {{good.csv}} --label-map bad=negative",
        "good.csv --label-map 'bad' no row has negative, positive",
    ),
    (f"{GOOD} --label-map negative=bad", "--label-map 'bad' not a label of the model negative, positive"),
    (f"{TUNE} --data {{columns.csv}}", "columns.csv no text column --text no label column --label 'words' 'verdict'"),
    (f"{TUNE} --data {{good.csv}} --text txt", "'txt' --text did you mean 'text'"),
    (f"{TUNE} --data {{good.csv}} --label lable", "'lable' --label did you mean 'label'"),
    (f"{TUNE} --data {{one_class.csv}}", "one_class.csv same class 'positive' at least two"),
    (f"{DISTILL} --data {{one_class.csv}}", "one_class.csv same class 'positive'"),
    (f"{DISTILL} --data {{three_classes.csv}}", "three_classes.csv row 41 'neutral' not known negative, positive"),
    (f"{TUNE} --data {{parts}}", "dev.csv row 1 'neutral' not known"),
    (f"{TUNE} --data {{no_parts}}", "no_parts no train file"),
    (f"{TUNE} --data {{gap.csv}}", "gap.csv row 5 also 6 'text' empty fill it in or remove"),
    (f"{TUNE} --data {{nan.csv}}", "nan.csv row 3 empty"),
    (f"{TUNE} --data {{no_label.csv}}", "no_label.csv row 7 label is missing"),
    (f"{TUNE} --data {{bad_score.csv}}", "bad_score.csv row 8 'high' not a finite number"),
    (f"{TUNE} --data {{few.csv}}", "few.csv only 2 different texts"),
    (f"{DISTILL} --data {{scores.csv}}", "scores.csv not known"),
    (f"{GOOD} --regression", "--regression the model predicts classes"),
    (f"{GOOD} --task rotten-tomatoes", "both --data and --task"),
    (DISTILL, "neither --data nor --task"),
    (TUNE, "neither --data nor --task"),
    (f"{DISTILL} --task rotten-potatoes", "'rotten-potatoes' did you mean 'rotten-tomatoes'"),
    (f"{TUNE} --task imdb --text review", "--text cannot go with --task"),
    (
        "distill --teacher {spam} --layers 1 --task rotten-tomatoes --out OUT",
        "ham, spam are not those of rotten-tomatoes",
    ),
    # The models.
    ("distill --data {good.csv} --layers 1 --out OUT", "--teacher is not given"),
    ("finetune --data {good.csv} --out OUT", "--model is not given"),
    ("distill --teacher {nowhere} --data {good.csv} --layers 1 --out OUT", "nowhere no such folder"),
    ("distill --teacher {good.csv} --data {good.csv} --layers 1 --out OUT", "good.csv is a file folder"),
    ("distill --teacher {no_model} --data {good.csv} --layers 1 --out OUT", "no_model config.json"),
    (
        "distill --teacher {headless} --data {good.csv} --layers 1 --out OUT",
        "labels headless embeds texts --unlabelled",
    ),
    ("distill --teacher {truncated} --data {good.csv} --layers 1 --out OUT", "truncated damaged"),
    ("finetune --model {truncated} --data {good.csv} --out OUT", "truncated damaged"),
    ("distill --teacher {bad_config} --data {good.csv} --layers 1 --out OUT", "bad_config config.json"),
    ("distill --teacher {no_tokenizer} --data {good.csv} --layers 1 --out OUT", "no_tokenizer tokenizer"),
    ("distill --teacher {unfinished} --data {good.csv} --layers 1 --out OUT", "unfinished not finished"),
    # The student.
    (f"{GOOD} --layers 5", "--layers 5 only 4 layers cannot be deeper"),
    (f"{GOOD} --layers 0", "--layers is 0 at least 1"),
    ("distill --teacher {teacher} --data {good.csv} --out OUT", "--layers is not given 4 layers"),
    (f"{GOOD} --width 30 --heads 4", "width 30 not divisible 4 heads --heads"),
    (f"{GOOD} --width 0", "--width is 0"),
    (f"{GOOD} --init {{other_words}}", "tokenizers teacher other_words differ hidden states one tokenizer"),
    (f"{GOOD} --init-from {{other_words}}", "tokenizers teacher other_words differ"),
    (f"{GOOD} --init {{nowhere}}", "--init nowhere no such folder even, first, last, random"),
    (f"{GOOD} --init {{spam}} --width 16", "--width cannot go with --init"),
    (f"{GOOD} --init {{spam}} --layers 1", "--layers 1 has 2"),
    (f"{GOOD} --copy-layers 2,x", "--copy-layers 2,x give layer numbers such as 2,5,8"),
    (f"{GOOD} --copy-layers 2,9", "--copy-layers 2,9 layers 1 to 4"),
    (f"{GOOD} --copy-layers 1,2,3", "--copy-layers names 3 layers, --layers says 2"),
    (f"{GOOD} --copy-layers 1,2 --init random", "--copy-layers cannot go with --init random"),
    (f"{GOOD} --copy-layers 1,2 --width 64", "--copy-layers cannot go with --width 64: the layers are 32 wide"),
    (f"{GOOD} --head new", "--head is 'new' fresh, reuse, reuse-frozen"),
    (f"{GOOD} --head reuse --reuse pooler+linear --width 16 --heads 2", "--reuse width 16 fold --allow-custom-head"),
    (f"{GOOD} --head reuse --projector mlp", "--projector mlp not fold --allow-custom-head"),
    (f"{GOOD} --reuse linear", "--reuse cannot go with --head fresh"),
    # The method.
    (f"{GOOD} --method layer-foward", "unknown method 'layer-foward' did you mean 'layer-forward' stillery methods"),
    (f"{GOOD} --option warmth=3", "layer-forward no option 'warmth'"),
    (f"{GOOD} --method pkd --option layers=top", "layers pkd 'top' skip, last"),
    (f"{GOOD} --method kd --option square=perhaps", "square kd 'perhaps' true or false"),
    (f"{GOOD} --option layer_weight", "--option layer_weight NAME=VALUE"),
    (f"{GOOD} --method none --temperature 3", "none no option 'temperature'"),
    (f"{GOOD} --method none --hard-weight 0", "nothing is learnt --hard-weight"),
    (f"{GOOD} --temperature 0", "--temperature is 0.0 more than 0"),
    (f"{GOOD} --method kd --hard-weight 1.5", "hard_weight between 0 and 1"),
    (f"{GOOD} --hard-weight -1", "--hard-weight is -1.0 at least 0"),
    ("distill --teacher {teacher} --data {good.csv} --method pkd --layers 1 --out OUT", "no layer pairs --layers"),
    # Training.
    (f"{GOOD} --batch-size 0", "--batch-size is 0 at least 1"),
    (f"{GOOD} --lr 0", "--lr is 0.0 more than 0"),
    (f"{GOOD} --lr nan", "--lr is nan finite"),
    (f"{GOOD} --warmup 2", "--warmup is 2.0 at most 1"),
    (f"{GOOD} --precision half", "--precision is 'half' auto, fp32, bf16, fp16"),
    (f"{GOOD} --keep worst", "--keep is 'worst' best, last"),
    (f"{GOOD} --max-length 2", "--max-length is 2 at least 4"),
    (f"{GOOD} --epochs 0 --max-steps 0 --accumulate 0", "--epochs is 0 --max-steps is 0 --accumulate is 0"),
    (f"{GOOD} --seed -1 --patience 0 --eval-every 0", "--seed is -1 --patience is 0 --eval-every is 0"),
    (f"{GOOD} --epochs many", "--epochs integer"),
    # The run folder.
    (f"{GOOD} --out {{a_file}}", "--out a_file is a file folder"),
    (f"{GOOD} --out {{a_file}}/run", "--out a_file/run a_file is a file"),
    (f"{GOOD} --out {{full}}", "--out full is not empty give another folder"),
    (f"{GOOD} --out {{unfinished}}", "--out unfinished holds another run"),
    (f"{GOOD} --out {{broken_run}}", "broken_run run.toml not a TOML file"),
    ("distill --teacher {teacher} --data {good.csv} --layers 2", "--out"),
    # Run files.
    ("check {nowhere.toml}", "no such file nowhere.toml"),
    ("check {not.toml}", "not.toml not a TOML file line 1"),
    ("check {job.toml}", "job.toml job is 'dance' distill, finetune"),
    ("check {full}", "full is a folder give a run file"),
    (
        "distill --config {tune.toml} --out OUT",
        "tune.toml job is 'finetune' runs 'distill' stillery finetune",
    ),
    ("check {typo.toml}", "typo.toml layer is not a setting did you mean 'layers'"),
    (
        "check {types.toml}",
        "teacher is 3 layers is '2' give a whole number options is 1 give a table fingerprints is 'x'",
    ),
    ("distill --config {typo.toml} --lr 0 --out OUT", "typo.toml: layer --lr is 0.0"),
    # Scoring and labelling.
    (f"{EVALUATE} --data {{nowhere.csv}}", "no such file nowhere.csv"),
    (EVALUATE, "neither --data nor --task"),
    (f"{EVALUATE} --data {{good.csv}} --task imdb", "both --data and --task"),
    (f"{EVALUATE} --data {{three_classes.csv}}", "three_classes.csv row 41 'neutral' not known"),
    (f"{EVALUATE} --data {{columns.csv}} --text words", "columns.csv no label column --label"),
    (f"{EVALUATE} --data {{good.csv}} --split exam", "--split exam train, dev, test"),
    (f"{EVALUATE} --data {{good.csv}} --batch-size 0", "--batch-size 1"),
    (f"{EVALUATE} --data {{good.csv}} --against {{spam}}", "--against spam ham, spam negative, positive"),
    (f"{EVALUATE} --data {{good.csv}} --against {{scorer}}", "--against scorer cannot be compared"),
    ("evaluate {headless} --data {good.csv} --against {nowhere}", "nowhere no such folder"),
    ("evaluate {headless} --data {columns.csv}", "columns.csv no text column --text"),
    ("evaluate {teacher} --data {good.csv} --regression", "--regression predicts classes"),
    (f"{PREDICT}.csv --data {{nowhere.csv}}", "no such file nowhere.csv"),
    (f"{PREDICT}.csv --data {{columns.csv}}", "columns.csv no text column --text"),
    (f"{PREDICT}.csv --data {{gap.csv}}", "gap.csv row 5 also 6 empty"),
    (f"{PREDICT}.csv --data {{header.csv}}", "header.csv no rows"),
    (f"{PREDICT}.csv --data {{taken.csv}}", "taken.csv 'prediction' rename"),
    (f"{PREDICT}.xls --data {{good.csv}}", "format .csv"),
    (f"{PREDICT}/deep/new.csv --data {{good.csv}}", "does not exist create it"),
    ("predict {teacher} --data {good.csv} --out {good.csv}", "--out good.csv input file another name"),
    ("predict {headless} --data {columns.csv} --out OUT.csv", "columns.csv no text column --text"),
    ("predict {nowhere} --data {nowhere.csv} --out {good.csv}", "nowhere nowhere.csv no such file is there already"),
    ("layers {nowhere}", "nowhere no such folder"),
    ("layers {truncated}", "truncated damaged"),
    ("methods nope", "unknown method 'nope'"),
    ("pairs --method nope --teacher-layers 4 --layers 2", "unknown method 'nope'"),
    ("pairs --method kd --teacher-layers 2 --layers 4", "--layers 4 deeper 2"),
    ("pairs --method kd --teacher-layers 2 --layers 0", "--layers 1"),
    ("pairs --method pkd --teacher-layers 4 --layers 2 --option layers=x", "layers 'x' skip, last"),
    # The command line itself.
    ("dance", "'dance'"),
    ("distill --dance", "--dance"),
    ("pairs --method kd", "--teacher-layers"),
    ("evaluate --data {good.csv}", "model"),
]


def _listing(folder: Path) -> dict[Path, int]:
    # A folder changes while it is locked for a run, so only its files have times.
    return {path: path.is_dir() or path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(("line", "words"), CASES, ids=[line for line, _ in CASES])
def test_bad_input(command: Callable, place: Path, tmp_path: Path, line: str, words: str) -> None:
    before = _listing(place)
    arguments = [_filled(argument, place, tmp_path / "out") for argument in line.split()]
    done = command(*arguments)
    assert done.code == 2, done
    assert done.out == ""
    lines = done.err.splitlines()
    assert lines and all(said.startswith("stillery: ") for said in lines), done.err
    missing = [word for word in words.split() if word.lower() not in done.err.lower()]
    assert not missing, (missing, done.err)
    assert list(tmp_path.iterdir()) == [] and _listing(place) == before


def _filled(argument: str, place: Path, out: Path) -> str:
    if argument.startswith("{"):
        name, rest = argument[1:].split("}")
        return f"{place / name}{rest}"
    return argument.replace("OUT", str(out)) if argument.startswith("OUT") else argument


def test_a_run_is_never_overwritten(command, place, tmp_path):
    out = tmp_path / "run"
    run = ["distill", "--teacher", place / "teacher", "--data", place / "good.csv", "--layers", 1, "--max-steps", 1]
    assert command(*run, "--out", out).code == 0
    before = _listing(out)
    done = command(*run, "--out", out)
    assert done.code == 2 and "holds this run already, finished" in done.err
    done = command(*run, "--seed", 3, "--lr", 1, "--out", out, "--resume")
    assert done.code == 2 and "holds another run (it differs in lr, seed)" in done.err
    (out / "metrics.json").unlink()
    done = command(*run, "--out", out)
    assert done.code == 2 and "unfinished: continue with --resume" in done.err
    del before[out / "metrics.json"]
    after = _listing(out)
    assert {path: after[path] for path in before if path != out} == {
        path: before[path] for path in before if path != out
    }
