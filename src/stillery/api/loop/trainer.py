"""A Trainer of transformers whose loss is that of a distillation method."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Trainer, TrainingArguments

from stillery.api.loop.batches import StepRows
from stillery.api.loop.chosen import choose
from stillery.api.loop.distiller import DistillationLoss, Distiller
from stillery.errors import ErrorList, UserError
from stillery.recipe import Recipe

__all__ = ["DistillationTrainer"]

_FILE = "distiller.safetensors"
"""The projections and other modules beside the student, in a checkpoint to resume from."""


class DistillationTrainer(Trainer):
    """A Trainer of transformers that distils a teacher into its model.

    trainer = DistillationTrainer(
        model=student, teacher=teacher, method="pkd", args=TrainingArguments("out"), train_dataset=train
    )
    trainer.train()
    trainer.save_model("small")

    The loss is that of `stillery.Distiller`, exact over accumulated batches and processes; its terms are logged as
    `loss_hard`, `loss_soft` and so on. Checkpoints hold the projections too, so that training resumes; what is saved as
    a model is the plain student. Evaluation is that of the Trainer: `eval_loss` is the loss of the student's labels.

    Args:
        model: the student.
        args, data_collator, train_dataset, eval_dataset, ...: as for a Trainer; `args.seed` is that of the method too.
        teacher: a fine-tuned model of transformers, with the student's vocabulary and labels.
        method: a method's name; `layer-forward` by default.
        recipe: a `stillery.recipe.Recipe` instead.
        options: of the method, and switches, as for a Distiller.
    """

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: PreTrainedModel | None = None,
        args: TrainingArguments | None = None,
        data_collator: Any = None,
        *,
        teacher: PreTrainedModel | None = None,
        method: str | None = None,
        recipe: str | Recipe | None = None,
        options: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> None:
        args = TrainingArguments(output_dir="tmp_trainer") if args is None else args
        _check(args, given)
        self._what: dict[str, Any] = {"recipe": recipe, "method": method, "options": options}
        choose(recipe, method, options, teacher=teacher, student=model, seed=args.seed)
        super().__init__(model=model, args=args, data_collator=data_collator, **given)
        self.teacher, self._student = teacher, model
        self.distiller: Distiller | None = None
        self._prepared: nn.Module | None = None
        self._sums: dict[str, Tensor] = {}
        self._steps: dict[str, float] = defaultdict(float)

    def set_initial_training_values(self, *given: Any, **named: Any) -> Any:
        """Note the steps of an epoch."""
        found = super().set_initial_training_values(*given, **named)
        self._per_epoch = found[1]
        return found

    def _prepare_for_training(self, max_steps: int, train_dataloader: DataLoader[Any], resume: Any) -> Any:
        """Prepare the distiller in place of the student, so that its projections are trained and shared as well."""
        if self.distiller is None:
            examples = len(self.train_dataset) if isinstance(self.train_dataset, Sized) else 0
            self.distiller = Distiller(
                **self._what, teacher=self.teacher, student=self._student, seed=self.args.seed, steps=max_steps,
                steps_per_epoch=self._per_epoch, examples=examples,
            )  # fmt: skip
        distiller = self.distiller
        distiller.schedule(max_steps, self._per_epoch)
        if resume is not None:
            _read(distiller, Path(resume) / _FILE)
        distiller.step = self.state.global_step
        if self.place_model_on_device:
            distiller.to(self.args.device)
        self.model, self.model_wrapped = distiller, self._prepared or distiller
        try:
            prepared: tuple[nn.Module, Any] = super()._prepare_for_training(max_steps, train_dataloader, resume)  # type: ignore[no-untyped-call]
        finally:
            # Everything else, such as saving and evaluation, is about the student.
            self._prepared, self.model = self.model_wrapped, distiller.student
        self.callback_handler.model = distiller.student
        self._check_optimiser(distiller)
        return prepared

    def _check_optimiser(self, distiller: Distiller) -> None:
        """Raise UserError for an optimiser of the user's own that does not train the projections."""
        held = {
            id(one)
            for group in (self.optimizer.param_groups if self.optimizer is not None else [])
            for one in group["params"]
        }
        missing = [one for one in distiller.projections.parameters() if one.requires_grad and id(one) not in held]
        if missing:
            raise UserError(
                f"optimizers: {len(missing)} weights of the method's projections are not in the optimiser; give "
                "optimizer_cls_and_kwargs instead, which makes one of all that is trained"
            )

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        """Take the batches of an optimiser step, and count the rows that its loss is a mean over."""
        samples, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        assert self.distiller is not None
        return samples, self.distiller.rows(samples) if samples else None

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of the method in training, that of the student alone in evaluation."""
        if not isinstance(num_items_in_batch, StepRows):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        found: DistillationLoss = model(inputs, num_items_in_batch)
        for name, term in found.terms.items():
            self._sums[name] = self._sums[name] + term if name in self._sums else term
            self._steps[name] += 1 / num_items_in_batch.batches
        return (found.loss, found) if return_outputs else found.loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the means of the loss terms since the last time, beside the loss."""
        if "loss" in logs:
            sums = self._sums if self.args.world_size < 2 else self.accelerator.reduce(self._sums, "sum")
            logs = logs | {f"loss_{name}": float(total) / self._steps[name] for name, total in sums.items()}
            self._sums, self._steps = {}, defaultdict(float)
        super().log(logs, start_time)

    def _set_signature_columns_if_needed(self) -> None:
        """Keep the columns that the teacher reads too, and the places of examples that a method remembers."""
        new = self._signature_columns is None
        super()._set_signature_columns_if_needed()
        known: Any = self._signature_columns
        if new and self.teacher is not None:
            more = [*inspect.signature(self.teacher.forward).parameters, "index"]
            known += [name for name in more if name not in known]

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save the projections beside the optimiser, in a checkpoint to resume from."""
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save and self.distiller is not None:
            held = self.distiller.projections.state_dict()
            save_file({name: tensor.contiguous() for name, tensor in held.items()}, Path(output_dir) / _FILE)


def _check(args: TrainingArguments, given: Mapping[str, Any]) -> None:
    """Raise UserError for settings of a Trainer that a distillation cannot follow."""
    errors = ErrorList()
    if given.get("model_init") is not None:
        errors.add("model_init: the projections belong to one student; give model")
    if given.get("compute_loss_func") is not None:
        errors.add("compute_loss_func: the loss is the method's; give a recipe, or use Trainer")
    if args.label_smoothing_factor:
        errors.add("label_smoothing_factor: the method's loss has none; leave it out")
    if args.n_gpu > 1:
        errors.add(f"{args.n_gpu} GPUs in one process are not supported: start one process for each, with torchrun")
    for name in ("fsdp", "deepspeed"):
        if getattr(args, name, None):
            errors.add(f"{name}: the trained module is not sharded; leave it out")
    errors.raise_any()


def _read(distiller: Distiller, path: Path) -> None:
    """Restore projections from a checkpoint."""
    try:
        distiller.projections.load_state_dict(load_file(path))
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file, so this is no checkpoint of a DistillationTrainer; start again"
        ) from None
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: it does not hold the projections of {distiller.name}: {reason}") from None
