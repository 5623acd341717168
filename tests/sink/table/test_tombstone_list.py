"""Which list of tombstones counts, and what is forgotten: exact answers, without a table of rows."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import OptionError, TableError
from upstream.core.rows.sort_keys import ordered
from upstream.sink.spec.options import Retention
from upstream.sink.table.tombstones import APP_ID, FOLDER, TombstoneList, check_retention, forget_below, tombstone_files
from upstream.storage.folder import TableFolder

UTC_US = pa.timestamp("us", "UTC")
LEAST = -(2**63)


def of_version(number: int | None, folder: TableFolder) -> TombstoneList:
    """The list of a table whose transaction has this version."""

    def transaction_version(app: str) -> int | None:
        return number if app == APP_ID else 77

    table: Any = SimpleNamespace(transaction_version=transaction_version)
    return TombstoneList.of(table, folder)


def layout_of(kind: pa.DataType | None) -> Any:
    """Of a table whose time, if it has one, is of this type."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("t", kind or pa.int64())])
    deciding = ["k"] if kind is None else ["k", "t"]
    return SimpleNamespace(time=None if kind is None else "t", arrow_schema=lambda: schema, deciding=deciding)


def test_a_list_is_written_once_and_read_by_its_number(tmp_path):
    folder: Any = TableFolder(str(tmp_path))
    (tmp_path / FOLDER).mkdir()
    none = of_version(None, folder)
    assert none == of_version(0, folder) == TombstoneList()
    assert (none.number, none.paths, none.held()) == (0, {}, set())
    staged: Any = [SimpleNamespace(bucket=bucket, path=f"{bucket}.parquet") for bucket in (10, 9)]
    made = none.replaced(staged)
    assert made.place == f"{FOLDER}{made.number}.json"
    registered: list[Any] = []
    made.write(folder, none, lambda place: registered.append((tmp_path / place).exists()))
    assert registered == [False], "what fails from here on can remove the file"
    assert (tmp_path / made.place).read_bytes() == b'{"9": "9.parquet", "10": "10.parquet"}'
    assert of_version(made.number, folder) == made
    assert made.held() == {made.place, "9.parquet", "10.parquet"}
    assert made.replaced([]) is made
    assert made.without([3]) is made
    made.write(folder, made, registered.append)
    assert len(registered) == 1, "it is there"
    later: Any = [SimpleNamespace(bucket=9, path="new.parquet")]
    assert made.replaced(later).paths == {9: "new.parquet", 10: "10.parquet"}
    less = made.without([10, 3])
    less.write(folder, made, registered.append)
    assert less.paths == {9: "9.parquet"}
    assert json.loads((tmp_path / less.place).read_bytes()) == {"9": "9.parquet"}
    (tmp_path / less.place).unlink()
    with pytest.raises(TableError, match="list of the table's deletions is gone"):
        of_version(less.number, folder)


def test_a_list_has_a_number_of_its_own_that_a_transaction_can_have():
    staged: Any = [SimpleNamespace(bucket=1, path="1.parquet")]
    numbers = {TombstoneList().replaced(staged).number for _ in range(20)}
    assert len(numbers) == 20
    assert all(0 < number < 2**63 and number % 2 == 1 for number in numbers)
    assert max(numbers) > 2**56


def test_files_of_tombstones_have_what_decides():
    target: Any = SimpleNamespace(folder="the folder")
    files = tombstone_files(target, layout_of(UTC_US), layout_of(UTC_US).arrow_schema())
    assert files.schema == pa.schema([("k", pa.int64()), ("t", UTC_US)])
    assert (files._target, files._folder) == (target, FOLDER)


@pytest.mark.parametrize(
    ("kind", "retention", "expected"),
    [
        (pa.int64(), Retention(duration_us=5), "a number in the column's own unit"),
        (UTC_US, Retention(number=5), "a duration such as '7 days'"),
        (pa.date32(), Retention(number=5), "a duration such as '7 days'"),
        (None, Retention(number=5), "eventTime without sequenceBy"),
    ],
)
def test_a_retention_fits_the_time(kind, retention, expected):
    with pytest.raises(OptionError) as caught:
        check_retention(retention, layout_of(kind))
    assert f"Expected: {expected}" in str(caught.value)


def test_a_retention_that_fits_is_taken():
    check_retention(None, layout_of(None))
    check_retention(Retention(duration_us=0), layout_of(UTC_US))
    check_retention(Retention(number=0), layout_of(pa.int64()))


@pytest.mark.filterwarnings("error")
def test_times_are_forgotten_to_the_microsecond_and_dates_to_the_day():
    hour = Retention(duration_us=3_600_000_000)
    assert forget_below("1970-01-01T01:00:00.000007Z", hour, UTC_US) == 7
    assert forget_below("1970-01-01T01:00:00.000007", hour, pa.timestamp("us")) == 7
    assert forget_below("1970-01-08T00:00:00Z", None, UTC_US) == 0
    assert forget_below("1970-01-08T00:00:00Z", Retention(), UTC_US) == 0
    later = int(np.datetime64("2500-01-01T00:00:00.000001", "us").astype(np.int64))
    assert forget_below("2500-01-01T01:00:00.000001Z", hour, UTC_US) == later, "more than a float holds"
    assert forget_below("1970-01-09", None, pa.date32()) == 1
    assert forget_below("1970-01-01", Retention(duration_us=1), pa.date32()) == -1
    days = forget_below("1970-01-09", None, pa.date32())
    assert isinstance(days, int)
    assert forget_below("1970-01-01", Retention(duration_us=2**63 + 1), UTC_US) == LEAST
    assert forget_below(None, hour, UTC_US) is None


def test_numbers_are_forgotten_in_their_own_unit():
    assert forget_below(100, None, pa.int64()) is None
    assert forget_below(100, Retention(duration_us=5), pa.int64()) is None
    assert forget_below(100, Retention(number=10), pa.int64()) == 90
    assert forget_below("100", Retention(number=9.5), pa.int16()) == 90
    assert forget_below(LEAST + 5, Retention(number=10), pa.int64()) == LEAST
    edge = forget_below(1.5, Retention(number=0.25), pa.float32())
    assert edge == int(ordered(pa.chunked_array([pa.array([1.25])]))[0])
    assert forget_below(5, Retention(number=2), pa.float64()) == int(ordered(pa.chunked_array([pa.array([3.0])]))[0])
    assert isinstance(edge, int)
    assert not isinstance(edge, np.int64)
