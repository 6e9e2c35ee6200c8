"""Cost of a model at inference: parameters, FLOPs, size on disk, latency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from stillery.errors import UserError
from stillery.evaluation.inference_mode import device_of, evaluating
from stillery.models.family import kind_of
from stillery.models.model_inputs import accepted_inputs

__all__ = ["cost", "flops_per_example", "latencies_ms", "latency_ms", "megabytes", "parameters"]

Inputs = Mapping[str, Tensor]


def cost(
    model: PreTrainedModel,
    folder: Path,
    inputs: Sequence[Inputs],
    *,
    length: int,
    train_seconds: float | None,
    teacher: PreTrainedModel | None = None,
    teacher_inputs: Sequence[Inputs] | None = None,
) -> dict[str, float | int | None]:
    """Measure all costs of a model, and its speedup over a teacher if one is given.

    Args:
        model: the model, as loaded from `folder`.
        folder: the folder with its weights.
        inputs: batches of one example each, for measuring latency.
        length: the number of tokens the FLOPs are counted for.
        train_seconds: the training time of the model.
        teacher: the model to compare with, timed alternately with `model` so that a busy machine slows both.
        teacher_inputs: the same examples encoded for the teacher, if it has another tokenizer.
    """
    models, own = [model], [inputs]
    if teacher is not None:
        models.append(teacher)
        own.append(inputs if teacher_inputs is None else teacher_inputs)
    times = latencies_ms(models, own)
    found: dict[str, float | int | None] = {
        "parameters": parameters(model),
        "flops": flops_per_example(model, length),
        "flops_length": length,
        "megabytes": megabytes(folder),
        "latency_ms": times[0],
        "speedup": None if teacher is None else times[1] / times[0],
        "train_seconds": train_seconds,
    }
    if teacher is not None:
        found |= {"teacher_parameters": parameters(teacher), "teacher_latency_ms": times[1]}
    return found


def parameters(model: nn.Module) -> int:
    """The number of parameters, shared tensors counted once."""
    return sum(tensor.numel() for tensor in model.parameters())


def megabytes(folder: Path) -> float:
    """The size of the safetensors weights in a folder, in 10^6 bytes."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"no *.safetensors weights in {folder}")
    return sum(file.stat().st_size for file in files) / 1e6


def flops_per_example(model: PreTrainedModel, length: int) -> int:
    """The FLOPs of the matrix products (two per multiply-add) of one forward pass on one example of `length` tokens.

    For an encoder-decoder both the source and the target have this length.
    """
    try:
        # Fake tensors only have shapes, so they need no memory and next to no time.
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            return _counted(model, length, fake.from_tensor)
    except RuntimeError:
        # The forward pass of this model reads values, which fake tensors do not have.
        return _counted(model, length, Tensor.detach)


def _counted(model: PreTrainedModel, length: int, held: Callable[[Tensor], Tensor]) -> int:
    """Count the FLOPs of a forward pass with `held` applied to each of the model's tensors."""
    # Not the padding token: some model families assign positions to non-padding tokens only.
    token = 1 if getattr(model.config, "pad_token_id", None) == 0 else 0
    ids = torch.full((1, length), token, dtype=torch.long, device=device_of(model))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    if kind_of(model.config) == "encoder-decoder":
        inputs["labels"] = ids
    # Detached, because the counter would hook the gradients of weights that are a layer's input (DeBERTa's positions).
    tensors = {name: held(tensor.detach()) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    counter = FlopCounterMode(display=False)
    # The counter does not know the fused CPU attention kernel and would omit its matrix products.
    with evaluating(model), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        functional_call(model, tensors, (), accepted_inputs(model, inputs))
    return int(counter.get_total_flops())


def latency_ms(model: PreTrainedModel, inputs: Sequence[Inputs], threads: int = 1, warm_up: int = 5) -> float:
    """Median milliseconds of one forward pass over the given batches of one example."""
    return latencies_ms([model], [inputs], threads, warm_up)[0]


def latencies_ms(
    models: Sequence[PreTrainedModel], inputs: Sequence[Sequence[Inputs]], threads: int = 1, warm_up: int = 5
) -> list[float]:
    """Median latency of several models, each on its own inputs, timed in turns so that a busy machine slows all."""
    if not all(inputs):
        raise UserError("there are no examples to measure latency on")
    with _threads(threads), evaluating(*models), torch.inference_mode():
        ready = [[_placed(model, batch) for batch in own] for model, own in zip(models, inputs, strict=True)]
        for step in range(warm_up):
            for model, batches in zip(models, ready, strict=True):
                _milliseconds(model, batches[step % len(batches)])
        times = [
            [_milliseconds(model, batches[step]) for model, batches in zip(models, ready, strict=True)]
            for step in range(min(map(len, inputs)))
        ]
    return [median(column) for column in zip(*times, strict=True)]


def _placed(model: PreTrainedModel, batch: Inputs) -> dict[str, Tensor]:
    return {name: tensor.to(device_of(model)) for name, tensor in accepted_inputs(model, batch).items()}


def _milliseconds(model: PreTrainedModel, batch: dict[str, Tensor]) -> float:
    start = perf_counter()
    output = model(**batch)
    # Reading a number back waits for devices that compute asynchronously.
    output.logits.flatten()[0].item()
    return 1000 * (perf_counter() - start)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
