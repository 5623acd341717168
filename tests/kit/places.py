"""Where things are in the checkout, and beside it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
BUSES = EXAMPLES / "data" / "buses.csv.gz"
# Recorded streams, which are not on every machine.
RECORDED = ROOT.parent / "shared" / "data"

needs_recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded streams are not beside this checkout")
