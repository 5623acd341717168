"""The keys that wait longest in a queue, on request."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf import clock
from ...conf.errors import OptionError
from ...core.feedback.checkpoint_layout import queue_folder
from ...core.feedback.queue_reports import QueueReport
from ...core.feedback.report_files import read_reports
from ...core.pushdown.ipc_frames import from_frame, to_frame
from ...core.rows.system_column import TIMESTAMP
from ..runtime.row_pages import RowPages
from .queue import UpdateQueue

__all__ = ["most_stale", "most_stale_here"]

Int64s = npt.NDArray[np.int64]


def most_stale(
    checkpoint_location: str | os.PathLike[str], k: int = 10, *, queue: int = 0, now_us: int | None = None
) -> pa.Table:
    """Return the keys that have waited longest in a query's queue, as its last batch left them, the stalest first.

    Parameters
    ----------
    checkpoint_location
        The query's, which may be running. Its queue must have ``most_stale=`` of at least `k`.
    k
        How many keys; at least 1.
    queue
        Which of the query's queues, counted from 0 in the order in which rows pass them.
    now_us
        The clock, in microseconds since the epoch; the real one unless given.

    Returns
    -------
    pyarrow.Table
        The key's columns, ``first_arrival`` of its oldest update, ``age_s`` since then, and ``covered``, the updates
        that wait.

    Raises
    ------
    OptionError
        The queue reports fewer than `k` keys, or there is none at this checkpoint.

    Examples
    --------
    >>> fresh = stream.queue(most_stale=10, shards=2).write("fresh", checkpoint="fresh_cp")
    >>> query = fresh.trigger(availableNow=True).start()
    >>> query.awaitTermination()
    >>> us.most_stale("fresh_cp", 10).column_names
    ['vehicle_id', 'first_arrival', 'age_s', 'covered']
    """
    folder = queue_folder(os.fspath(checkpoint_location), queue)
    reports = read_reports(folder, QueueReport)
    if not reports:
        raise OptionError(
            f"no queue has reported to {folder}",
            expected="the checkpoint of a query with UpdateStream.queue(…) that has run a batch",
        )
    tables = [from_frame(base64.b64decode(each.most_stale)) for each in reports if each.most_stale is not None]
    silent = not tables or any(each.waiting and each.most_stale is None for each in reports)
    limit = 0 if silent else min(int(table.schema.metadata[b"k"]) for table in tables)
    if not 1 <= k <= limit:
        raise OptionError(
            f"k={k}, and each shard of the queue reports {limit} keys",
            expected="at least 1, and no more than the queue reports",
            hint=f"give .queue(most_stale={max(k, 1)}, …); it takes effect with the next start of the query",
        )
    found = pa.concat_tables(tables).replace_schema_metadata(None)
    # By number: a column of the key may have the same name.
    first = found.num_columns - 2
    found = found.take(pc.sort_indices(found.column(first))[:k])
    now = clock.now_us() if now_us is None else now_us
    age = np.maximum(now - found.column(first).cast(pa.int64()).to_numpy(), 0) / 1e6
    return found.add_column(first + 1, "age_s", pa.array(age))


def most_stale_here(queue: UpdateQueue, rows: RowPages, key: Sequence[str], k: int) -> str:
    """Return the `k` stalest keys of one shard, for its report. Only the pages that hold their rows are read."""
    waiting = queue.locations
    cells = queue.cells(waiting)
    order = np.argsort(cells.first_arrival, kind="stable")
    # Where a policy keeps several rows of a key, only its oldest counts.
    _, first = np.unique(cells.number[order], return_index=True)
    chosen: Int64s = order[np.sort(first)[:k]]
    table = rows.take(waiting[chosen], list(key)).select(list(key))
    table = table.append_column("first_arrival", pa.array(cells.first_arrival[chosen]).cast(TIMESTAMP))
    table = table.append_column("covered", pa.array(cells.covered[chosen]))
    return base64.b64encode(to_frame(table.replace_schema_metadata({"k": str(k)}))).decode()
