"""The tiers of the tests: the core, the tests of what a change touches, and an eighth of the rest.

``pytest --tier=core --tier=touched --tier=slice`` is what ``make test`` runs. Without ``--tier`` all tests run.

``plain``
    Tests that start nothing but Python.
``core``
    ``plain``, and the costly tests in `tests/core.txt`.
``touched``
    Costly tests that mirror the files changed since `tests/slice` last changed, up to `TOUCHED_S` seconds.
``slice``
    One of `SLICES` parts of the costly tests outside the core. The number in `tests/slice` chooses it.
"""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

TIERS = ("plain", "core", "touched", "slice")
SLICES = 8
COSTLY = frozenset(("spark", "broker", "server", "benchmark", "cluster", "fault", "slow"))
"""Markers of tests outside `plain`."""
TOUCHED_S = 240.0
UNMEASURED_S = 8.0
"""The seconds of a test in a file that no run has measured."""
SHORT_S = 0.5
"""The seconds of a test that took less than a second when its file was measured."""


def slice_of(files: Iterable[str], seconds: Mapping[str, float], number: int) -> set[str]:
    """Return the files of one slice: the longest first, each into the slice that is shortest so far."""
    loads = [0.0] * SLICES
    chosen: set[str] = set()
    for file in sorted(files, key=lambda each: (-seconds[each], each)):
        at = loads.index(min(loads))
        loads[at] += seconds[file]
        if at == number % SLICES:
            chosen.add(file)
    return chosen


def mirrors(changed: Iterable[str], tests: Mapping[str, str]) -> list[str]:
    """Return the test files that mirror changed files, nearest first.

    Parameters
    ----------
    changed
        Paths relative to the project's root.
    tests
        The text of each test file and of each helper below ``tests``, by its path relative to the root.
    """
    found: dict[str, int] = {}
    for path in changed:
        for test, distance in _mirrors_of(Path(path), tests).items():
            found[test] = min(distance, found.get(test, distance))
    return sorted(found, key=lambda each: (found[each], each))


def _mirrors_of(path: Path, tests: Mapping[str, str]) -> dict[str, int]:
    """Return test files by distance: 0 of the same name, 1 of the same folder, 2 of the same subject."""
    if path.parts[0] == "tests":
        if path.name.startswith("test_"):
            return {str(path): 0} if str(path) in tests else {}
        users = (f"kit.{path.stem} ", f"kit import {path.stem}", f".{path.stem} import", f"import {path.stem}\n")
        return {
            name: 2
            for name, text in tests.items()
            if Path(name).name.startswith("test_")
            and (path.parent.name == "kit" or Path(name).parent == path.parent)
            and (any(each in text for each in users) or path.name in text)
        }
    found: dict[str, int] = {}
    home = Path("tests") / path.parent
    subjects = {f"test_{part}" for part in path.parent.parts[1:]} | {f"test_{path.stem}"}
    for name in tests:
        test = Path(name)
        if not test.name.startswith("test_"):
            continue
        if test.parent == home and f"{test.stem}_".startswith(f"test_{path.stem}_"):
            found[name] = 0
        elif test.parent == home or (
            test.parent in home.parents and any(f"{test.stem}_".startswith(f"{each}_") for each in subjects)
        ):
            found[name] = 1 if test.parent == home else 2
    return found


def within_budget(files: Iterable[str], seconds: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Return the files that `TOUCHED_S` has room for, and those that are left to their slices."""
    taken: list[str] = []
    left: list[str] = []
    used = 0.0
    for file in files:
        if used + seconds[file] <= TOUCHED_S:
            used += seconds[file]
            taken.append(file)
        else:
            left.append(file)
    return taken, left


def changes(root: Path) -> tuple[str, list[str]]:
    """Return the commit before the change, and the files that changed since: empty without git's history.

    A change starts after the commit that last raised `tests/slice`. A raise in the newest commit ends a change.
    """

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else []

    head = git("rev-parse", "HEAD")
    raises = [commit for commit in git("log", "-2", "--format=%H", "--", "tests/slice") if commit not in head]
    if not raises:
        return "", []
    there = git("diff", "--name-only", "--no-renames", raises[0]) + git("ls-files", "--others", "--exclude-standard")
    return raises[0][:10], sorted({file for file in there if file != "tests/slice"})


def read_slice(root: Path) -> int:
    """Return the number in `tests/slice`."""
    return int((root / "tests" / "slice").read_text())


def read_core(root: Path) -> set[str]:
    """Return the costly tests of the core."""
    lines = (root / "tests" / "core.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def names_of(file: Path, name: str) -> tuple[str, str]:
    """Return what `tests/core.txt` may call a test: with its parameters, and without."""
    return f"{file}::{name}", f"{file}::{name_of(name)}"


def name_of(node: str) -> str:
    """Return a test's name without its parameters."""
    return node.partition("[")[0]


def seconds_of(tests: Mapping[str, Iterable[str]], root: Path) -> dict[str, float]:
    """Return the seconds of the given tests of each file: as measured, or a guess."""
    measured: dict[str, float] = json.loads((root / "tests" / "durations.json").read_text())
    files = {test.partition("::")[0] for test in measured}
    return {
        file: sum(
            measured.get(f"{file}::{name}", SHORT_S if file in files else UNMEASURED_S)
            for name in {name_of(each) for each in own}
        )
        for file, own in tests.items()
    }
