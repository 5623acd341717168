"""A step's late rows, as a feed for another query."""

from __future__ import annotations

import glob
from typing import NamedTuple

from ..conf.column_names import quoted
from ..conf.errors import OptionError
from ..conf.locations import absolute_location
from ..core.rows.system_column import SYSTEM
from ..plan.nodes import Intake, Node, StatefulNode


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
