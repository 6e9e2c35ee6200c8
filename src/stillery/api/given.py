"""Saving of data and models in memory to files for the jobs; errors refer to the original arguments."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.jobs.result import Result
from stillery.lines import listed
from stillery.progress import say, worded

__all__ = ["Given", "given", "temporary_run"]

_KEPT = "given"
"""The subfolder of a run where data and models given in memory are saved."""


class Given:
    """Data and models given to one call, as paths, with their names for error messages."""

    def __init__(self, folder: Path, out: Path | None = None) -> None:
        """Write files to `folder`; a run keeps them in its own folder, `out`."""
        self.folder, self.out = folder, out
        self.staged: dict[Path, Path] = {}
        self._names: dict[str, str] = {}

    def data(self, value: Any, name: str = "data", *, trains: bool = False) -> Any:
        """Return a path to the data, writing objects to Parquet files. `trains` requires a train split."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        # Imported here, because `import stillery` must not load pyarrow.
        import pyarrow.parquet as pq

        from stillery.api.tables import as_table, splits_of

        splits = splits_of(value, name)
        if splits is None:
            path = self.folder / f"{name}.parquet"
            pq.write_table(as_table(value, name), path)
            return self._stage(path, name)
        if trains and "train" not in splits:
            raise UserError(f"{name} has no 'train' split; it has {listed(repr(word) for word, _ in splits.values())}")
        path = self.folder / name
        path.mkdir()
        for split, (word, table) in splits.items():
            shown = f"{name}[{word!r}]"
            pq.write_table(as_table(table, shown), path / f"{split}.parquet")
            self._names[f"{split}.parquet"] = shown
        return self._stage(path, name)

    def model(self, value: Any, name: str, tokenizer: Any = None) -> Any:
        """Return a path to, or the name of, the model; one in memory is saved with its tokenizer."""
        if isinstance(value, Result):
            value = value.out
        if value is None or isinstance(value, str | os.PathLike):
            if tokenizer is not None:
                raise UserError(f"tokenizer is for a {name} given as an object: a folder holds its own; leave it out")
            return value if value is None else os.fspath(value)
        if not _is_model(value) and _is_model(getattr(value, "model", None)):
            # A transformers pipeline or trainer has both.
            held = getattr(value, "processing_class", None) or getattr(value, "tokenizer", None)
            value, tokenizer = value.model, tokenizer or held
        if not _is_model(value):
            raise UserError(
                f"{name} is a {type(value).__qualname__}: give a folder, a name on the hub, a finished run, or a model "
                "of transformers with its tokenizer"
            )
        if hasattr(value, "peft_config"):
            raise UserError(f"{name} has an adapter: merge it first, {name}={name}.merge_and_unload()")
        if tokenizer is None:
            raise UserError(
                f"{name} is a model in memory, and tokenizer is not given: give the tokenizer it was trained with"
            )
        if not hasattr(tokenizer, "save_pretrained"):
            raise UserError(
                f"tokenizer is a {type(tokenizer).__qualname__}: give the one of the model, from transformers"
            )
        path = self.folder / name
        value.save_pretrained(path)
        tokenizer.save_pretrained(path)
        return self._stage(path, name)

    def _stage(self, path: Path, name: str) -> str:
        self._names[str(path)] = name
        self._names.setdefault(path.name, name)
        if self.out is not None:
            self.staged[path] = self.out / _KEPT / path.name
        return str(path)

    def said(self, line: str) -> str:
        """Replace names of temporary files in a message by the arguments they come from."""
        for written, name in sorted(self._names.items(), key=lambda pair: len(pair[0]), reverse=True):
            # A backslash in a name is special in a replacement.
            literal = name.replace("\\", r"\\")
            line = re.sub(rf"(?<![\w/.-]){re.escape(written)}(?![\w/])", literal, line)
        return line


def _is_model(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("save_pretrained", "state_dict", "config"))


@contextmanager
def given(out: Path | None = None) -> Iterator[Given]:
    """Yield a temporary place for data and models in memory while a job runs; its messages name the arguments."""
    with tempfile.TemporaryDirectory(prefix="stillery-given-") as folder:
        found = Given(Path(folder).resolve(), out)
        try:
            with worded(found.said):
                yield found
        except UserError as error:
            raise UserError(*map(found.said, error.lines)) from None


def temporary_run(job: str) -> Path:
    """Return a temporary folder for a run without `out`; it is removed when the process ends."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("out is not given, and several processes train: give the folder that they share")
    folder = Path(tempfile.mkdtemp(prefix=f"stillery-{job}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    say(f"out is not given: the run is in {folder}, until this process ends")
    return folder
