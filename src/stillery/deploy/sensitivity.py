"""The layers that int8 changes most, measured on real inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.deploy.extra import without_messages
from stillery.deploy.onnx_model import session

__all__ = ["most_changed"]

Floats = NDArray[np.float32]


def most_changed(file: Path, feeds: Mapping[str, NDArray[np.int64]]) -> list[str]:
    """Return the names of the layers that dynamic int8 would quantise, that with the largest relative error first.

    One forward pass records the input of every product with a weight. Its error is that of the product when both
    factors are rounded to 8 bits, the mean over tokens; an embedding table's is that of its own rounding.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(file))
    # Read at once, as saving the graph moves its weights to a file.
    weights = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    products = [one for one in model.graph.node if one.op_type in ("MatMul", "Gemm") and one.input[1] in weights]
    tables = [one for one in model.graph.node if one.op_type == "Gather" and _is_table(weights.get(one.input[0]))]
    given = _recorded(model, {node.input[0] for node in products} - set(feeds), feeds)
    errors = {node.name: _error(weights[node.input[0]]) for node in tables}
    for node in products:
        weight = weights[node.input[1]]
        transposed = any(one.name == "transB" and one.i for one in node.attribute)
        errors[node.name] = _product_error(given[node.input[0]], weight.T if transposed else weight)
    return sorted(errors, key=lambda name: -errors[name])


def _is_table(weight: NDArray[Any] | None) -> bool:
    return weight is not None and weight.dtype == np.float32 and weight.ndim == 2


def _recorded(model: Any, names: set[str], feeds: Mapping[str, NDArray[np.int64]]) -> dict[str, Floats]:
    """Return inner values of a graph on a batch."""
    import onnx

    wanted, inputs = sorted(names), {one.name for one in model.graph.input}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    with tempfile.TemporaryDirectory(prefix="stillery-onnx-") as folder, without_messages():
        path = Path(folder) / "recorded.onnx"
        onnx.save(model, str(path), save_as_external_data=True)
        values = session(path).run(wanted, {name: value for name, value in feeds.items() if name in inputs})
    return dict(zip(wanted, values, strict=True))


def _product_error(left: Floats, right: Floats) -> float:
    # The mean over rows: some tokens have states a hundred times as large, beside which the errors of others are small.
    rows = left.reshape(-1, left.shape[-1])
    exact = rows @ right
    errors = np.linalg.norm(_rounded_asymmetric(rows) @ _rounded(right) - exact, axis=1)
    return float((errors / np.maximum(np.linalg.norm(exact, axis=1), 1e-12)).mean())


def _error(table: Floats) -> float:
    return float(np.linalg.norm(_rounded(table) - table) / max(float(np.linalg.norm(table)), 1e-12))


def _rounded(weight: Floats) -> Floats:
    """Round a weight to int8 with one scale."""
    scale = max(float(np.abs(weight).max()), 1e-12) / 127
    found: Floats = (np.round(weight / scale) * scale).astype(np.float32)
    return found


def _rounded_asymmetric(values: Floats) -> Floats:
    """Round activations to 256 steps between their smallest and largest, as onnxruntime does for each batch."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = max(high - low, 1e-12) / 255
    found: Floats = (np.round(values / scale) * scale).astype(np.float32)
    return found
