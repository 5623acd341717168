"""What names a row of a stream that may give a row again: a revised window, a key that is deleted."""

from __future__ import annotations

from .newest_nodes import WindowedGroups
from .nodes import Map, Node, Transform, Window
from .row_steps import Choice, Filter

__all__ = ["identity_of"]


def identity_of(node: Node) -> tuple[str, ...] | None:
    """Return the columns that name a row, so that of several rows with one name the newest counts.

    Parameters
    ----------
    node
        The last step.

    Returns
    -------
    tuple of str or None
        The update key, for a stream that has every row. For windows that are given again, the key and ``window_id``.
        None if rows are missing that would count.

    Notes
    -----
    A choice of columns and a map keep the name if they keep its columns. Other steps over windows that are given again
    take the newest window of each key only, so an earlier window that is revised would be missing after them.
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
