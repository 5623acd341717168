"""What a table keeps of each key: the pure rule, and tables written by it, against a plain model."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.splits import split

from upstream.conf.errors import MalformedRowError, OptionError, TableError
from upstream.sink.spec.history import History, newest_of_each

Row = tuple[int, int, int, bool]
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3), st.booleans()), max_size=40)


def model(rows: list[Row], count: int) -> set[tuple[int, int, int]]:
    """Key, time and arrival of each row that stays."""
    stays: set[tuple[int, int, int]] = set()
    for key in {row[0] for row in rows}:
        mine = [row for row in rows if row[0] == key]
        deleted = max(((time, seq) for _, time, seq, gone in mine if gone), default=(-100, 0))
        last = {time: (time, seq) for _, time, seq, gone in sorted(mine, key=lambda row: row[2]) if not gone}
        newest = sorted(each for each in last.values() if each > deleted)[-count:]
        stays |= {(key, *each) for each in newest}
    return stays


@given(rows=ROWS, count=st.integers(1, 4), data=st.data())
def test_the_rule_is_what_a_plain_model_says(rows, count, data):
    numbered = [(key, time, seq, gone) for seq, (key, time, gone) in enumerate(rows)]
    shuffled = data.draw(st.permutations(numbered))
    codes, time, seq = (np.array([row[at] for row in shuffled], dtype=np.int64) for at in range(3))
    deleted = np.array([row[3] for row in shuffled], dtype=np.bool_)
    kept = newest_of_each(codes, time, seq, deleted, count)
    assert {row[:3] for row, stays in zip(shuffled, kept.stays, strict=True) if stays and not row[3]} == model(
        numbered, count
    )
    deletions = [row for row, stays in zip(shuffled, kept.stays, strict=True) if stays and row[3]]
    assert sorted(deletions) == sorted(
        max((row for row in numbered if row[3] and row[0] == key), key=lambda row: row[1:3])
        for key in {row[0] for row in numbered if row[3]}
    )
    for one, other in kept.ties.tolist():
        assert shuffled[one][:2] == shuffled[other][:2]
        assert shuffled[one][2] > shuffled[other][2]
    assert len(kept.ties) == len(rows) - len({row[:2] for row in rows})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows=ROWS, count=st.integers(2, 3))
def test_a_small_history_in_any_order(new_sink, data, rows, count):
    numbered = [(key, time, seq, gone) for seq, (key, time, gone) in enumerate(rows)]
    sink = new_sink(history=f"latest {count}", buckets="2")
    for batch_id, batch in enumerate(split(data, data.draw(st.permutations(numbered)))):
        tasks = [[as_batch(sink, part)] for part in split(data, batch)]
        summary = sink.batch(batch_id, *tasks)
        assert sink.batch(batch_id, *tasks) is None
        if summary is not None:
            assert summary.updates == summary.applied + summary.superseded
            assert summary.keys == sink.table().num_rows
    if rows:
        found = sink.table()
        held = zip(*(found.column(name).to_pylist() for name in ("k", "t", "v")), strict=True)
        assert sorted(held) == sorted((key, time, str(seq)) for key, time, seq in model(numbered, count))


def as_batch(sink: Any, rows: list[Row]) -> pa.RecordBatch:
    marks = np.array([gone for *_, gone in rows], dtype=np.bool_)
    stamped = [(key, time, str(seq)) for key, time, seq, _ in rows]
    return sink.rows(stamped, seq=[seq for _, _, seq, _ in rows], deleted=marks)


def test_counts_of_a_small_history(make_sink):
    sink = make_sink(history="latest 2")
    first = sink.batch(0, [sink.rows([(1, 1, "a"), (1, 2, "b"), (1, 3, "c"), (2, 1, "x")])])
    assert (first.applied, first.superseded, first.keys) == (3, 1, 3)
    again = sink.batch(1, [sink.rows([(1, 1, "late"), (1, 3, "C")], seq=10)])
    assert (again.applied, again.older, again.conflicts, again.keys) == (1, 1, 1, 3)
    gone = sink.batch(2, [as_batch(sink, [(1, 2, 20, True), (3, 5, 21, True)])])
    assert (gone.applied, gone.deleted, gone.absent, gone.keys) == (1, 1, 1, 2)
    late = sink.batch(3, [sink.rows([(1, 1, "later still"), (3, 4, "older")], seq=30)])
    assert (late.applied, late.older) == (0, 2)


@pytest.mark.parametrize("options", [{}, {"key": "", "eventTime": ""}])
def test_all_rows_with_and_without_a_key(make_sink, options):
    sink = make_sink(history="all", **options)
    rows = [(1, 5, "a"), (1, 5, "a"), (2 if "key" not in options else None, 4, "b")]
    for batch_id in (0, 1):
        first = sink.batch(batch_id, [sink.rows(rows)], [sink.rows(rows[:1])])
        assert sink.batch(batch_id, [sink.rows(rows)]) is None
        assert (first.rows, first.applied, first.superseded, first.conflicts) == (4, 4, 0, 0)
    assert sorted(sink.table().column("v").to_pylist()) == ["a"] * 6 + ["b"] * 2
    assert sink.live_files() == sink.files()
    with pytest.raises(MalformedRowError, match="delete their keys"):
        sink.batch(2, [sink.rows(rows, deleted=[False, False, True])])


def test_another_writer_beside_all_rows(make_sink):
    one, two = (make_sink(history="all", query_id=f"query-{number}") for number in (1, 2))
    one.batch(0, [one.rows([(1, 1, "a")])])
    results = one.tasks([one.rows([(1, 2, "b")])])
    two.batch(0, [two.rows([(1, 3, "c")])])
    one.commit(results, 1)
    assert sorted(one.table().column("v").to_pylist()) == ["a", "b", "c"]


def test_a_query_does_not_change_what_a_table_keeps(make_sink):
    make_sink().batch(0, [make_sink().rows([(1, 1, "a")])])
    with pytest.raises(TableError, match=r"history unset, this query has latest 3.*`upstream set-history`"):
        make_sink(history="latest 3").writer()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"history": "latest 2", "eventTime": ""}, "history=latest 2 needs eventTime"),
        ({"history": "latest 2", "sequenceBy": "_arrival"}, "or sequenceBy with columns"),
        ({"history": "latest 0"}, "'latest N' or all"),
        ({"history": "newest"}, "is not latest"),
        ({"history": "all", "deleteWhen": "v"}, "deleteWhen needs a history other than all"),
        ({"history": "all", "deadLetterRows": "conflicts"}, "deadLetterRows=conflicts needs eventTime"),
        ({"key": ""}, "missing option: key"),
    ],
)
def test_options_that_do_not_go_together(make_sink, options, message):
    with pytest.raises(OptionError, match=message):
        make_sink(**options).writer()


def test_a_history_reports_itself():
    given_texts = ("Latest", "latest 1", "latest  12", " ALL")
    assert [str(History.parse(text)) for text in given_texts] == ["latest", "latest", "latest 12", "all"]


def test_time_that_does_not_decide(make_sink):
    sink = make_sink(sequenceBy="_arrival")
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b")])])
    summary = sink.batch(1, [sink.rows([(1, 5, "later"), (2, None, "timeless")], seq=10), sink.punctuation(7)])
    assert sink.latest() == {1: (5, "later"), 2: (None, "timeless")}
    assert (summary.applied, summary.conflicts, summary.low_watermark) == (2, 0, 7)
    # A table whose time does not decide is the same as one without a time: one query may name it and another not.
    other = make_sink(eventTime="", query_id="query-2")
    other.batch(0, [other.rows([(1, 1, "last")])])
    assert other.latest()[1] == (1, "last")
