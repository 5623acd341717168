"""Names of the package's modules in strings, which no linter follows: in programs, patches, defects and kernels."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from . import modules
from .places import ROOT

_IMPORT = re.compile(r"^\W*from upstream\.([\w.]+) import (?:\((?P<lines>[^)]*)\)|(?P<line>[\w, ]+))", re.MULTILINE)
_QUOTED = re.compile(r"(?:setattr|patch|import_module)\(\s*\"upstream\.([\w.]+)\"")


def absent() -> list[str]:
    """Return the names that stand for nothing, each with the file that has it."""
    found: list[str] = []
    for folder in ("tests", "tools", "benchmarks"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            found += [f"{file.relative_to(ROOT)}: {name}" for name in _names_in(file.read_text()) if not _is(name)]
    defects = modules.load(ROOT / "tests/simulation/defects.py")
    places = [place for defect in defects.DEFECTS.values() for place in defect.places]
    places += [place for _, patches in defects.OF_TEXTS.values() for _, some in patches for place in some]
    found += [place for place in places if not place.startswith("tests.") and not _is(place.replace(":", "."))]
    kernels = modules.tool("mutants").KERNELS.values()
    paths = {path.partition("::")[0].removeprefix("--deselect=") for own, tests in kernels for path in (*own, *tests)}
    return found + sorted(path for path in paths if not (ROOT / path).exists())


def _names_in(text: str) -> Iterator[str]:
    for each in _IMPORT.finditer(text):
        for name in re.findall(r"\w+(?: as \w+)?", each["lines"] or each["line"]):
            yield f"{each[1]}.{name.split()[0]}"
    yield from (each[1] for each in _QUOTED.finditer(text))


def _is(name: str) -> bool:
    """Return whether a dotted name is a module, or a name that one defines or imports, whatever its members."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:end])
        if path.is_dir() or path.with_suffix(".py").exists():
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            return end == len(parts) or parts[end] in _defined(file)
    return False


@cache
def _defined(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found
