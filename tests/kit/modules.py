"""Modules of the checkout that are not installed: those of `tools` and of `benchmarks`, and files of tests."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from .places import ROOT


def tool(name: str) -> ModuleType:
    """Import a module of the folder `tools`."""
    return load(ROOT / "tools" / f"{name}.py")


def load(path: Path) -> ModuleType:
    """Import a file that imports nothing relatively."""
    spec = importlib.util.spec_from_file_location(f"the_{path.stem}_tool", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def benchmark(name: str) -> ModuleType:
    """Import a module of the package `benchmarks`."""
    return importlib.import_module(f"the_benchmarks.{name}")


def name_benchmarks() -> None:
    """Give the package `benchmarks` another name, so that tests import from it: a folder of tests has its own name."""
    home = ROOT / "benchmarks"
    spec = importlib.util.spec_from_file_location(
        "the_benchmarks", home / "__init__.py", submodule_search_locations=[str(home)]
    )
    assert spec is not None
    sys.modules.setdefault("the_benchmarks", importlib.util.module_from_spec(spec))
