"""Store the seconds of costly tests, by which the slices are balanced: tests/durations.json.

``python tools/durations.py REPORT…`` reads reports of pytest (``--junitxml``). A test keeps its last measurement; tests
that no longer exist, and those that take less than a second, go.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "tests" / "durations.json"


def read_report(report: Path) -> dict[str, float]:
    """Return the seconds of each test of a report, those of its parameters added up."""
    found: dict[str, float] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 pytest wrote it
        name = case.attrib["name"].partition("[")[0]
        test = f"tests/{case.attrib['classname'].replace('.', '/')}.py::{name}"
        found[test] = found.get(test, 0.0) + float(case.attrib["time"])
    return found


def exists(test: str) -> bool:
    """Return whether a test is still there."""
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.exists() and f"def {name}(" in path.read_text()


def main() -> None:
    """Merge the reports into the stored seconds."""
    seconds: dict[str, float] = json.loads(STORE.read_text())
    for report in sys.argv[1:]:
        seconds |= read_report(Path(report))
    kept = {test: round(took, 1) for test, took in sorted(seconds.items()) if took >= 1 and exists(test)}
    STORE.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
