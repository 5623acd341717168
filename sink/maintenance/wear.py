"""The choice of buckets to rewrite after a commit, from row and file counts alone."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...delta_format.latest_table import BUCKET

if TYPE_CHECKING:
    from ...delta_format.log import LogReplay

__all__ = ["FILE", "SHARE", "WORTH", "Wear", "wear_of", "worst_buckets"]

SHARE = 10
"""Of so many live rows at most one is dead."""
FILE = 4096
"""A file beyond a bucket's first two counts as so many dead rows. The second is that of the fresh rows: the next batch
would make it again.
"""
WORTH = 10_000
"""A bucket with fewer rows is read in no time, whatever it is like."""


class Wear(NamedTuple):
    """A bucket's row and file counts, which decide the cost of reading it."""

    live: int
    dead: int  # rows that are marked as dead
    files: int

    @property
    def burden(self) -> int:
        """Return the cost of reading beyond the live rows, in rows."""
        return self.dead + FILE * max(self.files - 2, 0)


def worst_buckets(worn: Mapping[int, Wear]) -> list[int]:
    """Return the buckets to rewrite, the worst first, and as few as suffice.

    Each is at least as bad as the whole table, so the writes follow the wear: in the long run at most
    :data:`SHARE` rows for each dead one, and about half as many if all buckets wear alike.
    """
    counted = {bucket: wear for bucket, wear in worn.items() if wear.live + wear.dead >= WORTH}
    burden = sum(wear.burden for wear in counted.values())
    most = sum(wear.live for wear in counted.values()) // SHARE
    chosen: list[int] = []
    for bucket in sorted(counted, key=lambda each: (-counted[each].burden / max(counted[each].live, 1), each)):
        if burden <= most:
            break
        chosen.append(bucket)
        burden -= counted[bucket].burden
    return chosen


def wear_of(log: LogReplay) -> dict[int, Wear]:
    """Return the wear of each bucket by the table's log; files without a row count there count as empty."""
    vectors = log.vectors()
    worn: dict[int, Wear] = {}
    for path, add in log.files.items():
        bucket = int(add["partitionValues"][BUCKET])
        dead = vectors[path].cardinality if path in vectors else 0
        before = worn.get(bucket, Wear(0, 0, 0))
        live = max(_rows(add.get("stats") or "{}") - dead, 0)
        worn[bucket] = Wear(before.live + live, before.dead + dead, before.files + 1)
    return worn


# The statistics of a file stay as they are from the first row on that is marked.
@functools.lru_cache(maxsize=4096)
def _rows(stats: str) -> int:
    try:
        return int(json.loads(stats).get("numRecords") or 0)
    except ValueError:
        return 0
