import polars as pl
import pyarrow as pa
import pytest
from kit.hosting import Versions, result_table

from upstream.conf.errors import QueryError
from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.system_column import SYSTEM
from upstream.hosting.host_plan import HostPlan
from upstream.hosting.output import Stamp, result_frames
from upstream.operators.relations import zsets
from upstream.operators.relations.zsets import TIME, WEIGHT

NEWEST = "SELECT vehicle_id, route_id FROM LATEST(buses) WHERE speed > 1 EMIT CHANGES"
FEED = "ISTREAM(SELECT vehicle_id, route_id FROM LATEST(buses))"
STAMP = Stamp(3, 1, 4, 90, 80)


def query(text, buckets=1):
    return HostPlan.of(Versions({1: {"q": (1, text)}}, buckets)(1), range(4)).queries[1]


def changes(rows):
    kinds = {"vehicle_id": pl.String(), "route_id": pl.String(), TIME: pl.Int64(), WEIGHT: pl.Int64()}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def taken(hosted, rows, stamp=STAMP):
    frames = result_frames(hosted, changes(rows), stamp)
    return pa.concat_tables([result_table(frame) for _, frame in frames])


def test_a_key_that_goes_is_a_tombstone_and_one_that_stays_is_not():
    hosted = query(NEWEST)
    rows = [("a", "1", 5, -1), ("a", "2", 5, 1), ("b", "1", 6, -1), ("c", "1", 7, 1), ("c", "1", 8, -1)]
    table = taken(hosted, rows)
    system = table.column(SYSTEM).to_pylist()
    key = hosted.result.key[0]
    named = dict(zip(table.column(key).to_pylist(), table.column("route_id").to_pylist(), strict=True))
    assert named == {"a": "2", "b": "1"}
    assert [each["deleted"] for each in system] == [False, True]
    assert [each["first_arrival"].timestamp() * 1e6 for each in system] == [80, 80]
    assert [each["arrival"].timestamp() * 1e6 for each in system] == [90, 90]
    assert table.schema.names == [*hosted.result.schema.names, SYSTEM]


def test_later_batches_win_then_upserts():
    hosted = query(NEWEST)
    up = taken(hosted, [("a", "1", 5, 1)], Stamp(3, 0, 4, 90, 80))
    down = taken(hosted, [("a", "1", 5, -1)], Stamp(3, 3, 4, 90, 80))
    later = taken(hosted, [("a", "1", 5, -1)], Stamp(4, 0, 4, 90, 80))
    seq = [each.column(SYSTEM)[0].as_py()["seq"] for each in (down, up, later)]
    assert seq == sorted(seq)
    assert len(set(seq)) == 3


def test_sequences_of_shards_differ():
    hosted = query(FEED)
    rows = [("a", "1", 5, 3)]
    seqs = [
        each["seq"] for shard in range(4) for each in taken(hosted, rows, Stamp(3, shard, 4, 9, 8))[SYSTEM].to_pylist()
    ]
    assert len(set(seqs)) == 12


def test_two_rows_of_one_key_are_refused():
    with pytest.raises(QueryError, match="one key"):
        taken(query(NEWEST), [("a", "1", 5, 1), ("a", "2", 5, 1)])
    with pytest.raises(QueryError, match="one key"):
        taken(query(NEWEST), [("a", "1", 5, 2)])


def test_a_feed_takes_no_more_copies_than_a_step_can_hold(monkeypatch):
    monkeypatch.setattr(zsets, "_MOST_GROWTH", 10)
    assert taken(query(FEED), [("a", "1", 5, 11)]).num_rows == 11
    with pytest.raises(QueryError, match="more than there are"):
        taken(query(FEED), [("a", "1", 5, 12)])


def test_rows_of_a_bucket_are_those_of_its_keys():
    hosted = query(NEWEST, buckets=3)
    rows = [(str(at), "1", 5, 1 if at % 3 else -1) for at in range(30)]
    frames = result_frames(hosted, changes(rows), STAMP)
    found = {number: result_table(frame) for number, frame in frames}
    assert set(found) == {0, 1, 2}
    assert sum(each.num_rows for each in found.values()) == 30
    for number, table in found.items():
        assert set(bucket_of([table.column(name) for name in hosted.result.key], 3).tolist()) == {number}
