"""Tests that share a Spark session or a broker run in one process, others file by file."""

import re
from functools import cache

from xdist.scheduler import LoadScopeScheduling

from .places import ROOT

# A test or a fixture that takes one of the fixtures of the session.
SHARED = re.compile(r"^(?:async )?def \w+\([^)]*\b(?:spark|broker)\b\s*[:,)]", re.MULTILINE)


@cache
def scope_of(file: str) -> str:
    """Return the name of the tests that run in one process with those of a file below `tests`."""
    path = ROOT / "tests" / file
    texts = [each.read_text() for each in (path, path.with_name("conftest.py")) if each.exists()]
    return "sessions" if any(SHARED.search(text) for text in texts) else file


class Scheduler(LoadScopeScheduling):
    """Hands out files of tests. (Groups by marks do not work with pytest 9.2 and xdist 3.8.)"""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid.partition("::")[0])
