"""Run the examples of pages and of docstrings on Spark, in one session; each page begins with an empty folder, and
what it leaves is kept in one of its name.

It is a program, since Spark's own processes keep the directory that they began in: one that is made for it.

run_snippets.py FILE: of a JSON object of pages by name, and of examples by name; prints after each what failed in it
"""

import contextlib
import doctest
import io
import json
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import polars as pl
from docstrings import NAMES

import upstream as us

_PART = re.compile(r"<!-- (setup)\n(.*?)-->|(<!-- not run: [^>]+ -->\s*)?```python\n(.*?)```", re.DOTALL)


def parts(page: str) -> list[str]:
    """The programs of a page in their order, what is not run left out."""
    return [found[2] or found[4] for found in _PART.finditer(page) if found[1] or not found[3]]


def write_feed(minutes_of_files: int, *files: int) -> None:
    """Two vehicles, so many minutes in each file."""
    Path("feed").mkdir()
    for number in files:
        minutes = range(minutes_of_files * number, minutes_of_files * (number + 1))
        rows = [f"{key},2024-01-01T00:{minute:02d}:00Z,{key + minute}.5" for minute in minutes for key in (1, 2)]
        Path("feed", f"{number}.csv").write_text("\n".join(["vehicle_id,timestamp,speed", *rows]) + "\n")


def run_page(name: str, page: str, spark: Any) -> str:
    """Run a page's programs in one namespace; returns what went wrong."""
    write_feed(20, 0, 1)
    names: dict[str, Any] = {"us": us, "spark": spark, "Path": Path}
    try:
        for part in parts(page):
            # Examples with their answers are doctests, which tests/operators/windows/test_page.py runs.
            if not part.startswith(">>>"):
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(part, f"{name}: {part.strip().splitlines()[0]}", "exec"), names)
    except Exception:
        return traceback.format_exc()[-3000:]
    finally:
        for query in spark.streams.active:
            query.stop()
    return ""


def run_examples(examples: dict[str, str], spark: Any) -> dict[str, str]:
    """Run the examples of docstrings; returns what went wrong by name."""
    write_feed(3, 0)
    pl.DataFrame({"vehicle_id": [1, 2], "model": ["A", "B"]}).write_delta("vehicles")

    def stream() -> us.UpdateStream:
        return us.read(spark, "feed/", key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")

    failures: dict[str, str] = {}
    for name, text in examples.items():
        given = {**NAMES, "spark": spark, "stream": stream(), "other": stream()}
        example = doctest.DocTestParser().get_doctest(text, given, name, None, 0)
        said: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=said.append)
        failures[name] = "".join(said)
    return failures


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    made = Path(tempfile.mkdtemp(prefix="snippets-", dir=Path.cwd()))
    os.chdir(made)  # before Spark starts, whose processes stay where they began
    spark = us.session("snippets", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    for name, page in given["pages"].items():
        failed = run_page(name, page, spark)
        kept = made.with_name(name)
        kept.mkdir()
        for each in made.iterdir():
            each.rename(kept / each.name)
        print(json.dumps({name: failed}), flush=True)
    print(json.dumps(run_examples(given["examples"], spark)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
