"""Checks that a stream has a low-watermark, without which no window closes and no ordered row is released."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..conf.errors import OptionError, SchemaError
from ..core.pushdown.at_source import reads_coalesced, source_options
from ..core.rows.key import Key, json_tree
from ..core.rows.system_column import SYSTEM
from .newest_nodes import WindowedGroups
from .nodes import Choice, Filter, Given, InputRows, Intake, Map, Node, Transform, Window, walk


def check_promised(plan: Node, what: str, otherwise: str = "") -> None:
    """Refuse a step that waits for the low-watermark over rows without one; `otherwise` ends the hint.

    Rows without a time of their own (latent timestamps) are stamped on entry. A later step would stamp the rows of a
    replayed batch differently.
    """
    reasons = [why for each in _inputs(plan) if (why := _silent(each)) is not None]
    if reasons:
        raise OptionError(
            f"{what} over a source without a low-watermark: {reasons[0]}",
            expected="a source with an event time and a watermark",
            hint="give event_time and watermark; Watermark.arrival() (watermark=arrival) stamps rows without a time "
            "with their arrival, in the column that event_time names" + otherwise,
        )


def _inputs(node: Node) -> Iterator[Node]:
    """Yield the inputs whose low-watermark reaches a step. Results of windows have a low-watermark of their own."""
    windows = isinstance(node, Window | WindowedGroups)
    if (isinstance(node, Window) and node.promises) or (isinstance(node, WindowedGroups) and node.ends):
        return
    if not node.inputs or windows:
        yield node
    for each in () if windows else node.inputs:
        yield from _inputs(each)


def _silent(node: Node) -> str | None:
    """Return why an input has no low-watermark; None if it has one, and for other steps."""
    if isinstance(node, WindowedGroups):
        return "windows of a table never become final"
    if isinstance(node, Window):
        return "windows of rows close with their last row, and their times are row numbers"
    if isinstance(node, Given | Intake):
        return None if node.promises else "Watermark.none(), or no event time"
    given = source_options(node.frame) if isinstance(node, InputRows) else None
    if given is None:
        return None
    timed = "eventtime" in given or given.get("connector", "").lower() == "latest"  # a latest table knows its own time
    if given.get("watermark", "").lower() == "none" or not timed:
        return "watermark=none, or no option `eventTime`"
    off = given.get("punctuation", "").lower() in ("false", "off", "no", "0")
    return "punctuation=off" if off else None


def check_final(plan: Node, what: str, otherwise: str, hint: str | None = None) -> None:
    """Refuse a step on a stream with retractions; `otherwise` is what the step would do with them."""
    if plan.retracts:
        problem = "earlier steps retract results" if plan.left_out is None else plan.left_out.problem
        raise SchemaError(
            f"{what} {otherwise}: {problem}",
            expected="results that are final",
            hint=hint or f"put {what} before the step that retracts results, or leave out early=True there",
        )


def check_table_key(plan: Node, key: Sequence[str]) -> None:
    """Refuse a table with so few key columns that a tombstone would delete other results too."""
    missing = [name for name in plan.least_key if name not in key]
    if plan.retracts and missing:
        raise SchemaError(
            f"the table's key {', '.join(key)} lacks {', '.join(missing)}: the retraction of a result would "
            "remove others",
            expected="at least " + ", ".join(plan.least_key),
            hint="leave key out: the table then has the stream's",
        )


def identity_of(node: Node) -> Key | None:
    """Return the columns that identify a row, of whose versions the newest counts; None if needed rows are missing.

    It is the update key, with ``window_id`` for windows that are re-emitted. A choice of columns and a map keep the
    identity if they keep its columns. Other steps over re-emitted windows take only the newest window of each key, so
    revisions of earlier ones are missing.
    """
    if node.left_out is None:
        return None if node.retracts else node.key
    found: Key | None = None
    match node:
        case Window() if node.revises:
            found = Key((*node.key, "window_id"))
        case WindowedGroups() if node.ends:
            found = node.key
        case Transform(step=Filter()):
            # A tombstone has the key and the time of the row that fails, and no other column.
            found = identity_of(node.inputs[0]) if node.inputs[0].left_out is None else None
        case Transform(step=Choice()) | Map():
            found = identity_of(node.inputs[0])
        case _:
            pass
    return found if found is not None and set(found) <= set(node.schema.names) else None


def table_key(node: Node) -> Key | None:
    """Return the columns that identify a row if only newest rows count, and all are there; None otherwise."""
    if not node.retracts and node.left_out is None:
        return None
    found = identity_of(node)
    if found is None and (node.retracts or (node.left_out is not None and node.left_out.newest)):
        found = node.key
    return found


def check_columns(plan: Node) -> None:
    """Refuse a plan whose rows lack the key, the time or the system column."""
    tree = json_tree(plan.schema.jsonValue()["fields"])
    absent = plan.key.absent(tree)
    absent += [name for name in (plan.time, SYSTEM) if name is not None and name not in tree]
    if absent:
        raise SchemaError(
            f"the stream has no column {', '.join(absent)}",
            expected=f"the key, the time and {SYSTEM}, as the source made it",
            hint=_NO_SYSTEM
            if SYSTEM in absent
            else f"name columns that are there: {', '.join(plan.schema.names)}; of a field make one, with withColumn, "
            "before",
        )


def check_key_columns(plan: Node, what: str) -> None:
    """Refuse a key with a field of a struct for a step that divides rows by key columns."""
    fields = plan.key.fields(plan.schema.names)
    if fields:
        raise SchemaError(
            f"{what} of a stream whose key has {', '.join(fields)}, a field of a struct",
            expected="columns: only the source, steps on each row, and the sink take fields",
            hint='make a column of the field where rows are read, read(…, select="data.s AS symbol, …"), and name '
            "that in the key",
        )


_NO_SYSTEM = (
    f"keep {SYSTEM} in every select; if you gave the source a schema by readStream.schema(…), give it as an option "
    "instead, "
    '.option("schema", "a INT, b STRING"), or append the column, .schema(upstream.with_system_ddl("a INT, b STRING")); '
    "for a stream of another source use UpdateStream.from_dataframe"
)


def coalesces(plan: Node) -> bool:
    """Return whether a source gives only the newest row of each key in a batch."""
    return any(isinstance(each, InputRows) and reads_coalesced(each.frame) for each in walk(plan))
