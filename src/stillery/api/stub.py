"""Generate the type stub of `stillery` from the signatures of its functions: `make stub`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stillery.api import calls

__all__ = ["STUB", "stub"]

_OF_SEVERAL = ("evaluate", "score")
"""Functions that return a dictionary for one model, and a comparison for several."""

STUB = Path(__file__).parent.parent / "__init__.pyi"

_HEAD = '''# Made by `make stub` from the settings; a test says when it is no longer current.
"""{about}"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from transformers import PreTrainedTokenizerBase

from stillery.analyse.finding import Finding
from stillery.api.loop.distiller import Distiller
from stillery.api.loop.trainer import DistillationTrainer
from stillery.api.types import Data, Model, StrPath
from stillery.jobs.comparison.result import Comparison
from stillery.jobs.diagnosis.findings import Diagnosis
from stillery.jobs.exported import Exported
from stillery.jobs.result import Result
from stillery.recipe import Recipe
from stillery.study.shrink.run import Shrunk
from stillery.train.callbacks import STOP

__all__ = {names}
'''


def stub() -> str:
    """Return the text of the stub."""
    import stillery

    # One a line, as the formatter has long lists.
    names = "[\n" + "".join(f'    "{name}",\n' for name in stillery.__all__) + "]"
    functions = [_text(getattr(calls, name)) for name in stillery.__all__ if hasattr(calls, name)]
    return "\n".join([_HEAD.format(about=inspect.cleandoc(stillery.__doc__ or ""), names=names), *functions])


def _text(function: Callable[..., Any]) -> str:
    """Return the stub of a function, overloaded if its return type differs for one and several models."""
    text = _function(function)
    if function.__name__ not in _OF_SEVERAL:
        return text
    bare = text[: text.index('    """')].replace("    model: Model,", "    model: list[Model] | tuple[Model, ...],")
    several = bare.replace(" -> dict[str, Any] | Comparison:", " -> Comparison: ...")
    one = text.replace(" -> dict[str, Any] | Comparison:", " -> dict[str, Any]:")
    return f"@overload\n{several}@overload\n{one}"


def _function(function: Callable[..., Any]) -> str:
    """Return the stub of a function with its keywords, one per line, and its docstring."""
    signature, lines, keywords = inspect.signature(function), [], False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            lines.append("    *,")
            keywords = True
        default = "" if parameter.default is inspect.Parameter.empty else f" = {_literal(parameter.default)}"
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},")
    said = (inspect.getdoc(function) or "").replace("\\", "\\\\").splitlines()
    body = "\n".join(f"    {line}".rstrip() for line in said)
    return "\n".join(
        [
            f"def {function.__name__}(",
            *lines,
            f") -> {signature.return_annotation}:",
            f'    """{body.strip()}',
            '    """',
            "",
        ]
    )


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
