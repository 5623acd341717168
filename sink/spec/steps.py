"""The steps of a batch in the sink, numbered, and what a death right after each of them leaves behind.

The code reports each step that it has reached to :func:`reached`, which does nothing: tests put a death in its place,
and so kill a process at each step by name. Whatever is left behind, the repeated batch brings the table to the same
rows; files that no commit names are orphans, which no reader sees and maintenance removes.
"""

from __future__ import annotations

import enum

__all__ = ["Step", "reached"]


class Step(enum.IntEnum):
    """A step that is done. Those before `LOOKED` happen in tasks, many at once; the others beside the driver."""

    READ = 1
    """The table was read as it is when the batch begins. Leaves nothing."""
    DECIDED = 2
    """Rows of a bucket met the table's, and it is known which are newer. Leaves nothing of this bucket."""
    STAGED = 3
    """A file is written. Leaves orphans: it, and those of other buckets and tasks."""
    HANDED_OVER = 4
    """All of a task is staged and said to the commit. Leaves orphans."""
    LOOKED = 5
    """The commit knows the query's id and the table, which it has made if there was none. Leaves orphans, maybe an
    empty table.
    """
    NEW = 6
    """The batch is not in the table, and the table goes on from what this query has committed. Leaves orphans."""
    CHECKED = 7
    """The rows that the tasks merged with are still the table's. Leaves orphans."""
    MERGED_AGAIN = 8
    """Buckets that came in several tasks, or lie in other files by now, are one file each. Leaves orphans."""
    LISTED = 9
    """The list of the tombstones' files is written. Leaves orphans, the list among them."""
    MARKED = 10
    """The deletion vectors are written, where rows are marked as dead (`engine=vectors`). Leaves orphans, theirs among
    them.
    """
    COMMITTED = 11
    """Delta's commit is made: the batch is in the table, whole. Leaves what it replaced, and orphans of the attempt."""
    CLEARED = 12
    """What the commit does not name is removed. Leaves a checkpoint that does not know of the commit yet; the repeat
    tells it.
    """
    REMEMBERED = 13
    """The checkpoint knows which commit was its last. Leaves nothing but a batch that Spark has not noted, and repeats.
    """
    COMPACTED = 14
    """The buckets that have become the worst to read are written anew, where rows are marked as dead. Leaves as before;
    what was not come to waits for the next commit.
    """
    MAINTAINED = 15
    """What is due of the table's maintenance is done. Leaves as before; what maintenance had not come to waits for the
    next time.
    """
    PUT_OUT = 16
    """Late and conflicting rows are in the tables that were declared for them. Leaves as before."""
    MEASURED = 17
    """The table of metrics is caught up. Leaves as before. Next Spark notes the batch in its own log of commits."""


def reached(step: Step) -> None:
    """Mark a step as done."""
    del step
