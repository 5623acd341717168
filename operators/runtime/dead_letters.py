"""An operator's rows that are unusable or too late, and the reading of late ones as a feed of another query."""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ...conf.column_names import quoted
from ...conf.errors import OptionError
from ...conf.locations import absolute_location
from ...core.feedback.reports import QUERY_PROPERTY, task_property
from ...core.rows.system_column import SYSTEM, system_field
from ...delta_format.append_table import DeadLetterWriter, letters_of
from ...storage.atomic_write import write_whole
from ...storage.folder import folder_at

if TYPE_CHECKING:
    from ...plan.nodes import Node, StatefulNode


REASON = "__upstream_reason"
"""The column with the reason for which a row is malformed."""


class DeadLetters(NamedTuple):
    """The table of dead letters, for the malformed or the late rows of an input."""

    location: str
    origin: str  # the input's name
    kind: str  # "malformed" or "late"

    def write(self, batch_id: int, shard: int, rows: pa.Table) -> None:
        """Append one shard's rows of one batch, with their reasons, unless an earlier attempt has."""
        reason: Any = self.kind
        if REASON in rows.column_names:
            reason, rows = rows.column(REASON), rows.drop_columns(REASON)
        if SYSTEM in rows.column_names:
            marks = [(f"{SYSTEM}_{name}", system_field(rows, name)) for name in ("source", "deleted")]
            rows = rows.drop_columns(SYSTEM)
            for name, column in marks:
                rows = rows.append_column(name, column)
        writer = f"{task_property(QUERY_PROPERTY)}-{self.origin}-{self.kind}-{shard}"
        table = DeadLetterWriter(folder_at(self.location), writer, batch_id)
        table.write(letters_of(rows, batch=batch_id, origin=self.origin, reason=reason))
        table.commit()


class LateRows(NamedTuple):
    """The destination of an operator's late rows."""

    location: str  # a folder, or its URL
    name: str  # the prefix of file names, such as "late"

    def write(self, batch_id: int, shard: int, rows: pa.Table) -> None:
        """Write one shard's rows of one batch.

        A rerun writes the same file, byte for byte, so a query that reads the files counts each row once.
        """
        file = f"{self.name}-{batch_id:09d}-{shard:05d}.parquet"
        whole = rows.combine_chunks()  # the chunks depend on Spark, and the file must not
        write_whole(self.location, file, lambda stream: pq.write_table(whole, stream))


def late_rows_of(node: StatefulNode) -> LateRows | None:
    """Return the destination of an operator's late rows; None if it only counts them."""
    return None if node.late_location is None else LateRows(absolute_location(node.late_location), node.late_name)


class LateFeed(NamedTuple):
    """The files of a step's late rows."""

    pattern: str  # the glob of the files
    key: tuple[str, ...]  # the update key of the rows
    event_time: str | None
    schema: str  # the columns in DDL, without the system column
    time_format: str | None  # of the event time, as the step received it


def late_feed(plan: Node) -> LateFeed:
    """Return the late rows of the last step that stores them, ignoring steps on single rows.

    Raise OptionError if there is none.
    """
    from ...plan.nodes import Intake, StatefulNode  # workers import this module, and need no plan

    node = plan
    while not (isinstance(node, StatefulNode) and not isinstance(node, Intake) and node.late_location is not None):
        if len(node.inputs) != 1:
            raise OptionError(
                f"late_rows() of a stream that keeps none: {plan.text}",
                expected="a window, a merge, an ordered release or a distinct with late_location=…, the last step "
                "before late_rows() but for steps on each row",
                hint="give that step late_location='…', a folder of its own",
            )
        node = node.inputs[0]
    rows = node.inputs[0]
    fields = [each for each in rows.schema.fields if each.name != SYSTEM]
    columns = [f"{quoted(each.name)} {each.dataType.simpleString()}" for each in fields]
    place = absolute_location(node.late_location or "").rstrip("/")
    return LateFeed(
        f"{glob.escape(place)}/{node.late_name}-[0-9]*.parquet",
        rows.key,
        rows.time,
        ", ".join(columns),
        getattr(node.specification, "time_format", None),
    )
