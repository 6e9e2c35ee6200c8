"""TextBrewer: the same losses by GeneralDistiller, or prediction matching alone by BasicDistiller with cached logits.

- Its `pkd` loss on `hidden` features is the [CLS] matching of PKD, written by TextBrewer itself, and its `ce` the
  prediction matching (without T^2, which goes into the weight). It cannot draw pairs of layers anew each epoch, as
  RAIL-KD does.
- It keeps no layers of a teacher: GeneralDistiller runs it on every batch. BasicDistiller can keep logits, in memory,
  and then repeats the same batches every epoch.
- Its own mixed precision needs NVIDIA's Apex, which no package index has. In bf16 both models' forward passes are
  wrapped in autocast from outside, as a user could.
- It has nothing to do with batches: what the loader gives is what it takes.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

import torch
from job import Batches, Job, Losses, Watch, adamw, autocast, carry_out, models, version_of


def load() -> Any:
    """The library, which imports TensorBoard even when nothing is logged: where there is none, an empty stand-in."""
    if importlib.util.find_spec("tensorboard") is None and importlib.util.find_spec("tensorboardX") is None:
        stand_in = types.ModuleType("tensorboardX")
        stand_in.SummaryWriter = None
        sys.modules["tensorboardX"] = stand_in
    import textbrewer

    return textbrewer


class FirstLosses:
    """Takes the place of the TensorBoard writer, which TextBrewer reads every loss back for at each step."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def add_scalar(self, name: str, value: float, step: int) -> None:
        if step == 0:
            self.found[name.removeprefix("scalar/unweighted_")] = value


class Kept(list):
    """The list of batches and logits of BasicDistiller, which reads the watch when it has been gone through."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        self.watch.epoch_ends(len(self))


def adapted(batch: dict[str, torch.Tensor], output: Any) -> dict[str, Any]:
    """What TextBrewer's losses are made from."""
    found = {"logits": output.logits.float(), "losses": output.loss}
    if output.hidden_states is not None:
        found["hidden"] = output.hidden_states
    return found


def train(job: Job) -> dict[str, Any]:
    textbrewer = load()
    losses, watch = Losses.of(job), Watch(job)
    teacher, student = models(job)
    if job.precision != "fp32":
        for model in (teacher, student):
            model.forward = autocast(job)(model.forward)
    matches = [
        {
            "layer_T": theirs,
            "layer_S": ours,
            "feature": "hidden",
            "loss": "pkd",
            # Its loss is a sum over the width, ours a mean, and a mean over pairs.
            "weight": losses.layers / (student.config.hidden_size * len(losses.pairs)),
        }
        for ours, theirs in losses.pairs
    ]
    asked = textbrewer.DistillationConfig(
        temperature=losses.temperature,
        hard_label_weight=losses.hard,
        kd_loss_type="ce",
        kd_loss_weight=losses.soft * losses.temperature**2,
        intermediate_matches=matches,
        is_caching_logits=not matches,
    )
    with tempfile.TemporaryDirectory() as folder:
        # A frequency of 0: no weights are saved on the way.
        training = textbrewer.TrainingConfig(
            device=job.device, output_dir=folder, log_dir=None, ckpt_frequency=0, gradient_accumulation_steps=1
        )
        kind = textbrewer.GeneralDistiller if matches else textbrewer.BasicDistiller
        distiller = kind(training, asked, teacher, student, adapted, adapted)
        distiller.tb_writer = first = FirstLosses()
        batches = Batches(job, watch)
        distiller.logits_cache = Kept(watch)
        more = {"output_hidden_states": True} if matches else {}
        with distiller:
            watch.start()
            distiller.train(
                adamw(job, student), batches, num_epochs=job.epochs, max_grad_norm=1.0, callback=None, **more
            )
        if not matches:
            # The loader was gone through once, to fill the cache: that belongs to the first epoch.
            del watch.marks[0]
            watch.steps -= len(batches)
    # Its cross entropy is not our divergence, so of the first step's losses that one cannot be compared.
    named = {"hard": first.found["hard_label_loss"]}
    if matches:
        parts = [value for name, value in first.found.items() if name.startswith("hidden_pkd")]
        named["patience"] = sum(parts) / (student.config.hidden_size * len(matches))
    return watch.answer(versions={"textbrewer": version_of("textbrewer")}, first=named)


if __name__ == "__main__":
    carry_out(train)
