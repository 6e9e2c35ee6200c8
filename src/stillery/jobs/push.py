"""Upload of finished runs and exports to the Hugging Face hub."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from stillery.errors import UserError
from stillery.hub import NoAnswer, ask
from stillery.jobs.overwrite import is_model_file
from stillery.models.model_folder import EXPORT, is_onnx, model_in
from stillery.progress import say

if TYPE_CHECKING:
    from stillery.jobs.result import Result

__all__ = ["check_push", "push", "push_result"]

Found = TypeVar("Found")

_OPTION = "--push-to-hub"


def check_push(name: str | None) -> None:
    """Raise UserError, before any work, for a name that the hub does not allow, or a hub that takes no upload now."""
    if name is None:
        return
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        raise UserError(f"{_OPTION} {name}: not a name of the hub: give NAME or ACCOUNT/NAME") from None
    _asked(name, HfApi().whoami, math.inf)


def push(folder: Path, name: str | None) -> None:
    """Upload the files of a finished run's model, or of an export, card included; without a name do nothing.

    A new repository is private. Everything else in the folder stays here:
    settings, logs, predictions and data of a run, and files of the user.
    """
    if name is None:
        return
    from huggingface_hub import HfApi

    place = model_in(folder) or folder
    files = [
        path for path in sorted(place.iterdir()) if is_model_file(path) or (is_onnx(place) and _is_of_export(path))
    ]
    patterns = [f"{path.name}/*" if path.is_dir() else path.name for path in files]
    api = HfApi()

    def upload() -> str:
        made = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(
            repo_id=made.repo_id, folder_path=place, allow_patterns=patterns, commit_message="Upload by stillery"
        )
        return str(made)

    try:
        # However long it takes: a slow line is no silent one.
        say(f"uploaded to {_asked(name, upload, math.inf)}")
    except UserError as error:
        raise UserError(*(f"{line} (the result is complete in {folder})" for line in error.lines)) from None


def _is_of_export(path: Path) -> bool:
    return path.name in (EXPORT, "example.py") or path.name.endswith((".onnx", ".onnx.data"))


def push_result(result: Result, name: str | None) -> None:
    """Upload a finished run, from the main process only; without a name do nothing."""
    if name is None:
        return
    from accelerate import PartialState

    if PartialState().is_main_process:
        push(result.out, name)


def _asked(name: str, work: Callable[[], Found], patience: float) -> Found:
    from huggingface_hub.errors import LocalTokenNotFoundError

    try:
        return ask(work, patience=patience)
    except NoAnswer as error:
        raise UserError(f"{_OPTION} {name}: {error}; connect and try again, or leave it out") from None
    except LocalTokenNotFoundError:
        raise UserError(f"{_OPTION} {name}: not logged in: `hf auth login`, with a token that may write") from None
    except Exception as error:
        # The hub's refusals have many classes, down to those of the HTTP library.
        raise UserError(f"{_OPTION} {name}: the hub: {' '.join(str(error).split())[:150]}") from None
