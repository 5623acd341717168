"""The steps of a batch in the sink, at each of which tests kill a process."""

from __future__ import annotations

import enum


class CommitStep(enum.IntEnum):
    """A finished step, and the files that a death right after it leaves behind.

    Steps before `LOOKED` happen in tasks, many at once; the others beside the driver. In each case the repeated
    batch brings the table to the same rows. Files that no commit names are orphans: no reader sees them, and
    maintenance removes them.
    """

    READ = 1
    """The table was read as it is when the batch begins. Leaves nothing."""
    DECIDED = 2
    """A bucket's rows were compared with the table's. Leaves nothing of this bucket."""
    STAGED = 3
    """A file is written. Leaves orphans: it, and those of other buckets and tasks."""
    HANDED_OVER = 4
    """All of a task's files are staged and reported to the commit. Leaves orphans."""
    LOOKED = 5
    """The query's id and the table are read; an absent table is made. Leaves orphans, maybe an empty table."""
    NEW = 6
    """The batch is not in the table, and the table has this query's earlier commits. Leaves orphans."""
    CHECKED = 7
    """The rows that the tasks merged with are still the table's. Leaves orphans."""
    MERGED_AGAIN = 8
    """Buckets that came in several tasks, or are in other files by now, are merged again. Leaves orphans."""
    LISTED = 9
    """The list of the tombstones' files is written. Leaves orphans, the list among them."""
    MARKED = 10
    """The deletion vectors are written, if rows are marked as dead. Leaves orphans, theirs among them."""
    COMMITTED = 11
    """Delta's commit is made: the batch is in the table. Leaves replaced files and the attempt's orphans."""
    CLEARED = 12
    """Files that the commit does not name are removed. Leaves a checkpoint without the commit; the repeat adds it."""
    REMEMBERED = 13
    """The checkpoint has the commit. Leaves a batch that Spark has not recorded, and repeats."""
    COMPACTED = 14
    """The worst buckets of a table with deletion vectors are rewritten. The rest waits for the next commit."""
    MAINTAINED = 15
    """The table's maintenance is done as far as it was due. The rest waits for the next time."""
    PUT_OUT = 16
    """The rows of the batch are in the dead-letter table."""
    MEASURED = 17
    """The table of metrics is up to date. Next Spark records the batch in its own log of commits."""


def reached(step: CommitStep) -> None:
    """Mark a step as done; tests replace this function to kill the process there."""
    del step
