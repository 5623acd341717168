"""The examples of the documentation run as they are printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.places import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(each for each in (*DOCS.glob("how-to/*.md"), DOCS / "windows.md", DOCS / "readers.md"))
WITH_PYTHON = [each for each in PAGES if "```python" in each.read_text(encoding="utf-8")]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong on each page; one session runs them all."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run_pages.py"), *WITH_PYTHON],
        cwd=tmp_path_factory.mktemp("pages"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_examples_run(failures: dict[str, str], page: Path) -> None:
    assert failures[str(page)] == ""


def test_what_is_not_run_has_a_reason() -> None:
    for page in PAGES:
        for reason in re.findall(r"<!-- not run:(.*?)-->", page.read_text(encoding="utf-8")):
            assert len(reason.split()) >= 3, page
