"""The package that is tested is the one that was installed, whole, and imported once."""

import ast
import functools
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import modules, named_modules
from kit.places import ROOT

import pyspark_upstream
import upstream

PACKAGES = tuple(re.findall(r'^    "upstream\.([a-z_]+)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))


def test_tested_package_is_the_installed_one():
    tested = os.environ.get("UPSTREAM_TESTED")  # `make test` says which environment is meant
    for package in (upstream, pyspark_upstream):
        found = Path(package.__file__ or "")
        if tested is not None:
            assert found.resolve().is_relative_to(Path(tested).resolve())
        assert found.is_relative_to(sys.prefix)


def test_nothing_is_imported_from_the_checkout():
    import upstream.conf.session

    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    homes = [ROOT / package for package in PACKAGES] + [ROOT / "__init__.py"]
    strays = [name for name, file in files.items() if file and any(Path(file).is_relative_to(home) for home in homes)]
    assert strays == []
    assert upstream.conf.session.__name__ == "upstream.conf.session"


def test_every_module_is_installed_as_it_is_here():
    installed = Path(upstream.__file__ or "").parent
    here = {
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".conf", ".properties"}
    }
    assert len(here) > 20
    for path in sorted(here | {Path("__init__.py"), Path("py.typed")}):
        assert (installed / path).is_file(), f"{path} is not installed: enter its folder in pyproject.toml"
        assert (installed / path).read_bytes() == (ROOT / path).read_bytes(), path


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent.name for path in ROOT.glob("[a-z]*/*.py")} - {
        "benchmarks",
        "docs",
        "examples",
        "tests",
        "tools",
    }
    assert folders == {*PACKAGES, "pyspark_upstream"}, "enter the folder in pyproject.toml"
    assert _ALLOWED.keys() == set(PACKAGES)


def test_no_module_is_long():
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert path.read_text().count("\n") <= 600, f"{path} is long: one idea per file"


_ALLOWED: dict[str, set[str]] = {
    "conf": set(),
    "storage": {"conf"},
    "delta_format": {"conf", "storage"},
    "errors": {"conf"},
    "core": {"conf", "storage"},
    "expressions": {"conf", "core"},
    "datasource": {"conf", "storage", "delta_format", "core", "expressions"},
    "plan": {"conf", "core"},
    "operators": {"conf", "storage", "delta_format", "core", "expressions", "plan"},
    "sink": {"conf", "storage", "delta_format", "core"},
    "language": {"conf", "core", "expressions", "operators"},
    "hosting": {"conf", "storage", "core", "plan", "expressions", "operators", "language", "sink"},
    "api": {"conf", "storage", "core", "datasource", "expressions", "plan", "operators", "language", "hosting", "sink"},
    "testing": {"conf", "core", "datasource", "expressions", "operators", "plan", "language", "hosting", "api"},
    "cli": {
        "conf",
        "storage",
        "delta_format",
        "core",
        "datasource",
        "expressions",
        "operators",
        "language",
        "hosting",
        "sink",
        "api",
        "workbench",
    },
    "workbench": {
        "conf",
        "storage",
        "delta_format",
        "core",
        "datasource",
        "expressions",
        "plan",
        "operators",
        "language",
        "hosting",
        "sink",
        "api",
    },
}


@functools.cache
def _modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below ``upstream``."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements, without what is in expressions: most of a tree."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(tree, name, ()):
            yield each
            yield from _statements(each)


@functools.cache
def _imports() -> dict[str, set[str]]:
    """Which module imports which: absolute, relative, lazy and type-only imports alike."""
    modules = _modules()
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        package = name.split(".")[:-1]
        imported: set[str] = set()
        for node in _statements(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.removeprefix("upstream.") for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                whole = ".".join([*base, *(node.module or "").split(".")]).strip(".")
                whole = whole if node.level else whole.removeprefix("upstream.")
                imported |= {whole, *(f"{whole}.{alias.name}".strip(".") for alias in node.names)}
        found[name] = {each for each in imported if each in modules} - {name}
    return found


def _cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for other in edges.get(waiting.pop(), set()) - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reaches = {node: reached(node) for node in edges}
    groups = {tuple(sorted(other for other in reaches[node] if node in reaches.get(other, ()))) for node in edges}
    return [list(group) for group in sorted(groups) if group]


def test_imports_are_found():
    imports = _imports()
    assert len(imports) > 250
    assert "conf.errors" in imports["storage.folder"], "a relative import"
    assert "sink.spec.layout" in imports["sink.merge.newest_rows"], "one for types only"
    assert "operators.runtime.pack" in imports["operators.shards"], "one of a folder below"


def test_imports_run_one_way():
    for name, others in _imports().items():
        package = name.split(".")[0]
        found = {other.split(".")[0] for other in others} - {package}
        assert found <= _ALLOWED[package], f"{name} imports {sorted(found - _ALLOWED[package])}"


def test_cycles_are_found():
    assert _cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"e"}}) == [["a", "b", "c"], ["e"]]
    assert _cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_no_file_imports_itself_in_a_circle():
    assert _cycles(_imports()) == []


def test_no_folder_imports_itself_in_a_circle():
    folders: dict[str, set[str]] = {}
    for name, others in _imports().items():
        folder = name.rpartition(".")[0]
        folders.setdefault(folder, set()).update({other.rpartition(".")[0] for other in others} - {folder})
    assert _cycles(folders) == []


def _without_tests_of_their_own() -> set[str]:
    """Modules of which there is no test file of the same name at the same place."""
    ends = ("", "_on_spark", "_property")
    return {
        name
        for name, path in _modules().items()
        if path.name != "__init__.py"
        and not any(
            (ROOT / "tests" / path.relative_to(ROOT).with_name(f"test_{path.stem}{end}.py")).exists() for end in ends
        )
    }


def test_tests_mirror_modules_and_the_list_of_those_without_a_test_file_only_shrinks():
    listed = set((ROOT / "tests" / "modules_without_a_test_file.txt").read_text().split())
    found = _without_tests_of_their_own()
    assert found - listed == set(), "a new module has a test file of its name at the same place below tests"
    assert listed - found == set(), "take these off the list: they have a test file, or are gone"


def test_no_test_imports_another():
    """What they share is in a file of its own."""
    for path in (ROOT / "tests").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) [\w.]*\btest_", path.read_text(), re.MULTILINE), path


def test_names_of_modules_in_strings_stand_for_modules():
    assert named_modules.absent() == []


def test_locks_name_no_place():
    for lock in (ROOT / "constraints.txt", *(ROOT / "tools").glob("constraints-*.txt")):
        text = lock.read_text()
        assert "://" not in text
        assert "--hash=sha256:" in text
        assert not re.search(r"^(-|--)\w", text, re.MULTILINE)


@functools.cache
def sizes():
    return modules.tool("sizes")


def test_no_size_grows():
    limits = json.loads((ROOT / "tests" / "sizes.json").read_text())
    found = sizes().figures()
    assert {name: value for name, value in found.items() if value > limits[name]} == {}, "see `make sizes`"


@pytest.mark.parametrize("name", ["merging", "Joined", "_Received", "key_hashed"])
def test_a_participle_is_found(name):
    assert sizes().is_participle(name)


@pytest.mark.parametrize("name", ["FeedBounds", "string", "StringFeed", "merge", "Ring"])
def test_a_noun_is_no_participle(name):
    assert not sizes().is_participle(name)
