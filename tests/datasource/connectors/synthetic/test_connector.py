"""Synthetic feeds: the same rows however they are cut, and the distributions that were asked for."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.malformed_rows import NoneExpected

from upstream.conf.errors import CheckpointError, OptionError, SchemaError
from upstream.conf.options import parse_options
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.connectors.synthetic import (
    FeedPoint,
    Recipe,
    SyntheticConnector,
    SyntheticOptions,
    SyntheticStream,
)
from upstream.datasource.connectors.synthetic.stream import NEVER_US, Burst, RateProfile

NOW_US = 1_700_000_000_000_000
SECOND = 1_000_000


def made(connector, step, columns=None):
    """All rows of a step with their feed, number and arrival."""
    tables = []
    for part in step.ranges:
        seen = 0
        for chunk in connector.read(part, columns, NoneExpected()):
            assert chunk.index == seen
            seen += chunk.rows.num_rows
            feed = pa.array([part.feed] * chunk.rows.num_rows, pa.string())
            tables.append(chunk.rows.append_column("arrival", pa.array(chunk.arrival_us)).append_column("feed", feed))
        assert seen == part.span
    return pa.concat_tables(tables) if tables else None


def frozen(schema=None, **given):
    """A connector that has all that there is, and its one step."""
    connector = SyntheticConnector(options(**given))
    if schema is not None:
        connector.fix_schema(schema)
    connector.freeze(NOW_US)
    return connector, connector.advance(None, NOW_US, Limit())


def by_feed(table):
    feeds = sorted(set(table["feed"].to_pylist()))
    return {feed: table.filter(pa.compute.equal(table["feed"], feed)).combine_chunks() for feed in feeds}


def options(**given):
    return parse_options({name: str(value) for name, value in given.items()}, [SyntheticOptions])[0]


RECIPES = st.builds(
    Recipe,
    seed=st.integers(0, 1 << 40),
    rows_per_second=st.sampled_from([0.5, 100.0, 123456.7, 1e9]),
    keys=st.sampled_from([1, 7, 5000]),
    skew=st.sampled_from([0.0, 0.9, 2.5]),
    take_turns=st.booleans(),
    at_random=st.booleans(),
    burst=st.sampled_from([None, Burst(SECOND, 10 * SECOND, 5.0), Burst(SECOND, 4 * SECOND, 4.0)]),
    disorder=st.sampled_from(["none", "band", "block"]),
    disorder_width_us=st.just(3_200_000),
    feeds=st.integers(1, 3),
    silences=st.sampled_from([(), (((SECOND, 3 * SECOND), (5 * SECOND, None)),)]),
    payload_bytes=st.just(5),
)


def columns_of(stream, start, stop, most=None):
    pieces = [
        (rows.elapsed_us, rows.key(), rows.time_us(), rows.value(), rows.payload())
        for rows in stream.between(start, stop, most)
    ]
    return [np.concatenate(each) for each in zip(*pieces, strict=True)] if pieces else [np.empty(0)] * 5


@settings(deadline=None, max_examples=60)
@given(recipe=RECIPES, steps=st.lists(st.integers(1, 30_000), min_size=1, max_size=8), most=st.integers(100, 9000))
def test_any_cut_gives_the_same_rows(recipe, steps, most):
    whole = SyntheticStream(recipe)
    end = whole.take(FeedPoint(), limit=sum(steps))
    expected = columns_of(whole, FeedPoint(), end)
    parts, place = [], FeedPoint()
    for step in steps:
        stop = SyntheticStream(recipe).take(place, limit=step)
        assert stop.row == min(place.row + step, end.row)
        parts.append(columns_of(SyntheticStream(recipe), place, stop, most))
        place = stop
    assert place == end
    for number, column in enumerate(expected):
        pieces = [part[number] for part in parts if len(part[0])]
        assert np.array_equal(np.concatenate(pieces) if pieces else column[:0], column)
    arrivals = expected[0]
    assert len(arrivals) == end.row
    assert (np.diff(arrivals) >= 0).all()


@settings(deadline=None, max_examples=60)
@given(recipe=RECIPES, data=st.data())
def test_what_has_come_is_what_arrived_by_then(recipe, data):
    stream = SyntheticStream(recipe)
    horizon = stream.take(FeedPoint(), limit=40_000)
    arrivals = columns_of(stream, FeedPoint(), horizon)[0]
    if not len(arrivals):
        return
    until = data.draw(st.integers(0, int(arrivals[-1]) - 1) if arrivals[-1] > 0 else st.just(0))
    place = stream.take(FeedPoint(), until)
    if place.row < horizon.row:
        assert place.row == (arrivals <= until).sum()
    again = stream.take(place, until)
    assert again == place
    assert stream.take(place, max(until - SECOND, 0)) == place
    limited = stream.take(FeedPoint(), until, 1000)
    assert limited.row == min(place.row, 1000)


def drawn(limit=None, until=None, **recipe):
    """The columns of a feed: elapsed times, keys, event times, values, payloads."""
    stream = SyntheticStream(Recipe(**{"seed": 3, "keys": 1, **recipe}))
    return columns_of(stream, FeedPoint(), stream.take(FeedPoint(), until, limit))


def test_values_do_not_change_between_releases():
    stream = SyntheticStream(Recipe(seed=7, rows_per_second=1000, keys=50, skew=0.9, at_random=True))
    rows = next(stream.between(FeedPoint(3, 0, 0), FeedPoint(3, 4, 4)))
    assert rows.elapsed_us.tolist() == [12289096, 12289366, 12291013, 12291153]
    assert rows.key().tolist() == [18, 0, 8, 1]
    assert rows.value().round(6).tolist() == [0.120594, 0.02489, 0.132339, 0.653265]


def test_constant_arrivals_are_evenly_spaced_and_keys_take_turns():
    assert len(drawn(until=0, rows_per_second=10)[0]) == 1
    assert len(drawn(until=999_999, rows_per_second=10)[0]) == 10
    arrivals, keys, *_ = drawn(10_000, rows_per_second=10, keys=7, take_turns=True)
    assert np.array_equal(arrivals, np.arange(10_000) * 100_000)
    assert np.array_equal(keys, np.arange(10_000) % 7)


def test_poisson_arrivals():
    arrivals = drawn(until=1000 * SECOND, rows_per_second=1000, at_random=True)[0]
    assert abs(len(arrivals) - 1_000_000) < 5 * 1000
    gaps = np.diff(arrivals)
    assert gaps.mean() == pytest.approx(1000, rel=0.01)
    assert gaps.std() == pytest.approx(1000, rel=0.01)
    per_10_ms = np.bincount(arrivals // 10_000)
    assert per_10_ms.var() / per_10_ms.mean() == pytest.approx(1, rel=0.03)
    per_slot_seconds = np.bincount(arrivals // (50 * SECOND), minlength=20)[:20]  # longer than a slot
    assert per_slot_seconds.std() == pytest.approx(50_000**0.5, rel=0.5)


def test_feeds_columns_and_seeds_are_independent():
    def values(seed, feed):
        stream = SyntheticStream(Recipe(seed=seed, rows_per_second=1000, keys=1 << 20, feeds=2), feed)
        parts = columns_of(stream, FeedPoint(), stream.take(FeedPoint(), limit=50_000))
        return [parts[1] / (1 << 20), parts[3]]

    columns = [*values(0, 0), *values(0, 1), *values(1, 0)]
    assert (np.abs(np.corrcoef(columns) - np.eye(len(columns))) < 0.03).all()


def test_bursts_keep_the_mean():
    burst = Burst(SECOND, 10 * SECOND, 6.0)
    arrivals = drawn(until=1000 * SECOND, rows_per_second=1000, at_random=True, burst=burst)[0]
    assert len(arrivals) == pytest.approx(1_000_000, rel=0.01)
    assert (arrivals % (10 * SECOND) < SECOND).mean() == pytest.approx(0.6, abs=0.01)


def test_profile_never_runs_backwards():
    profile = RateProfile(3.7, Burst(7, 1001, 143.0), [(0, 5), (1000, 2000), (10_000_000, None)])
    elapsed = profile.elapsed_us(np.linspace(0, 100, 100_001))
    assert (np.diff(elapsed) >= 0).all()
    assert elapsed[0] == 5
    assert elapsed[-1] == NEVER_US
    assert not ((elapsed >= 1000) & (elapsed < 2000)).any()


def test_zipf_shares():
    keys = drawn(1_000_000, rows_per_second=1, keys=1000, skew=0.9)[1]
    shares = np.arange(1, 1001) ** -0.9
    expected = shares / shares.sum() * 1_000_000
    assert (np.abs(np.bincount(keys, minlength=1000) - expected) < 5 * expected**0.5).all()


def test_explicit_rates():
    table = made(*frozen(rates="0,10,30,0,60,0", rows=100_000))
    counts = np.bincount(table["key"].to_numpy(), minlength=6)
    assert counts[[0, 3, 5]].tolist() == [0, 0, 0]
    assert counts[[1, 2, 4]] / 1000 == pytest.approx([10, 30, 60], abs=1)
    assert table["arrival"].to_numpy()[[0, -1]].tolist() == [NOW_US - 999_990_000, NOW_US]


def test_band_disorder_is_within_its_width():
    arrivals, _, times, *_ = drawn(100_000, rows_per_second=1000, disorder="band", disorder_width_us=3_200_000)
    late = arrivals - times
    assert late.min() >= 0
    assert late.max() <= 3_200_000
    assert late.mean() == pytest.approx(1_600_000, rel=0.01)


def test_block_disorder_is_disjoint_ascending_blocks():
    width = 490 * SECOND
    arrivals, _, times, *_ = drawn(
        50_000, rows_per_second=10, at_random=True, disorder="block", disorder_width_us=width
    )
    assert np.array_equal(times // width, arrivals // width - 1)
    behind = np.maximum.accumulate(times) - times
    assert 0.9 * width < behind.max() < width
    within = (times[arrivals // width == 3] % width) / width
    assert abs(np.corrcoef(np.arange(len(within)), within)[0, 1]) < 0.1


def test_idle_feeds_and_an_end():
    given_options = options(
        rowsPerSecond=300, numFeeds=3, rows=3001, idleFeeds="1@2s-4s, 2@3s", payloadBytes=3, keyType="string"
    )
    connector = SyntheticConnector(given_options)
    position, feeds, ended = None, [], frozenset()
    for second in range(16):
        step = connector.advance(position, NOW_US + second * SECOND, Limit())
        position = step.position
        table = made(connector, step)
        feeds.append({feed: rows.num_rows for feed, rows in by_feed(table).items()} if table else {})
        ended = step.ended
    assert feeds[0] == {"synthetic-0": 1, "synthetic-1": 1, "synthetic-2": 1}
    assert feeds[3] == {"synthetic-0": 100, "synthetic-2": 99}
    assert feeds[4] == {"synthetic-0": 100, "synthetic-1": 1}
    assert feeds[15] == {}
    total = [sum(each.get(f"synthetic-{number}", 0) for each in feeds) for number in range(3)]
    assert total == [1001, 1000, 300]
    assert ended == {"synthetic-0", "synthetic-1"}
    assert connector.advance(position, NOW_US + 16 * SECOND, Limit()).position == position


@settings(deadline=None, max_examples=25)
@given(
    limits=st.lists(st.integers(1, 20_000), min_size=1, max_size=6),
    gaps=st.lists(st.integers(0, 5 * SECOND), min_size=6, max_size=6),
    feeds=st.integers(1, 4),
)
def test_steps_are_exact_and_replay(limits, gaps, feeds):
    chosen = options(
        rowsPerSecond=5000, numFeeds=feeds, arrivals="poisson", disorder="band", disorderWidth="1s", skew=0.5
    )
    connector = SyntheticConnector(chosen)
    first = connector.advance(None, NOW_US, Limit())
    position, now, parts = first.position, NOW_US, [made(connector, first)]
    for limit, gap in zip(limits, gaps, strict=False):
        now += gap
        again = pickle.loads(pickle.dumps(connector))
        available = sum(part.span for part in again.advance(position, now, Limit()).ranges)
        step = again.advance(position, now, Limit(rows=limit))
        assert sum(part.span for part in step.ranges) == min(limit, available)
        parts.append(made(again, step))
        position = step.position
    parts.append(made(connector, connector.advance(position, now, Limit())))
    at_once = [parts[0], made(connector, connector.advance(first.position, now, Limit()))]
    whole, expected = ([part for part in each if part is not None] for each in (parts, at_once))
    if expected:
        assert by_feed(pa.concat_tables(whole)) == by_feed(pa.concat_tables(expected))
        assert max(pa.concat_tables(whole)["arrival"].to_pylist()) <= now


def test_a_huge_rate_under_a_limit_is_exact_and_quick():
    connector = SyntheticConnector(options(rowsPerSecond=1e12, arrivals="poisson"))
    position = connector.advance(None, NOW_US, Limit(rows=10)).position
    step = connector.advance(position, NOW_US + 3600 * SECOND, Limit(rows=100_001))
    assert sum(part.span for part in step.ranges) == 100_001
    assert connector.advance(position, NOW_US + SECOND, Limit(bytes=2400)).ranges[0].span == 100
    assert connector.backlog(step.position, NOW_US + SECOND)["rows"] > 9e11


def test_the_start_is_kept_until_it_is_in_a_position():
    connector = SyntheticConnector(options(rowsPerSecond=2, arrivals="poisson", seed=5))
    steps = [connector.advance(None, NOW_US + second * SECOND, Limit()) for second in range(20)]
    assert {step.position["origin_us"] for step in steps} == {NOW_US}
    assert steps[-1].ranges


def test_columns_are_read_alone_and_wide_ones_in_small_chunks():
    connector, step = frozen(rows=100, payloadBytes=8, startTime="2024-01-01T00:00:00Z")
    table = made(connector, step)
    assert made(connector, step, ["time"])["time"] == table["time"]
    assert made(connector, step, []).num_rows == 100
    assert table["time"][0].as_py().isoformat() == "2024-01-01T00:00:00+00:00"
    assert step.ended == {"synthetic-0"}
    assert table.schema.names[:4] == ["key", "time", "value", "payload"]
    assert {len(value) for value in table["payload"].to_pylist()} == {8}
    wide, step = frozen(rows=40, payloadBytes=1 << 20)
    chunks = wide.read(step.ranges[0], None, NoneExpected())
    assert [(chunk.index, chunk.rows.num_rows) for chunk in chunks] == [(0, 16), (16, 16), (32, 8)]


def test_a_schema_selects_columns_and_must_fit():
    connector, step = frozen(pa.schema([("value", pa.float64()), ("key", pa.int64())]), rows=3)
    assert made(connector, step).schema.names[:2] == ["value", "key"]
    with pytest.raises(SchemaError, match="no column 'key' of type string"):
        connector.fix_schema(pa.schema([("key", pa.string())]))


def test_other_options_and_an_endless_batch_are_refused():
    position = SyntheticConnector(options(seed=1)).advance(None, NOW_US, Limit()).position
    with pytest.raises(CheckpointError, match="other options"):
        SyntheticConnector(options(seed=2)).advance(position, NOW_US, Limit())
    with pytest.raises(OptionError, match="without `rows`"):
        frozen(seed=2)


@pytest.mark.parametrize(
    ("given_options", "parts"),
    [
        ({"rates": "1,2", "rowsPerSecond": 3, "keyOrder": "roundrobin", "disorder": "band", "idleFeeds": "4@1s"},
         ["both rates and rowsPerSecond", "unequal rates", "without disorderWidth", "names feed 4"]),
        ({"idleFeeds": "0@1s-3s,0@2s-5s"}, ["overlap"]),
        ({"arrivals": "bursty", "burstFactor": 11}, ["burstFactor=11 is above"]),
        ({"idleFeeds": "0@5s-1s"}, ["idleFeeds"]),
    ],
)  # fmt: skip
def test_contradictions_are_reported_together(given_options, parts):
    with pytest.raises(OptionError) as caught:
        SyntheticConnector(options(**given_options))
    assert [part for part in parts if part not in str(caught.value)] == []
