"""Tables of several queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.result_tables import Hosted


@pytest.fixture
def hosted(tmp_path: Path) -> Hosted:
    return Hosted(tmp_path)
