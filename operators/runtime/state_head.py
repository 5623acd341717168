"""The head of a shard's state: the settings to which it is bound."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...conf.errors import CheckpointError
from .store import Store

__all__ = ["check_identity", "other_layout", "read_head"]


def read_head(store: Store) -> dict[str, Any]:
    """Return a shard's saved head; empty before its first batch."""
    saved = store.get("head", 0)
    return {} if saved is None else json.loads(saved)


def other_layout(was: int, now: int) -> list[str]:
    """Return the difference for :func:`check_identity` if another version wrote the state."""
    return [] if was == now else [f"layout {was}, now {now}"]


def check_identity(
    was: Mapping[str, str], now: Mapping[str, str], begun: str, same: str, more: Sequence[str] = ()
) -> None:
    """Raise CheckpointError, naming all differences, if the checkpoint's settings `was` are not the query's (`now`).

    `begun` begins the message, such as ``the windows of this checkpoint were begun``; `same` names what must not
    change. `more` holds further differences.
    """
    differ = [f"{name} {old!r}, now {now.get(name)!r}" for name, old in was.items() if now.get(name) != old]
    differ += more
    if differ:
        raise CheckpointError(
            f"{begun} with another " + "; ".join(differ),
            expected=f"the same {same} for the life of a checkpoint",
            hint="put them back, or start with a new checkpoint location: the table keeps what is newer",
        )
