from __future__ import annotations

import pytest
import torch

from stillery.evaluation.inference_mode import evaluating
from stillery.models.attention import for_any_length

enabled = torch.backends.cuda.cudnn_sdp_enabled


def test_cudnns_attention_is_left_out_and_comes_back() -> None:
    assert enabled()
    with for_any_length(), for_any_length():
        assert not enabled()
    assert enabled()
    model = torch.nn.Linear(1, 1)
    model.register_forward_hook(lambda *_: seen.append(enabled()))
    seen: list[bool] = []
    with pytest.raises(RuntimeError), evaluating(model):
        model(torch.ones(1)), model(torch.ones(2))
    assert seen == [False] and enabled()


def test_who_turned_it_off_finds_it_off() -> None:
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with for_any_length():
            assert not enabled()
        assert not enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
