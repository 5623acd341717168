"""Streams that queries can name; what they have on real Spark is in test_queries_on_spark.py."""

from typing import Any, get_args

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from upstream.api.definitions import columns_of, definition_of
from upstream.api.stream import UpdateStream
from upstream.conf.errors import OptionError
from upstream.core.rows.key import Key
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.queue.queue import Policy, ShardPlan
from upstream.operators.row_steps import queue
from upstream.plan.nodes import Choice, Filter, IncompleteInput, InputRows, Node, Transform

KEY = Key(("k",))
SCHEMA = pa.schema({"k": pa.string(), "t": pa.timestamp("us", "UTC"), SYSTEM: SYSTEM_TYPE})


def test_what_is_no_stream_is_refused():
    with pytest.raises(OptionError, match="stream='feed/'"):
        definition_of("buses", "feed/", updates=True)


def rows(left_out: IncompleteInput | None = None) -> Node:
    frame: Any = None
    return InputRows(KEY, "t", from_arrow_schema(SCHEMA), left_out, frame=frame)


def queued(before: Node, policy: Policy = "in-place") -> Node:
    return queue(before, ShardPlan(KEY, "t", 2, policy), None, None, None)


def after(before: Node, step: Choice | Filter) -> Node:
    return Transform(before.key, before.time, before.schema, before.left_out, inputs=(before,), step=step)


def newest(plan: Node, *, updates: bool = True) -> bool:
    """Return whether queries know that the stream of a plan has newest rows alone."""
    stream = object.__new__(UpdateStream)
    stream.plan = plan
    return definition_of("s", stream, updates=updates).newest


def test_a_stream_has_newest_rows_alone_where_each_missing_row_has_a_newer_one():
    lossy = IncompleteInput("a step drops rows", "leave it out")
    superseding = IncompleteInput("a source coalesces", "do not", newest=True)
    found = {policy for policy in get_args(Policy) if newest(queued(rows(), policy))}
    assert found == {"fifo", "in-place", "linecutting", "auto"}
    assert newest(rows(superseding))
    assert newest(queued(rows(superseding)))
    assert not newest(queued(rows(lossy)))
    assert not newest(rows())
    assert newest(after(after(queued(rows()), Filter("k > 'a'", "delete")), Choice(("k",))))
    # A row that passes may have been superseded by one that does not.
    assert not newest(after(queued(rows()), Filter("k > 'a'", "keep")))
    with pytest.raises(OptionError, match="drops rows that a newer one supersedes"):
        newest(queued(rows()), updates=False)


def test_an_event_time_of_dates_or_numbers_is_a_timestamp_in_queries():
    dated = SCHEMA.set(1, pa.field("t", pa.date32())).insert(2, pa.field("due", pa.date32()))
    found = columns_of(dated, "t", None)
    assert found == pa.schema({"k": pa.string(), "t": pa.timestamp("us", "UTC"), "due": pa.date32()})
    assert columns_of(SCHEMA, "t", None) == SCHEMA.remove(2)
    for kind in (pa.int64(), pa.int32(), pa.float64()):
        numbered = SCHEMA.set(1, pa.field("t", kind))
        assert columns_of(numbered, "t", "epoch_s").field("t").type == pa.timestamp("us", "UTC")
        assert columns_of(numbered, "t", None) == numbered.remove(2)
    log = SCHEMA.set(1, pa.field("_position", pa.int64()))
    assert columns_of(log, "_position", "epoch_us") == log.remove(2), "a position in a log is no time"
