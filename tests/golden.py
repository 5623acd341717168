"""Compare all answers with tests/golden.json (`python -m tests.golden`), or record them again (`--record`).

Other arguments are those of pytest: `--record -k windows` records a part.

What has no recorded answer:

- examples/demo.py, demo_kafka.py: they are played against the clock, so that each run ends at another row.
- README.md: its tests compare whole tables, or stop a program at any row.
- docs/testing.md and the examples of docstrings: they have their answers beside them.
- what DuckDB prints in examples/read_table.py: routes with as many buses come in any order.
- what pages print: their tables say the same, and a summary has times of the clock.
- tables of metrics, and rows aside (late ones, for example): they have times of the clock.
- docs/windows.md, and in docs/how-to index.md, kafka.md, pipelines.md, silent-feeds.md and watermarks.md: what runs of
  them keeps no table.
- `_upstream` and the numbers of joined rows: they depend on the clock and on the order of arrival.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from .kit.golden import FILE, RECORDS
from .kit.places import ROOT

TESTS = (
    "tests/simulation/test_simulation.py::test_answers_are_the_recorded_ones",
    "tests/docs/test_query_pages.py::test_examples_are_evaluated",
    "tests/docs/test_pages.py::test_examples_run",
    "tests/docs/test_pages.py::test_the_tutorial",
    "tests/examples/test_examples.py",
    "tests/connect/test_pipelines.py::test_the_example",
)


def main() -> int:
    """Run the tests that know answers."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="record the present answers")
    given, chosen = parser.parse_known_args()
    if given.record and not chosen:
        FILE.unlink(missing_ok=True)
    environment = {**os.environ, **({RECORDS: "1"} if given.record else {})}
    # Not `-m pytest`, which would import from the checkout.
    command = [Path(sys.executable).with_name("pytest"), "-q", *TESTS, *chosen]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
