"""The identity of rows that a stream may emit again, such as revised windows and deleted keys."""

from __future__ import annotations

from .newest_nodes import WindowedGroups
from .nodes import Map, Node, Transform, Window
from .row_steps import Choice, Filter

__all__ = ["identity_of"]


def identity_of(node: Node) -> tuple[str, ...] | None:
    """Return the columns that identify a row, of whose versions the newest counts; None if needed rows are missing.

    It is the update key, with ``window_id`` for windows that are re-emitted. A choice of columns and a map keep the
    identity if they keep its columns. Other steps over re-emitted windows take only the newest window of each key, so
    revisions of earlier ones are missing.
    """
    if node.left_out is None:
        return None if node.retracts else node.key
    found: tuple[str, ...] | None = None
    match node:
        case Window() if node.revises:
            found = (*node.key, "window_id")
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
