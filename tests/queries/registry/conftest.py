from pathlib import Path

import pytest
from kit.registries import begun


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A registry that has begun."""
    return begun(tmp_path)
