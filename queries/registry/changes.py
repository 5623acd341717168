"""Changes of the registry, as the journal keeps them: one JSON object each."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ...conf.errors import CheckpointError

__all__ = ["Change", "Kind"]

Kind = Literal[
    "register", "alter", "activate", "deactivate", "drop", "view", "drop_view", "relation", "drop_relation", "fail"
]


@dataclass(frozen=True)
class Change:
    """One change of the registry.

    Parameters
    ----------
    kind : str
        ``register``, ``alter``, ``activate``, ``deactivate``, ``drop`` of a query; ``view``, ``drop_view``;
        ``relation``, ``drop_relation``; ``fail``, which the job writes when it has to deactivate a query.
    name : str
        The query's, the view's or the relation's.
    text : str, optional
        What ``register``, ``alter`` and ``view`` set.
    weight : float, optional
        What ``register`` and ``alter`` set.
    active : bool, optional
        Whether a query that is registered runs at once.
    buckets : int, optional
        How many parts the table of a query that is registered has.
    reason : str, optional
        Why a query is deactivated or has failed.
    id : int, optional
        The incarnation that has failed: a query that was started again since goes on.
    delete_table : bool, optional
        Whether the job is to delete the table of a query that is dropped.
    stream : dict, optional
        The stored relation that ``relation`` sets, as JSON.
    time_zone : str, optional
        The session's, with a text that ``register`` and ``alter`` set: the query's expressions keep it. By default UTC,
        and the one that an altered query has.
    restarts : tuple of str, optional
        The queries that begin again because a relation that they read has another version.

    Examples
    --------
    >>> from upstream.queries.registry.changes import Change
    >>> change = Change("alter", "slow", weight=2.0)
    >>> Change.from_json(change.to_json()) == change
    True
    """

    kind: Kind
    name: str
    text: str | None = None
    weight: float | None = None
    active: bool | None = None
    buckets: int | None = None
    reason: str | None = None
    id: int | None = None
    delete_table: bool | None = None
    stream: dict[str, Any] | None = None
    time_zone: str | None = None
    restarts: tuple[str, ...] | None = None

    def to_json(self) -> bytes:
        """Return the content of a file of the journal. Its ``nonce`` is in no other file."""
        # Two writers of equal changes each have to find out whose file it is that is there.
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps({**given, "nonce": uuid.uuid4().hex}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Change:
        """Return the change in a file of the journal.

        Raises
        ------
        CheckpointError
            The file is damaged, or a later release wrote it.
        """
        try:
            read: dict[str, Any] = json.loads(content)
            read.pop("nonce")
            if "restarts" in read:
                read["restarts"] = tuple(read["restarts"])
            change = cls(**read)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _unreadable(content) from error
        if change.kind not in get_args(Kind) or (change.kind == "relation" and not isinstance(change.stream, dict)):
            raise _unreadable(content)
        return change


def _unreadable(content: bytes) -> CheckpointError:
    return CheckpointError(
        f"a change of the registry cannot be read: {content[:200].decode(errors='replace')}",
        expected="a change that this release or an earlier one has written",
        hint="use the release that wrote it, or restore the folder queries/changes of the checkpoint",
    )
