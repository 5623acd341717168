"""Replay: a recording comes out in file order, at its pace, the same however it is cut."""

import gzip
import json
import pickle
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.malformed_rows import Reported

from upstream.conf.errors import FeedChangedError, OptionError
from upstream.conf.options import parse_options
from upstream.core.rows.event_times import NO_TIME
from upstream.datasource.connectors.contract import Advance, Chunk, Connector, Limit, Position, Range
from upstream.datasource.connectors.replay import ReplayConnector, ReplayOptions
from upstream.datasource.connectors.replay.recording import ROWS, Pace, elapsed_by_time
from upstream.datasource.options import SourceOptions
from upstream.datasource.registry import CONNECTORS, parse_source_options

NOW_US = 1_700_000_000_000_000
SECOND = 1_000_000
HOUR = 3600 * SECOND


class Lines(Connector):
    """Rows of numbers in ranges of ten lines, of which some are malformed."""

    name = "lines"

    def __init__(self, values: Sequence[int | str]) -> None:
        self.values = list(values)

    def schema(self) -> pa.Schema:
        return pa.schema([("at", pa.int64()), ("place", pa.int64())])

    def fix_schema(self, schema: pa.Schema) -> None:
        assert schema == self.schema()

    def feeds(self, position: Position | None) -> Sequence[str]:
        return ["lines"]

    def freeze(self, now_us: int) -> None:
        pass

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        starts = range(0, len(self.values), 10)
        content = hash(tuple(self.values))
        return Advance({}, [Range("lines", {"from": start, "content": content}, 10, now_us) for start in starts])

    def read(self, part: Range, columns: Sequence[str] | None, malformed) -> Iterator[Chunk]:
        start = part.place["from"]
        lines = self.values[start : start + 10]
        for low in range(0, len(lines), 4):
            good = [(low + n, value) for n, value in enumerate(lines[low : low + 4]) if isinstance(value, int)]
            for bad in lines[low : low + 4]:
                if not isinstance(bad, int):
                    malformed.report(text=bad, place="lines", line=None, reason="not a number")
            columns_made = [[value for _, value in good], [start + n for n, _ in good]]
            table = pa.Table.from_arrays([pa.array(each, pa.int64()) for each in columns_made], schema=self.schema())
            yield Chunk(
                table if columns is None else table.select(columns), np.array([n for n, _ in good], dtype=np.int64)
            )


def lines(values, **pace):
    pace = pace or {"rows_per_second": 10.0}
    if "speed" in pace:
        pace = {"time": "at", "time_format": "epoch_us", **pace}
    return ReplayConnector(Lines(values), "lines", Pace(**pace))


def played(connector, step, columns=None, reports=None):
    """(place, arrival) of all rows of a step."""
    found = []
    for part in step.ranges:
        seen = -1
        for chunk in connector.read(part, columns, Reported() if reports is None else reports):
            count = chunk.rows.num_rows
            index = chunk.index + np.arange(count) if isinstance(chunk.index, int) else chunk.index
            assert (np.diff(index, prepend=seen) > 0).all()
            assert index.max(initial=0) < max(part.span, 1)
            seen = index[-1] if count else seen
            places = chunk.rows["place"].to_pylist() if "place" in chunk.rows.schema.names else [None] * count
            found += zip(places, chunk.arrival_us.tolist(), strict=True)
    return found


def test_an_even_pace():
    connector = lines(range(25), rows_per_second=10.0)
    first = connector.advance(None, NOW_US, Limit())
    assert played(connector, first) == [(0, NOW_US)]
    step = connector.advance(first.position, NOW_US + 2 * SECOND, Limit(rows=7))
    assert [place for place, _ in played(connector, step)] == list(range(1, 8))
    assert not step.ended
    step = connector.advance(step.position, NOW_US + HOUR, Limit())
    assert played(connector, step)[-1] == (24, NOW_US + 2_400_000)
    assert step.ended == {"lines"}
    after = connector.advance(step.position, NOW_US + 2 * HOUR, Limit())
    assert after.position == step.position
    assert not after.ranges


def test_a_recording_played_at_its_own_times():
    seconds = [100, 101, 99, 103, 103, 102, 110]
    connector = lines([SECOND * each for each in seconds], speed=2.0)
    first = connector.advance(None, NOW_US, Limit())
    step = connector.advance(first.position, NOW_US + HOUR, Limit())
    elapsed = [arrival - NOW_US for _, arrival in played(connector, first) + played(connector, step)]
    assert elapsed == [0, 500_000, 500_000, 1_500_000, 1_500_000, 1_500_000, 5_000_000]
    early = connector.advance(first.position, NOW_US + 1_499_999, Limit())
    assert [place for place, _ in played(connector, early)] == [1, 2]


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.one_of(st.integers(0, 100 * SECOND), st.just("bad")), max_size=80),
    cuts=st.lists(st.tuples(st.integers(0, 20 * SECOND), st.integers(1, 30)), min_size=1, max_size=8),
    speed=st.sampled_from([None, 0.5, 30.0]),
    most_bytes=st.sampled_from([1, 1000, 1 << 20]),
)
def test_any_cut_gives_the_same_rows_and_reports(values, cuts, speed, most_bytes):
    pace = {"rows_per_second": 7.0} if speed is None else {"speed": speed}
    reference = lines(values, **pace)
    origin = reference.advance(None, NOW_US, Limit(rows=1))
    reference.freeze(NOW_US + 10**12)
    before = ROWS.most_bytes
    try:
        ROWS.most_bytes = 1 << 20
        all_reports, some_reports = Reported(), Reported()
        rest = reference.advance(origin.position, NOW_US + 10**12, Limit())
        expected = played(reference, origin, reports=all_reports) + played(reference, rest, reports=all_reports)
        assert [place for place, _ in expected] == [n for n, value in enumerate(values) if value != "bad"]
        assert sorted(all_reports.texts) == ["bad"] * sum(value == "bad" for value in values)
        ROWS.most_bytes = most_bytes
        ROWS._held.clear()
        position, now, found = None, NOW_US, []
        for gap, most in [*cuts, (10**12, 1 << 40)]:
            connector = pickle.loads(pickle.dumps(lines(values, **pace)))
            step = connector.advance(position, now, Limit(rows=most))
            rows = played(connector, step, reports=some_reports)
            assert len(rows) <= most
            assert max((arrival for _, arrival in rows), default=now) <= now
            assert played(connector, step, ["at"]) == [(None, arrival) for _, arrival in rows]
            found += rows
            position, now = step.position, now + gap
        step = connector.advance(position, now, Limit())
        found += played(connector, step, reports=some_reports)
        assert found == expected
        assert sorted(some_reports.texts) == sorted(all_reports.texts)
        assert step.ended == {"lines"}
    finally:
        ROWS.most_bytes = before
        ROWS._held.clear()


def test_times_that_jump_or_are_nothing_but_errors_do_not_stall():
    times = np.array([0, 1, 80_000, 2, 3, NO_TIME // SECOND, 50_000, 51_000, 50_001, 99_999], dtype=np.int64) * SECOND
    times[5] = NO_TIME
    elapsed = elapsed_by_time(times, 10.0, HOUR) * 10 // SECOND
    assert elapsed.tolist() == [0, 1, 1, 2, 3, 3, 3603, 4603, 4603, 8203]
    assert elapsed_by_time(np.full(3, NO_TIME), 1.0, HOUR).tolist() == [0, 0, 0]
    assert elapsed_by_time(np.empty(0, dtype=np.int64), 1.0, HOUR).tolist() == []
    extremes = np.array([NO_TIME + 1, np.iinfo(np.int64).max, NO_TIME + 1, np.iinfo(np.int64).max])
    assert elapsed_by_time(extremes, 1.0, HOUR).tolist() == [0, 0, 0, HOUR]


def test_what_is_there_now_is_the_whole_recording():
    connector = lines(range(25), rows_per_second=10.0)
    connector.freeze(NOW_US)
    step = connector.advance(None, NOW_US, Limit())
    rows = played(connector, step)
    assert rows[0] == (0, NOW_US - 2_400_000)
    assert rows[-1] == (24, NOW_US)
    assert step.ended == {"lines"}


def test_another_recording_is_not_gone_on_with():
    step = lines(range(25)).advance(None, NOW_US, Limit())
    other = lines(range(26))
    with pytest.raises(FeedChangedError, match="not the one"):
        other.advance(step.position, NOW_US + HOUR, Limit())
    with pytest.raises(FeedChangedError, match="not the one"):
        list(other.read(step.ranges[0], None, Reported()))
    with pytest.raises(FeedChangedError, match="another way"):
        lines(range(25), rows_per_second=3.0).advance(step.position, NOW_US + HOUR, Limit())


def test_limits_in_bytes_and_the_backlog():
    connector = lines(range(25))
    position = connector.advance(None, NOW_US, Limit()).position
    step = connector.advance(position, NOW_US + HOUR, Limit(bytes=80))
    assert sum(part.span for part in step.ranges) == 5
    assert connector.advance(position, NOW_US + HOUR, Limit(bytes=1)).ranges[0].span == 1
    assert connector.backlog(step.position, NOW_US + SECOND) == {"rows": 5}


def pace_of(**given):
    common, own = parse_options(given, [SourceOptions, ReplayOptions])
    return own.pace(common)


def test_a_pace_must_be_given():
    assert pace_of(speed="60", eventTime="at", timeZone="CET").speed == 60
    assert pace_of(rowsPerSecond="2").rows_per_second == 2
    for message, *wrong in (
        ("of speed and rowsPerSecond", {}, {"speed": "1", "rowsPerSecond": "2", "eventTime": "at"}),
        ("without recorded event times", {"speed": "1"}, {"speed": "1", "eventTime": "at", "watermark": "arrival"}),
    ):
        for options in wrong:
            with pytest.raises(OptionError, match=message):
                pace_of(**options)


def from_files(**given):
    common, own = parse_source_options({"connector": "replay", **{name: str(value) for name, value in given.items()}})
    return CONNECTORS["replay"].make(own, common)


def rows_of(connector, step):
    tables = []
    for part in step.ranges:
        for chunk in connector.read(part, None, Reported()):
            tables.append(chunk.rows.append_column("arrival", pa.array(chunk.arrival_us)))
    return pa.concat_tables(tables)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl", "parquet"])
def test_files_of_any_kind(tmp_path, kind):
    table = pa.table({"key": ["a", "b", "a", "c"], "ms": [1000, 1500, 1200, 3000], "value": [0.5, 1.5, 2.5, 3.5]})
    path = tmp_path / f"recorded.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in table.to_pylist()))  # no line end at the end
    else:
        lines = "key,ms,value\n" + "\n".join(",".join(map(str, row.values())) for row in table.to_pylist())
        path.write_bytes(gzip.compress(lines.encode()) if kind == "csv.gz" else lines.encode())
    connector = from_files(path=path, eventTime="ms", timeFormat="epoch_ms", speed=2)
    assert connector.feeds(None) == [str(path)]
    first = connector.advance(None, NOW_US, Limit())
    again = pickle.loads(pickle.dumps(connector))
    step = again.advance(first.position, NOW_US + HOUR, Limit())
    found = pa.concat_tables([rows_of(connector, first), rows_of(again, step)])
    assert found.drop_columns("arrival").to_pylist() == table.to_pylist()
    assert [arrival - NOW_US for arrival in found["arrival"].to_pylist()] == [0, 250_000, 250_000, 1_000_000]
    assert step.ended == {str(path)}
    connector = from_files(path=path, eventTime="ms", timeFormat="epoch_ms", speed=3)
    with pytest.raises(FeedChangedError, match="not the one"):
        connector.advance(first.position, NOW_US + HOUR, Limit())
