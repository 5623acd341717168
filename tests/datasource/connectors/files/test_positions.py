"""The ledger: what is journaled, how it is found again, and what a crash between two writes leaves."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.journal import through_json

from upstream.conf.errors import CheckpointError
from upstream.datasource.connectors.contract import Position
from upstream.datasource.connectors.files.positions import EMPTY, FileOffsets, FilePosition


def add(ledger: FileOffsets, low: int, high: int, to: int = 1) -> Position:
    for number in range(low, high):
        ledger.entries[f"/d/{number}"] = FilePosition(
            to=to, size=to, kind="text", mark="m", segments=[(to + 5, 7)] if number % 9 == 0 else []
        )
        ledger.touch(f"/d/{number}")
    return through_json(ledger.position())


def test_few_files_stand_in_the_position(tmp_path):
    ledger = FileOffsets(EMPTY, str(tmp_path / "state"))
    position = add(ledger, 0, 1000)
    assert "quiet" not in position
    assert not (tmp_path / "state").exists()
    assert FileOffsets(position, None).entries == ledger.entries


@pytest.mark.parametrize("kept", [True, False])
def test_many_files_leave_it(tmp_path, kept):
    folder = str(tmp_path / "state") if kept else None
    ledger = FileOffsets(EMPTY, folder)
    position: Position = EMPTY
    for number in range(0, 30_000, 900):
        position = add(ledger, number, number + 900)
        assert len(position["files"]) <= 1000
    assert FileOffsets(position, folder).entries == ledger.entries
    assert len(json.dumps(position)) < (150_000 if kept else 1_000_000)


def test_entries_that_move_again_replace_what_was_written(tmp_path):
    ledger = FileOffsets(EMPTY, str(tmp_path))
    positions = [add(ledger, 0, 3000, to) for to in range(1, 20)]
    again = FileOffsets(positions[-1], str(tmp_path))
    assert again.entries == ledger.entries
    assert {entry.to for entry in again.entries.values()} == {19}
    lists = sorted(tmp_path.iterdir())
    assert len(lists) > 1  # it was rewritten
    ledger.forget(positions[-1])
    assert len(list(tmp_path.iterdir())) < len(lists)
    assert FileOffsets(positions[-1], str(tmp_path)).entries == ledger.entries


def test_what_was_written_and_never_journaled_is_cut_off(tmp_path):
    ledger = FileOffsets(EMPTY, str(tmp_path))
    journaled = add(ledger, 0, 2000)
    add(ledger, 2000, 4000)  # killed before this position was journaled
    again = FileOffsets(journaled, str(tmp_path))
    assert set(again.entries) == {f"/d/{number}" for number in range(2000)}
    position = add(again, 5000, 7000)
    assert FileOffsets(position, str(tmp_path)).entries == again.entries
    assert "/d/3000" not in again.entries


def test_a_list_that_is_not_ours(tmp_path):
    position = add(FileOffsets(EMPTY, str(tmp_path)), 0, 2000)
    (path,) = tmp_path.iterdir()
    text = path.read_bytes()
    for changed in (text[:-1], b"x" + text[1:]):
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match="not the one"):
            FileOffsets(position, str(tmp_path))
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        FileOffsets(position, str(tmp_path))
    with pytest.raises(CheckpointError, match="checkpointLocation"):
        FileOffsets(position, None)
    with pytest.raises(CheckpointError, match="version"):
        FileOffsets({"version": 0, "files": []}, None)


def test_two_sources_of_one_query_keep_apart_and_names_are_of_any_bytes(tmp_path):
    one, two = FileOffsets(EMPTY, str(tmp_path)), FileOffsets(EMPTY, str(tmp_path))
    one.entries["/d/\udcff\n\r\u2028"] = FilePosition(to=1)
    one.touch("/d/\udcff\n\r\u2028")
    first, second = add(one, 0, 2000), add(two, 5000, 7000)
    assert FileOffsets(first, str(tmp_path)).entries == one.entries
    assert FileOffsets(second, str(tmp_path)).entries == two.entries


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=200))
def test_segments_stay_few_and_keep_the_older_arrival(steps):
    entry, clock, arrivals = FilePosition(), 0, {}
    for more, later in steps:
        clock += later
        entry.see(entry.end + more, clock)
        arrivals[entry.end] = clock
    assert len(entry.segments) <= 32
    assert entry.end == sum(more for more, _ in steps)
    assert entry.segments == sorted(entry.segments)
    low = 0
    for end, arrival in entry.segments:
        assert arrival == min(when for at, when in arrivals.items() if low < at <= end)
        low = end
