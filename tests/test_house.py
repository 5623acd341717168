"""The package that is tested is the one that was installed, whole, and imported once."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pyspark_upstream
import upstream

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cli", "conf", "datasource", "frames", "operators", "sink")


def test_tested_package_is_the_installed_one() -> None:
    tested = os.environ.get("UPSTREAM_TESTED")  # `make test` says which environment is meant
    for package in (upstream, pyspark_upstream):
        found = Path(package.__file__ or "")
        if tested is not None:
            assert found.resolve().is_relative_to(Path(tested).resolve())
        assert found.is_relative_to(sys.prefix)


def test_nothing_is_imported_from_the_checkout() -> None:
    import upstream.conf.session

    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    homes = [ROOT / package for package in PACKAGES] + [ROOT / "__init__.py"]
    strays = [name for name, file in files.items() if file and any(Path(file).is_relative_to(home) for home in homes)]
    assert strays == []
    assert upstream.conf.session.__name__ == "upstream.conf.session"


def test_every_module_is_installed_as_it_is_here() -> None:
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


def test_every_module_says_what_it_exports_and_is_not_long() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if path.name != "__init__.py":
                assert re.search(r"^__all__ = ", text, re.MULTILINE), f"{path} has no __all__"
            assert text.count("\n") <= 500, f"{path} is long: one idea per file"


def test_imports_run_one_way() -> None:
    allowed = {
        "conf": set(),
        "frames": {"conf"},
        "datasource": {"conf", "frames"},
        "operators": {"conf", "frames"},
        "sink": {"conf", "frames"},
    }
    for package, others in allowed.items():
        for path in (ROOT / package).rglob("*.py"):
            depth = len(path.relative_to(ROOT).parts) - 1
            dots = r"\." * (depth + 1)
            found = set(re.findall(rf"^\s*from {dots}(\w+)", path.read_text(), re.MULTILINE))
            assert found <= others | {package}, f"{path} imports {found - others}"


def test_locks_name_no_place() -> None:
    for lock in (ROOT / "constraints.txt", *(ROOT / "tools").glob("constraints-*.txt")):
        text = lock.read_text()
        assert "://" not in text
        assert "--hash=sha256:" in text
        assert not re.search(r"^(-|--)\w", text, re.MULTILINE)
