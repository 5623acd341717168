"""Sorted runs: what is found is what was written last, with files, without them, and with those of a failed batch."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.state.key_runs import KeyRuns, PlaceRanges, buckets_at, buckets_for, key_places, row_places
from upstream.operators.state.runs import RunFiles
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("k", pa.int64()), ("v", pa.int64())])


class Counting(DictStore):
    """A store that notes what is read and written."""

    def __init__(self, values=()):
        super().__init__()
        self.values = dict(values)
        self.got, self.kept = [], []

    def get(self, kind, page):
        self.got.append((kind, page))
        return super().get(kind, page)

    def put(self, kind, page, value):
        self.kept.append((kind, page))
        super().put(kind, page, value)


def rows(pairs, value=0):
    numbers, keys = ([pair[at] for pair in pairs] for at in (0, 1))
    values = value if isinstance(value, list) else [value] * len(pairs)
    return pa.table([pa.array(each, pa.int64()) for each in (numbers, keys, values)], schema=SCHEMA)


def numbers_of(*given):
    return np.array(sorted({*given}), dtype=np.int64)


class Shard:
    """Rows by (number, key) over batches, each of which may fail after it has written."""

    def __init__(self, many=False, files=None):
        self.many, self.files = many, files
        self.store, self.saved = Counting(), {}

    def runs(self, store=None):
        return KeyRuns(self.store if store is None else store, "r", SCHEMA, self.saved, self.files)

    def find(self, runs, numbers):
        return (
            runs.find_between(PlaceRanges.of_keys(numbers).disjoint()) if self.many else runs.find(key_places(numbers))
        )

    def write(self, changes, *, fails=False):
        """Put (number, key, value) or delete, where the value is None."""
        store = Counting(self.store.values)
        runs = self.runs(store)
        found = self.find(runs, numbers_of(*(number for number, _, _ in changes)))
        gone = {(number, key) for number, key, _ in changes}
        stays = np.array([(row["n"], row["k"]) not in gone for row in found.rows.to_pylist()], dtype=np.bool_)
        new = [row for row in changes if row[2] is not None]
        given_ = rows([row[:2] for row in new], [row[2] for row in new])
        runs.replace(found, stays, given_, self.places(given_))
        if not fails:
            self.store, self.saved = store, runs.to_json()
        return store

    def places(self, given):
        numbers = given.column("n").to_numpy()
        return row_places(numbers, given.column("k").to_numpy()) if self.many else key_places(numbers)

    def read(self, *given):
        asked = set(given)
        table = self.find(self.runs(), numbers_of(*given)).rows
        assert table.schema == SCHEMA
        return {(row["n"], row["k"]): row["v"] for row in table.to_pylist() if row["n"] in asked}


NUMBERS = st.sampled_from([-(2**62), -1, 0, 1, 2, 3, 2**31, 2**62])
CHANGES = st.dictionaries(st.tuples(NUMBERS, st.integers(0, 3)), st.none() | st.integers(0, 9), max_size=8)


@given(st.lists(st.tuples(CHANGES, st.booleans()), max_size=14), st.booleans(), st.booleans())
def test_every_number_has_what_was_written_last_whatever_failed(batches, many, with_files):
    with tempfile.TemporaryDirectory() as folder:
        files = RunFiles(Path(folder, "runs"), 1 << 20) if with_files else None
        shard, expected = Shard(many, files), {}
        for drawn, fails in batches:
            # Unless rows have places of their own, there is one row for each number.
            changes = {(number, key if many else 0): value for (number, key), value in drawn.items()}
            given_ = [(*pair, value) for pair, value in changes.items()]
            if fails:
                shard.write(given_, fails=True)
                # An attempt with other rows wrote files, and none of them is taken for those of the next attempt.
                continue
            shard.write(given_)
            for pair, value in changes.items():
                expected.pop(pair, None)
                if value is not None:
                    expected[pair] = value
            assert shard.read(*(number for number, _ in {*expected, *changes})) == expected
            assert shard.runs().rows == len(expected)
            for number in {number for number, _ in expected}:
                assert shard.read(number) == {pair: v for pair, v in expected.items() if pair[0] == number}
        runs = shard.runs()
        for _ in range(2):
            found = runs.find_all().rows.to_pylist()
            assert sorted((row["n"], row["k"], row["v"]) for row in found) == sorted(
                (*pair, value) for pair, value in expected.items()
            )
            assert runs.bytes == sum(map(len, shard.store.values.values()))
            runs.compact()
            assert sum(run[2] for run in runs.to_json()["runs"]) == len(expected)
        runs.clear()
        assert (runs.rows, runs.find_all().rows.num_rows, shard.store.values) == (0, 0, {})


def test_what_is_written_follows_from_what_changes_and_runs_are_merged():
    chance, shard = np.random.default_rng(1), Shard()
    shard.write([(number, 0, 0) for number in range(50_000)])
    first = len(shard.store.kept)
    assert first == 50  # pages, and their first places
    expected, written, most, counts = dict.fromkeys(range(50_000), 0), 0, 0, []
    for batch in range(1, 200):
        changed = chance.choice(50_000, 500, replace=False).tolist()
        store = shard.write([(number, 0, batch) for number in changed])
        expected.update(dict.fromkeys(changed, batch))
        written += len(store.kept)
        counts.append(len(shard.saved["runs"]))
        most = max(most, len(store.values))
    assert {number: value for (number, _), value in shard.read(*range(50_000)).items()} == expected
    assert max(counts) <= 10
    # Twice the rows that there are, at most, and less than one page of a batch in three written again.
    assert sum(run[2] for run in shard.saved["runs"]) <= 2 * 50_000
    assert most <= 3 * first
    assert written < 200 * first / 3


def test_deleted_rows_leave_nothing_behind_once_runs_are_merged():
    shard = Shard()
    for value in (0, None, 1, None):
        for low in range(0, 5000, 500):
            shard.write([(9999, 0, 1)])
            shard.write([(number, 0, value) for number in range(low, low + 500)])
    assert sum(run[2] for run in shard.saved["runs"]) <= 5000
    assert shard.read(9999, 10) == {(9999, 0): 1}
    assert len(shard.store.values) <= 8


def test_a_row_that_never_was_leaves_no_marker():
    shard = Shard()
    shard.write([(1, 0, None)])
    assert shard.store.values == {}
    assert shard.saved == {"runs": [], "next": 0, "rows": 0}


def test_a_few_numbers_are_found_without_reading_the_other_pages():
    shard = Shard()
    shard.write([(number, 0, 0) for number in range(50_000)])
    shard.write([(7, 0, 1)])
    shard.store.got.clear()
    assert shard.read(7, 8) == {(7, 0): 1, (8, 0): 0}
    assert len(shard.store.got) == 3
    shard.store.got.clear()
    assert len(shard.read(*range(0, 50_000, 10))) == 5000
    assert len(shard.store.got) == 51


def test_rows_of_one_place_are_written_together():
    shard = Shard(many=True)
    shard.places = lambda given: np.zeros(given.num_rows, dtype=np.uint64)
    shard.find = lambda runs, _: runs.find(np.zeros(1, dtype=np.uint64))
    shard.write([(1, 1, 10), (1, 2, 20)])
    shard.write([(1, 2, 21)])
    shard.write([(1, 3, 30)])
    assert shard.read(1) == {(1, 1): 10, (1, 2): 21, (1, 3): 30}
    shard.write([(1, 1, None)])
    assert shard.read(1) == {(1, 2): 21, (1, 3): 30}


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 50))), st.sets(st.integers(0, 3)), st.integers(0, 4))
def test_single_rows_and_buckets_of_a_key_are_found_where_the_key_is(pairs, whole, bits):
    """Ranges may contain others: each row is found once."""
    shard = Shard(many=True)
    shard.write([(*pair, 0) for pair in pairs])
    every = numbers_of(*range(4))
    some = rows([pair for pair in sorted(pairs) if pair[1] % 3 == 0])
    for bucket in range(1 << bits):
        found = shard.runs().find_between(
            PlaceRanges.of_buckets(every, np.full(4, bucket), np.full(4, bits)).disjoint()
        )
        mine = [row for row in rows(sorted(pairs)).to_pylist() if _bucket(shard, row, bits) == bucket]
        assert _pairs(found) == sorted((row["n"], row["k"]) for row in mine)
        wanted = {(row["n"], row["k"]) for row in [*mine, *some.to_pylist()]} | {p for p in pairs if p[0] in whole}
        got = shard.runs().find_between(
            PlaceRanges.of_keys(numbers_of(*whole)).joined(shard.places(some)).joined(found.places).disjoint()
        )
        assert _pairs(got) == sorted(wanted)


def _bucket(shard, row, bits):
    return int(buckets_at(shard.places(rows([(row["n"], row["k"])])), np.array([bits]))[0])


def _pairs(found):
    return sorted((row["n"], row["k"]) for row in found.rows.to_pylist())


def test_files_spare_the_store_and_an_older_state_has_its_own(tmp_path):
    files = RunFiles(tmp_path / "runs", 1 << 30)
    shard = Shard(files=files)
    shard.write([(number, 0, 0) for number in range(5000)])
    older = shard.store.values.copy(), shard.saved
    for batch in range(1, 8):
        shard.write([(number, 0, batch) for number in range(0, 5000, 7)])
    shard.store.got.clear()
    shard.files = RunFiles(tmp_path / "runs", 1 << 30)  # another worker of the executor
    assert shard.read(0, 1) == {(0, 0): 7, (1, 0): 0}
    assert shard.store.got == [("r/1", 0)]  # a run of one page has no file
    # The query starts again from a checkpoint before those batches, of which runs were merged and their files dropped.
    shard.store, shard.saved = Counting(older[0]), older[1]
    assert shard.read(0, 1) == {(0, 0): 0, (1, 0): 0}
    shard.write([(0, 0, 100)])
    assert shard.read(0, 7) == {(0, 0): 100, (7, 0): 0}


def test_what_an_attempt_wrote_elsewhere_is_not_taken_for_what_was_committed(tmp_path):
    here, there = (RunFiles(tmp_path / name, 1 << 30) for name in ("here", "there"))
    shard = Shard(files=here)
    shard.write([(number, 0, 0) for number in range(3000)])
    shard.write([(number, 0, 1) for number in range(2000)], fails=True)
    shard.files = there  # the batch runs again on another executor, with other rows
    shard.write([(number, 0, 2) for number in range(1500)])
    shard.files = RunFiles(tmp_path / "here", 1 << 30)
    assert shard.read(0, 1499, 1500, 2999) == {(0, 0): 2, (1499, 0): 2, (1500, 0): 0, (2999, 0): 0}


def test_runs_that_are_merged_leave_no_file(tmp_path):
    shard = Shard(files=RunFiles(tmp_path / "runs", 1 << 30))
    for batch in range(12):
        shard.write([(number, 0, batch) for number in range(0, 3000, 2)])
    names = {f"{run[1]}.run" for run in shard.saved["runs"]}
    assert {each.name for each in (tmp_path / "runs").iterdir()} == names


def test_a_run_that_lacks_a_page_is_not_taken_for_whole():
    shard = Shard()
    shard.write([(number, 0, 0) for number in range(5000)])
    shard.store.remove("r/0", 3)
    with pytest.raises(AssertionError, match="of a run's 5000 rows"):
        shard.read(*range(5000))


@pytest.mark.parametrize("with_files", [True, False])
def test_rows_of_an_earlier_run_of_the_job_are_fitted(tmp_path, with_files):
    files = RunFiles(tmp_path / "runs", 1 << 20) if with_files else None
    shard = Shard(files=files)
    shard.write([(number, 0, 5) for number in range(3)])
    more = pa.schema([*SCHEMA, ("w", pa.int64())])
    runs = KeyRuns(shard.store, "r", more, shard.saved, files)
    new = pa.table([pa.array([each], pa.int64()) for each in (1, 0, 6, 7)], schema=more)
    for before in (None, 7, 7, 7):  # runs are merged on the way
        found = runs.find(key_places(numbers_of(1)))
        assert found.rows.column("w").to_pylist() == [before]
        runs.replace(found, np.zeros(1, dtype=np.bool_), new, shard.places(new))
    assert runs.find(key_places(numbers_of(0, 1))).rows.sort_by("n").column("w").to_pylist() == [None, 7]


def test_compacting_leaves_only_the_rows_that_there_are():
    shard = Shard()
    for value in range(3):
        shard.write([(number, 0, value) for number in range(3000)])
    runs = shard.runs()
    before = runs.bytes
    runs.compact()
    assert runs.bytes == sum(map(len, shard.store.values.values())) < before / 2
    shard.saved = runs.to_json()
    assert (shard.read(7), runs.rows) == ({(7, 0): 2}, 3000)


@pytest.mark.parametrize(
    ("rows", "bits", "expected"),
    [(0, 0, 0), (256, 0, 0), (257, 0, 1), (512, 1, 1), (513, 1, 2), (65_536, 0, 8), (1 << 20, 0, 10), (1 << 60, 0, 20),
     (256, 1, 1), (256, 2, 0), (0, 8, 0)],
)  # fmt: skip
def test_buckets_grow_with_the_rows_and_shrink_later(rows, bits, expected):
    assert buckets_for(np.array([rows]), np.array([bits])).tolist() == [expected]
