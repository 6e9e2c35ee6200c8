"""stillery: intermediate-layer knowledge distillation of Transformer language models.

from stillery import distill, finetune

teacher = finetune(model="minilm-l6", data="reviews.csv", out="teacher")
run = distill(teacher="teacher", data="reviews.csv", method="layer-forward", layers=3, out="small")
print(run.metrics["metrics"], run.student)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stillery.jobs.finish import Result
    from stillery.recipe import Recipe

__all__ = ["distill", "finetune", "predict", "score"]


def finetune(*, out: str | Path, config: str | Path | None = None, resume: bool = False, **settings: Any) -> Result:
    """Fine-tune a pretrained model; settings have the names of the command line's options, with underscores."""
    from stillery.jobs.config.run_file import ask
    from stillery.jobs.config.settings import Finetune
    from stillery.jobs.finetune import run_finetune

    asked = ask(Finetune, _plain(settings), Path(config) if config else None)
    return run_finetune(asked, Path(out), resume=resume)


def distill(
    *,
    out: str | Path,
    config: str | Path | None = None,
    resume: bool = False,
    recipe: Recipe | str | None = None,
    **settings: Any,
) -> Result:
    """Distil a fine-tuned teacher into a smaller student; settings as for the command line, with underscores.

    `recipe` is a `stillery.recipe.Recipe` of your own, or FILE.py:FUNCTION, in place of a method.
    """
    from stillery.jobs.config.run_file import ask
    from stillery.jobs.config.settings import Distill
    from stillery.jobs.distill import run_distill

    named = recipe if recipe is None or isinstance(recipe, str) else "given in Python"
    asked = ask(Distill, _plain(settings) | {"recipe": named}, Path(config) if config else None)
    return run_distill(asked, Path(out), resume=resume, recipe=None if isinstance(recipe, str) else recipe)


def score(
    model: str | Path, *, against: str | Path | None = None, part: str | None = None, batch_size: int = 64, **data: Any
) -> dict[str, Any]:
    """Score a model on `data` or `task`; the dictionary that `stillery evaluate --json` prints."""
    from stillery.jobs.config.inherited import as_trained, reading_of
    from stillery.jobs.evaluate import Request, run_evaluate

    teacher = None if against is None else str(against)
    return run_evaluate(
        Request(
            model=str(model),
            inputs=as_trained(str(model), _plain(data)),
            against=teacher,
            theirs=None if teacher is None else reading_of(teacher, _plain(data)),
            split=part,
            batch_size=batch_size,
        )
    )


def predict(model: str | Path, *, data: str | Path, out: str | Path, text: str | None = None,
            text_pair: str | None = None, max_length: int | None = None, batch_size: int = 64,
            source: str | None = None, **writing: Any) -> int:  # fmt: skip
    """Predict labels for the texts of a file, or generate texts from them; returns the number of rows in `out`.

    A model that generates text takes `source`, `prompt`, `prefix` and the settings of its search, such as `beams`.
    """
    from stillery.jobs.predict import run_predict

    return run_predict(str(model), Path(data), Path(out), text=text, text_pair=text_pair,
                       max_length=max_length, batch_size=batch_size, source=source, **writing)  # fmt: skip


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
