"""Write the software bill of materials of a release, in CycloneDX's form: ``bill_of_materials.py VERSION``.

It lists the locked packages with the hashes that pip checks, and Delta's two jars. The checkout alone determines it:
it has no date and no serial number.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from upstream.conf import jars

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\\\]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def packages(lock: str) -> list[dict[str, Any]]:
    """Return a component for each locked package.

    Parameters
    ----------
    lock
        The text of a constraints file.
    """
    starts = [*_PACKAGE.finditer(lock)]
    ends = [each.start() for each in starts[1:]] + [len(lock)]
    return [
        {
            "type": "library",
            "name": found[1],
            "version": found[2],
            "purl": f"pkg:pypi/{found[1]}@{found[2]}",
            "hashes": [{"alg": "SHA-256", "content": each} for each in _HASH.findall(lock[found.end() : end])],
        }
        for found, end in zip(starts, ends, strict=True)
    ]


def delta_jars() -> list[dict[str, Any]]:
    """Return a component for each jar that the session loads beside Spark's own."""
    return [
        {"type": "library", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
        for name, digest in sorted(jars.JARS.items())
    ]


def bill(version: str) -> dict[str, Any]:
    """Return the document for a version."""
    lock = (_ROOT / "constraints.txt").read_text(encoding="utf-8")
    this = {"type": "library", "name": "pyspark-upstream", "version": version}
    this |= {"purl": f"pkg:pypi/pyspark-upstream@{version}", "licenses": [{"license": {"id": "Apache-2.0"}}]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": this},
        "components": [*packages(lock), *delta_jars()],
    }


if __name__ == "__main__":
    json.dump(bill(sys.argv[1]), sys.stdout, indent=1)
