"""Changes of the registry in the journal's form: one JSON object each."""

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
    """One change of the registry. The job writes ``fail`` to deactivate a query; users cause the other kinds."""

    kind: Kind
    name: str  # of the query, view or relation
    text: str | None = None  # set by ``register``, ``alter`` and ``view``
    weight: float | None = None  # set by ``register`` and ``alter``
    active: bool | None = None  # run at once (``register``)
    buckets: int | None = None  # number of parts of the table (``register``)
    reason: str | None = None  # of a deactivation or failure
    id: int | None = None  # failed incarnation; a later one of the query is not affected
    delete_table: bool | None = None  # have the job delete the table (``drop``)
    stream: dict[str, Any] | None = None  # the stored relation as JSON (``relation``)
    time_zone: str | None = None  # of the session, kept with a new text; None: UTC, or as before (``alter``)
    restarts: tuple[str, ...] | None = None  # queries that restart because their relation has another version

    def to_json(self) -> bytes:
        """Return the content of a file of the journal, with a nonce that is in no other file."""
        # Two writers of equal changes must each find out whose file was written.
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps({**given, "nonce": uuid.uuid4().hex}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Change:
        """Parse a file of the journal; raise CheckpointError if it is damaged or a later release wrote it."""
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
