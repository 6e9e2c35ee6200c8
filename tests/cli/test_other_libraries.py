"""Options of other libraries lead to the one that is meant here, on the command line."""

from __future__ import annotations

import pytest

LED = {
    "--learning-rate": "No such option: --learning-rate: it is called --lr here",
    "--num_train_epochs": "No such option: --num_train_epochs: it is called --epochs here",
    "--fp16": 'No such option: --fp16: say precision "fp16"',
    "--leyers": "No such option: --leyers (Possible options: ",
}


@pytest.mark.parametrize("option", LED)
def test_an_option_of_another_library(command, option):
    done = command("distill", "--teacher", "t", "--data", "d.csv", "--out", "x", option, "1")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"stillery: {LED[option]}") and done.err.count("\n") == 1
