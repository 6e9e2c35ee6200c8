"""Dynamic int8 quantisation of an ONNX file by onnxruntime, and the settings that are tried for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stillery.deploy.extra import without_messages

__all__ = ["FIRST", "Setting", "quantise", "with_layers_left_out"]

_TYPES = ["MatMul", "Gather"]
"""The operators that are quantised: products with weights, and embedding tables."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of the quantiser.

    Attributes:
        per_channel: a scale for each output channel of a weight, instead of one for the whole weight.
        reduce_range: weights of 7 bits, for processors whose int8 products saturate (without VNNI).
        excluded: names of nodes that stay in float32.
        of: the number of nodes that could be quantised.
    """

    per_channel: bool = False
    reduce_range: bool = False
    excluded: tuple[str, ...] = ()
    of: int = 0

    def __str__(self) -> str:
        words = ["per channel" if self.per_channel else "per tensor"]
        if self.reduce_range:
            words.append("reduced range")
        if self.excluded:
            words.append(f"{len(self.excluded)} of {self.of} layers in float32")
        return ", ".join(words)


FIRST = (Setting(), Setting(per_channel=True), Setting(per_channel=True, reduce_range=True))
"""The settings that are tried first, in this order: those of all layers alike."""


def with_layers_left_out(setting: Setting, worst: Sequence[str]) -> Iterator[Setting]:
    """Yield the setting with 1, 2, 4, ... of the layers left in float32, at most half of them, the worst first."""
    count = 1
    while count <= len(worst) // 2:
        yield replace(setting, excluded=tuple(worst[:count]), of=len(worst))
        count *= 2


def quantise(source: Path, target: Path, setting: Setting) -> None:
    """Write an ONNX file with int8 weights; activations are quantised as they come, with a scale for each tensor."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    large = source.with_name(f"{source.name}.data").exists()
    with without_messages():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=_TYPES,
            per_channel=setting.per_channel,
            reduce_range=setting.reduce_range,
            weight_type=QuantType.QInt8,
            # The quantiser turns Gemm into MatMul before it looks at names.
            nodes_to_exclude=[*setting.excluded, *(f"{name}_MatMul" for name in setting.excluded)],
            use_external_data_format=large,
            extra_options={"MatMulConstBOnly": True},
        )
