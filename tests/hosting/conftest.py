import pytest
from kit.registries import begun


@pytest.fixture
def checkpoint(tmp_path):
    """A registry that has begun."""
    return begun(tmp_path)
