"""The head of a shard's state: the settings to which it is bound, and whether they are still those of the query."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...conf.errors import CheckpointError
from .store import Store

__all__ = ["check_identity", "other_layout", "read_head"]


def read_head(store: Store) -> dict[str, Any]:
    """Return a shard's head as the batch before left it; empty for a shard that has never been called."""
    saved = store.get("head", 0)
    return {} if saved is None else json.loads(saved)


def other_layout(was: int, now: int) -> list[str]:
    """Return the difference for :func:`check_identity` if another version wrote the state."""
    return [] if was == now else [f"layout {was}, now {now}"]


def check_identity(
    was: Mapping[str, str], now: Mapping[str, str], begun: str, same: str, more: Sequence[str] = ()
) -> None:
    """Refuse a plan other than the one with which a checkpoint was begun.

    Parameters
    ----------
    was, now
        The settings to which the checkpoint is bound, and those of the query, in words.
    begun : str
        What the checkpoint holds, as the beginning of a sentence: ``the windows of this checkpoint were begun``.
    same : str
        What has to stay as it is.
    more : sequence of str
        Further differences.

    Raises
    ------
    CheckpointError
        Naming all differences.
    """
    differ = [f"{name} {old!r}, now {now.get(name)!r}" for name, old in was.items() if now.get(name) != old]
    differ += more
    if differ:
        raise CheckpointError(
            f"{begun} with another " + "; ".join(differ),
            expected=f"the same {same} for the life of a checkpoint",
            hint="put them back, or start with a new checkpoint location: the table keeps what is newer",
        )
