"""Rows, punctuation and plans of windows by group."""

import numpy as np
import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.aggregates.functions import count
from upstream.operators.grouped.plan import GroupWindowPlan
from upstream.operators.runtime.feeds import ENDED, punctuation_rows
from upstream.operators.windows.shards.plan import WindowPlan

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def plan(windows, lateness=0, newest="window"):
    window = WindowPlan(
        ("g",), "t", "epoch_us", "UTC", windows, {"n": count()}, "all", "paned", lateness, 1, SCHEMA
    )  # fmt: skip
    return GroupWindowPlan(window, ("k",), "t", newest)


def rows(*times):
    n = len(times)
    system = system_array(source="f", seq=np.arange(n), arrival_us=np.arange(n))
    columns = [pa.array(range(n), pa.int64()), pa.array(["x"] * n), pa.array(times, pa.int64()), system]
    return pa.table(columns, schema=SCHEMA)


def until(**bounds):
    at = pa.array([None if bound == ENDED else bound for bound in bounds.values()], pa.int64())
    return punctuation_rows(SCHEMA, list(bounds), 0, t=at).cast(SCHEMA)
