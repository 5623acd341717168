"""The answer to why a key has its row, or none, and its words."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal

from ..conf.errors import UpstreamError
from ..datasource.connectors.contract import place_text

__all__ = ["EPOCH", "KeyAnswer", "Stretch", "Verdict", "cause", "instant_text", "plain_json"]

_EXACT = 1 << 53
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

Verdict = Literal[
    "present", "deleted", "in progress", "waiting", "unread", "dead letter", "filtered", "dropped", "unseen", "unknown"
]
"""Where the key is. ``dropped``: a step after the source left it out. ``unseen``: the whole input lacks it."""


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A part of a row's way from its event to the commit; successive ones add up."""

    name: str
    from_us: int
    to_us: int

    @property
    def seconds(self) -> float:
        return (self.to_us - self.from_us) / 1e6


@dataclasses.dataclass
class KeyAnswer:
    """What is known of one key.

    Attributes
    ----------
    verdict : str
        Where the key is; see :data:`Verdict`.
    sentence : str
        The answer in words.
    row : mapping or None
        The newest row.
    rows : int
        The key's rows in the table.
    tombstone : mapping or None
        The latest deletion that the table remembers: an older row does not bring the key back.
    decided : mapping or None
        The place of the row, or of the deletion, in the input.
    commit : mapping or None
        The commit that made the table so.
    way : list of Stretch
        From the event time to the commit.
    first_arrival_us : int or None
        The arrival of the oldest update that the row represents.
    superseded : int or None
        How many updates the row superseded, before they reached the table.
    late : bool or None
        Whether the row's time was below its input partition's low-watermark.
    events : list of mapping
        Changes of the key that the log still has, the latest first.
    coming : list of mapping
        Rows of the key that are not in the table: being processed, waiting, or unread.
    refused : mapping of str to int
        Rows that the source dropped, by the reason.
    letters : list of mapping
        The key's rows in the dead-letter table.
    feeds : list of mapping
        The unread input.
    operators : list of mapping
        What waits in queues, windows and other operators.
    unknown : list of str
        What cannot be known, and why.
    """

    table: str
    version: int
    bucket: int
    key: Mapping[str, Any]
    verdict: Verdict = "unknown"
    sentence: str = ""
    row: Mapping[str, Any] | None = None
    rows: int = 0
    tombstone: Mapping[str, Any] | None = None
    decided: Mapping[str, Any] | None = None
    commit: Mapping[str, Any] | None = None
    way: list[Stretch] = dataclasses.field(default_factory=list)
    first_arrival_us: int | None = None
    superseded: int | None = None
    late: bool | None = None
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    coming: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    refused: dict[str, int] = dataclasses.field(default_factory=dict)
    letters: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    feeds: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    operators: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    unknown: list[str] = dataclasses.field(default_factory=list)

    @property
    def staleness_s(self) -> float | None:
        """The age of the oldest update that the row represents, at the commit."""
        at_us = None if self.commit is None else self.commit["at_us"]
        return None if at_us is None or self.first_arrival_us is None else (at_us - self.first_arrival_us) / 1e6

    @property
    def row_sentence(self) -> str:
        """The answer for a key that has a row."""
        parts: list[str] = []
        if self.decided is not None:
            parts.append(f"The row comes from {place_text(self.decided)}.")
        if self.commit is not None:
            parts.append(self.committed("the row" if self.decided is None else "it"))
        if any(each["state"] != "before" for each in self.coming):
            parts.append("Further rows of the key are not in the table yet.")
        return " ".join(parts) or "The table has the row."

    def committed(self, what: str) -> str:
        """Return a sentence about the commit, which there must be."""
        commit = self.commit or {}
        writer = commit["operation"] if commit["batch_id"] is None else f"Batch {commit['batch_id']}"
        return f"{writer} committed {what} in version {commit['version']}, at {instant_text(commit['at_us'])}."

    @property
    def holders(self) -> str:
        """The steps with state, in words."""
        return " or ".join(each["name"] for each in self.operators)

    def to_json(self) -> dict[str, Any]:
        value = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.decided is not None:
            value["decided"] = {**self.decided, "text": place_text(self.decided)}
        value["coming"] = [{**each, "text": place_text(each["place"])} for each in self.coming]
        value["way"] = [{**vars(each), "seconds": each.seconds} for each in self.way]
        value["staleness_s"] = self.staleness_s
        return plain_json(value)


def plain_json(value: Any) -> Any:
    """Return a value of the types that JSON has; others become text, and so do integers that browsers would round."""
    if isinstance(value, Mapping):
        return {str(name): plain_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(each) for each in value]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, int) and abs(value) > _EXACT:
        return str(value)
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def cause(error: Exception) -> str:
    """Return an error's first line, without advice for a query and without a period."""
    return (error.problem if isinstance(error, UpstreamError) else str(error).partition("\n")[0]).rstrip(".")


def instant_text(at_us: int | None) -> str:
    """Return a time in microseconds since the epoch as text, to the millisecond."""
    if at_us is None:
        return "an unknown time"
    return (EPOCH + dt.timedelta(microseconds=at_us)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
