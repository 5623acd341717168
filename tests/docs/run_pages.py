"""Run the examples of pages on Spark, page by page, in a folder of its own below the working directory.

It is a program, since Spark's own processes keep the directory that they began in.

run_pages.py PAGE…: prints a JSON object of pages and what failed, an empty text where nothing did
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import upstream as us

_PART = re.compile(r"<!-- (setup)\n(.*?)-->|(<!-- not run: [^>]+ -->\s*)?```python\n(.*?)```", re.DOTALL)


def parts(page: str) -> list[str]:
    """The programs of a page in their order, what is not run left out."""
    return [found[2] or found[4] for found in _PART.finditer(page) if found[1] or not found[3]]


def write_feed(folder: Path) -> None:
    """Two vehicles over forty minutes, two files."""
    folder.mkdir()
    for number in range(2):
        minutes = range(20 * number, 20 * number + 20)
        rows = [f"{key},2024-01-01T00:{minute:02d}:00Z,{key + minute}.5" for minute in minutes for key in (1, 2)]
        (folder / f"{number}.csv").write_text("\n".join(["vehicle_id,timestamp,speed", *rows]) + "\n")


def enter_own_folder() -> Path:
    """Make an empty folder below the working directory, and work there from now on: each page empties it."""
    made = Path(tempfile.mkdtemp(prefix="pages-", dir=Path.cwd()))
    os.chdir(made)
    return made


def empty(folder: Path) -> None:
    """Empty a folder that :func:`enter_own_folder` made, and none of somebody else's."""
    if not folder.name.startswith("pages-") or folder.resolve() != Path.cwd():
        raise ValueError(f"{folder} is not the folder that was made for the pages")
    for old in folder.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()


def run(page: Path, spark: Any, folder: Path) -> str:
    """Run a page's programs in one namespace and an empty folder; returns what went wrong."""
    empty(folder)
    write_feed(Path("feed"))
    names: dict[str, Any] = {"us": us, "spark": spark, "Path": Path}
    try:
        for part in parts(page.read_text(encoding="utf-8")):
            # Examples with their answers are doctests, which tests/operators/windows/test_page.py runs.
            if part.startswith(">>>"):
                continue
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(part, f"{page.name}: {part.strip().splitlines()[0]}", "exec"), names)
    except Exception:
        return traceback.format_exc()[-3000:]
    finally:
        for query in spark.streams.active:
            query.stop()
    return ""


def main() -> int:
    pages = {page: Path(page).resolve() for page in sys.argv[1:]}
    folder = enter_own_folder()  # before Spark starts, whose processes stay where they began
    spark = us.session("pages", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    print(json.dumps({name: run(page, spark, folder) for name, page in pages.items()}))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
