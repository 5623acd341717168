"""The examples of the documentation run as they are printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.places import ROOT

from . import run_pages

DOCS = ROOT / "docs"
PAGES = sorted(each for each in (*DOCS.glob("how-to/*.md"), DOCS / "windows.md", DOCS / "readers.md"))
WITH_PYTHON = [each for each in PAGES if "```python" in each.read_text(encoding="utf-8")]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong on each page; one session runs them all."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "somebody's").write_text("")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run_pages.py"), *WITH_PYTHON],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert (folder / "somebody's").exists(), "pages empty a folder of their own, not the one they were started in"
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_examples_run(failures: dict[str, str], page: Path) -> None:
    assert failures[str(page)] == ""


def test_no_folder_is_emptied_but_the_one_that_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is not the folder that was made"):
        run_pages.empty(Path.cwd())
    made = run_pages.enter_own_folder()
    (made / "file").write_text("")
    run_pages.empty(made)
    assert [*made.iterdir()] == []
    assert (tmp_path / "file").exists()


def test_what_is_not_run_has_a_reason() -> None:
    for page in PAGES:
        for reason in re.findall(r"<!-- not run:(.*?)-->", page.read_text(encoding="utf-8")):
            assert len(reason.split()) >= 3, page
