import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError
from upstream.hosting.registry.changes import Change

CHANGES = st.builds(
    Change,
    st.sampled_from(["register", "alter", "activate", "deactivate", "drop", "view", "drop_view", "fail"]),
    st.text(),
    st.none() | st.text(),
    st.none() | st.floats(0.01, 100),
    st.none() | st.booleans(),
    st.none() | st.integers(1, 9),
    st.none() | st.text(),
    st.none() | st.integers(0),
)


@given(CHANGES)
def test_changes_come_back(change):
    assert Change.from_json(change.to_json()) == change


def test_no_two_files_are_equal():
    change = Change("drop", "q")
    assert change.to_json() != change.to_json()


_DAMAGED = ["", "[]", "{}", '{"kind": "drop", "name": "q"', '{"kind": "drop", "name": "q"}']
_DAMAGED += ['{"kind": "rename", "name": "q", "nonce": "1"}']
_DAMAGED += ['{"kind": "drop", "name": "q", "colour": 1, "nonce": "1"}']


@pytest.mark.parametrize("content", _DAMAGED)
def test_what_cannot_be_read_is_an_error(content):
    with pytest.raises(CheckpointError, match="cannot be read"):
        Change.from_json(content.encode())
