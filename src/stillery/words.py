"""The names of parts and methods on the command line, read from their source without importing it.

A part declares its name and its help text where it is defined (`stillery.declare`). So the command line shows them
without importing torch, and code of an installed package runs only when one of its parts is used.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

__all__ = ["METHODS", "PARTS", "PartWord", "Plugin", "method_words", "part_words", "plugins", "read_along", "words"]

PARTS, METHODS = "stillery.parts", "stillery.methods"
"""The entry point groups of installed packages that provide parts and methods: NAME = "package.module"."""

_HERE = Path(__file__).parent
_DECLARE = "stillery.declare"

_READ_ALONG: list[Path] = []


@dataclass(frozen=True)
class PartWord:
    """A declared part: its kind, its name on the command line, and its help text."""

    kind: str
    word: str
    help: str


@dataclass(frozen=True)
class Plugin:
    """A module of an installed package that provides parts or methods."""

    name: str
    module: str

    def source(self) -> Path | None:
        """Return the module's file, found without importing it; None if there is none."""
        first, *rest = self.module.split(".")
        try:
            spec = importlib.util.find_spec(first)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        if not rest:
            return Path(spec.origin) if spec.origin else None
        for folder in spec.submodule_search_locations or ():
            place = Path(folder).joinpath(*rest)
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file():
                    return file
        return None


def plugins(group: str) -> list[Plugin]:
    """Return the modules that installed packages provide in a group, sorted by name."""
    found = {Plugin(one.name, one.value.partition(":")[0]) for one in entry_points(group=group)}
    return sorted(found, key=lambda one: (one.name, one.module))


def words(kind: str) -> tuple[str, ...]:
    """Return the names of the parts of a kind: stillery's own, those of installed packages and of the user's files."""
    return tuple(dict.fromkeys(one.word for one in part_words() if one.kind == kind))


def part_words() -> list[PartWord]:
    """Return all declared parts, as read from the source."""
    own = [*sorted((_HERE / "parts").glob("*.py")), _HERE / "overrides.py"]
    installed = [plugin.source() for plugin in plugins(PARTS)]
    files = [*own, *(file for file in installed if file is not None), *_READ_ALONG]
    return [one for file in files for one in _in_file(file)]


def read_along(file: Path) -> None:
    """Include the parts declared in a user's file, such as a recipe."""
    if file not in _READ_ALONG:
        _READ_ALONG.append(file)


def method_words() -> tuple[str, ...]:
    """Return the names of all methods, from the `__all__` of the files that define them."""
    own = [file for file in sorted((_HERE / "methods").glob("*.py")) if not file.stem.startswith("_")]
    installed = [plugin.source() for plugin in plugins(METHODS)]
    files = [*own, *(file for file in installed if file is not None)]
    return tuple(dict.fromkeys(name.replace("_", "-") for file in files for name in _listed(file)))


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        # The error is reported when the file is run.
        return ast.Module(body=[], type_ignores=[])


def _listed(file: Path) -> Iterator[str]:
    """Yield the names in the `__all__` of a file."""
    for node in _parsed(file).body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
            items: Iterable[ast.expr] = node.value.elts if isinstance(node.value, (ast.List, ast.Tuple)) else ()
            yield from (item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str))


def _in_file(file: Path) -> tuple[PartWord, ...]:
    try:
        return _declared(file, file.stat().st_mtime_ns)
    except OSError:
        return ()


@cache
def _declared(file: Path, changed: int) -> tuple[PartWord, ...]:
    """Return the declarations in a file: calls such as `declare.distance("word", "what it does", ...)`."""
    tree = _parsed(file)
    modules, functions = _imported(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or len(node.args) < 2:
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in modules:
            kind = called.attr
        elif isinstance(called, ast.Name) and called.id in functions:
            kind = functions[called.id]
        else:
            continue
        texts = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
        if len(texts) == 2 and all(isinstance(text, str) for text in texts):
            found.append((node.lineno, PartWord(kind, str(texts[0]), str(texts[1]))))
    return tuple(one for _, one in sorted(found, key=lambda each: each[0]))


def _imported(tree: ast.Module) -> tuple[set[str], dict[str, str]]:
    """Return the names under which a file imports `stillery.declare`, and its functions."""
    modules: set[str] = set()
    functions: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "stillery":
            modules |= {one.asname or one.name for one in node.names if one.name == "declare"}
        elif isinstance(node, ast.ImportFrom) and node.module == _DECLARE:
            functions |= {one.asname or one.name: one.name for one in node.names}
        elif isinstance(node, ast.Import):
            modules |= {one.asname for one in node.names if one.name == _DECLARE and one.asname}
    return modules, functions
