"""Which layers int8 changes most, on graphs of two products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stillery.deploy.sensitivity import most_changed

onnx = pytest.importorskip("onnx")


def test_a_token_with_large_states_hides_no_other(tmp_path: Path) -> None:
    """Int8 rounds all tokens by the range of the largest, which loses the others, though little of the norm of all."""
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    one_token, one_place = random.normal(size=(2, 5, 8)).astype(np.float32)
    one_token[0] = 1000
    one_place[:, 0] = 20
    weights = {
        "one_token": one_token, "one_place": one_place, "a": random.normal(size=(8, 8)).astype(np.float32),
        "b": random.normal(size=(8, 8)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Gather", ["one_token", "input_ids"], ["x"], name="table_of_a"),
        helper.make_node("MatMul", ["x", "a"], ["left"], name="a"),
        helper.make_node("Gather", ["one_place", "input_ids"], ["y"], name="table_of_b"),
        helper.make_node("MatMul", ["y", "b"], ["right"], name="b"),
        helper.make_node("Add", ["left", "right"], ["logits"], name="sum"),
    ]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, 5])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 5, 8])
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "two products", [ids], [logits], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(tmp_path / "model.onnx"))
    order = most_changed(tmp_path / "model.onnx", {"input_ids": np.arange(5)[None]})
    assert order[0] == "a" and set(order) == {"a", "b", "table_of_a", "table_of_b"}
