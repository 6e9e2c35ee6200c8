"""Files for the GLUE leaderboard, as it asks for them."""

from __future__ import annotations

import numpy as np
import pytest

from stillery.data.tasks.load_task import TASKS
from stillery.errors import UserError
from stillery.evaluation.submission import write_submission


@pytest.mark.parametrize(
    ("task", "name", "logits", "predictions"),
    [
        ("cola", "CoLA", [[2, 1], [0, 1]], ["0", "1"]),
        ("sst2", "SST-2", [[0, 1], [2, 1]], ["1", "0"]),
        ("mrpc", "MRPC", [[0, 1]], ["1"]),
        ("qqp", "QQP", [[1, 0]], ["0"]),
        ("mnli", "MNLI-m", [[0, 0, 1], [1, 0, 0], [0, 1, 0]], ["contradiction", "entailment", "neutral"]),
        ("mnli", "MNLI-mm", [[1, 0, 0]], ["entailment"]),
        ("qnli", "QNLI", [[0, 1]], ["not_entailment"]),
        ("rte", "RTE", [[1, 0]], ["entailment"]),
        ("stsb", "STS-B", [[-0.3], [2.34567], [5.4]], ["0.000", "2.346", "5.000"]),
    ],
)
def test_what_is_written(tmp_path, task, name, logits, predictions):
    path = write_submission(tmp_path / "out", name, np.array(logits, dtype=np.float32), TASKS[task])
    rows = [f"{index}\t{value}" for index, value in enumerate(predictions)]
    assert path == tmp_path / "out" / f"{name}.tsv"
    assert path.read_text() == "\n".join(["index\tprediction", *rows]) + "\n"
    assert [file.name for file in path.parent.iterdir()] == [f"{name}.tsv"]


def test_every_glue_task_has_its_files():
    names = [name for task in TASKS.values() for name in task.submissions.values()]
    assert names == ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE"]


def test_nothing_is_written_when_something_is_wrong(tmp_path):
    with pytest.raises(UserError, match="needs 2 per example"):
        write_submission(tmp_path, "SST-2", np.zeros((3, 3)), TASKS["sst2"])
    with pytest.raises(UserError, match="sst2 has no leaderboard file 'MNLI-m'; known: SST-2"):
        write_submission(tmp_path, "MNLI-m", np.zeros((3, 2)), TASKS["sst2"])
    with pytest.raises(UserError, match="imdb has no leaderboard file"):
        write_submission(tmp_path, "IMDb", np.zeros((3, 2)), TASKS["imdb"])
    assert not list(tmp_path.iterdir())
