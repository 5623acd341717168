"""Options of the source that hold for every connector."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import cast

from ..conf.errors import OptionError
from ..conf.locations import absolute_location, checkpoint_location
from ..conf.options import (
    boolean,
    bytes_,
    columns,
    duration_us,
    one_of,
    option,
    parsed,
    positive_int,
    share,
    text,
    whole,
)
from ..core.rows.event_times import check_time_zone
from ..core.watermark.policies import Policy, PolicyName
from ..storage.folder import TableFolder
from .connectors.contract import Limit
from .idle_feeds import IdleRule
from .on_demand_watermark import Enabling, Held, reports_below

__all__ = ["STORAGE_PREFIX", "SourceOptions"]

STORAGE_PREFIX = "storage."
"""Before the names of options that go to the client of an object store."""

# A century.
_ANY_JUMP_US = 3_155_760_000_000_000


def _place(value: str) -> str:
    """Return the absolute location, since tasks may run in another folder, and on another machine."""
    return absolute_location(_given(value))


def _checkpoint(value: str) -> str:
    return checkpoint_location(_given(value))


def _given(value: str) -> str:
    if not value.strip():
        raise ValueError
    return value


@dataclasses.dataclass(frozen=True)
class SourceOptions:
    """What the user may ask of any feed."""

    connector: str = option(
        "connector", one_of("files", "kafka", "latest", "replay", "synthetic"), "files", "Where the rows come from."
    )
    key: tuple[str, ...] = option(
        "key",
        columns(),
        (),
        "The update key: a row replaces the earlier row with the same values in these columns, or fields of structs "
        "(`position.id`).",
    )
    time: str | None = option("time", text(), None, "The column that holds the event time.")
    time_format: str | None = option(
        "timeFormat",
        text(),
        None,
        "How to read the time column: a strptime pattern for text (the column becomes a TIMESTAMP), or what numbers "
        "count: "
        "epoch_s, epoch_ms, epoch_us, epoch_ns. Not needed for timestamps, dates and ISO 8601 text.",
    )
    time_zone: str = option(
        "timeZone",
        text(),
        "UTC",
        "The zone of times that do not name theirs; a date means the midnight there with which its day begins.",
    )
    schema: str | None = option(
        "schema", text(), None, "The rows' schema in Spark's DDL, without the system column; inferred if not given."
    )
    select: str | None = option(
        "select",
        text(),
        None,
        "Columns that leave in place of the feed's own, in Spark's SQL: `data.s AS symbol, timestamp_millis(data.E) AS "
        "at, data.b::DOUBLE AS bid`. "
        "Key, time and `where` are then columns of these; `schema` stays the feed's own. A row of which one cannot be "
        "computed is malformed. For files and kafka.",
    )
    where: str | None = option(
        "where", text(), None, "Rows for which this SQL condition is not true are left out, before any coalescing."
    )
    coalesce: bool = option(
        "coalesce",
        boolean(),
        False,
        "Of the rows that a task reads in a batch, let only the newest per key leave. Right only where nothing but "
        "the newest row per key is asked for; `_upstream.covered` says how many rows each stands for.",
    )
    progress: str | None = option(
        "progress",
        one_of("ordered", "bounded", "displaced", "embedded", "heartbeat", "latent", "adaptive", "promised"),
        None,
        "How the low-watermark of a feed is found. Without it: `bounded` if `time` is given, else `latent`; of a "
        "latest table `promised`, which takes what its commits say.",
    )
    progress_delay_us: int = option(
        "progressDelay",
        duration_us(),
        600_000_000,
        "For `bounded`: how far behind the largest time a row may come. For `adaptive`, and for `idle=ets` without "
        "`etsDelay`: what to take until "
        "enough rows have been seen.",
    )
    progress_displacement: int = option(
        "progressDisplacement", whole(), 1000, "For `displaced`: by how many rows a row may be out of its place."
    )
    target_late: float = option(
        "targetLate",
        share(),
        0.001,
        "For `adaptive`: the share of a feed's rows that may come below its low-watermark.",
    )
    idle: str = option(
        "idle",
        one_of("wait", "advance", "ets"),
        "wait",
        "What to do about a feed that is silent while others move. `wait`: the low-watermark waits for it. `advance`: "
        "after `idleAfter` it "
        "follows the others. `ets`: while an operator holds rows that it blocks, it is promised to have come as far as "
        "its clock says.",
    )
    idle_after_us: int = option(
        "idleAfter",
        duration_us(),
        60_000_000,
        "For `idle=advance`: how long a feed has been silent when it counts as idle.",
    )
    ets_delay_us: int | None = option(
        "etsDelay",
        duration_us(),
        None,
        "For `idle=ets`: by how much the delays of a feed's rows differ at most. Without it: measured, and no less "
        "than `progressDelay` with `bounded`.",
    )
    at_end: str = option(
        "atEnd",
        one_of("close", "keep"),
        "keep",
        "What the end of a run with `Trigger.AvailableNow` (`--once`) means for feeds. `keep`: the next run goes on "
        "with them, and windows wait for "
        "it. `close`: every feed has ended and every window closes; rows that come in a later run are late. Feeds that "
        "end by themselves (a "
        "recording, `rows` of synthetic feeds, `endingOffsets`) always close.",
    )
    max_jump_us: int = option(
        "maxJump",
        duration_us(),
        3_600_000_000,
        "Outlier guard: a row further than this beyond the largest confirmed time does not move progress until "
        "confirmed.",
    )
    confirmations: int = option(
        "confirmations", positive_int(), 5, "Outlier guard: so many rows in succession beyond a jump confirm it."
    )
    punctuation: bool = option(
        "punctuation",
        boolean(),
        True,
        "Append punctuation rows that tell how far each feed is complete (streams only).",
    )
    on_malformed: str = option(
        "onMalformed",
        one_of("quarantine", "fail"),
        "quarantine",
        "What to do with a row that cannot be read, has no key or no readable time: `fail` stops the query and names "
        "it, "
        "`quarantine` writes it to `quarantineLocation` and goes on.",
    )
    quarantine_location: str | None = option(
        "quarantineLocation",
        parsed("a folder, or its address", _place),
        None,
        "A folder for malformed rows, as JSON lines. Without it: `quarantine` below `checkpointLocation` if that is "
        "given, "
        "else a hidden folder beside the data.",
    )
    checkpoint_location: str | None = option(
        "checkpointLocation",
        parsed("a folder, or its address", _checkpoint),
        None,
        "The query's checkpoint folder. Optional here; with it the inferred schema is kept in it, and so are lists of "
        "files and of feeds at rest, which every offset names otherwise. For one in an object store, "
        "options that begin with `storage.` go to the store without that prefix.",
    )
    max_rows_per_trigger: int | None = option(
        "maxRowsPerTrigger", positive_int(), None, "The most rows in a batch; a compressed file is never divided."
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger", bytes_(), None, "The most bytes in a batch; a compressed file is never divided."
    )
    min_partitions: int | None = option(
        "minPartitions",
        positive_int(),
        None,
        "Into how many tasks a batch is divided, as far as it has so many ranges. Without it: the number of cores of "
        "the "
        "driver's machine, fewer for a small batch.",
    )
    storage: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def checkpoint(self) -> TableFolder | None:
        """The checkpoint's folder, if it is known."""
        return None if self.checkpoint_location is None else TableFolder(self.checkpoint_location, self.storage)

    def policy(self) -> Policy:
        """Return the progress policy for these options.

        Raises
        ------
        OptionError
            The policy needs an option that is not given, or `progressDisplacement` exceeds 100,000.
        """
        name = self.progress or ("bounded" if self.time else "latent")
        if name not in ("latent", "heartbeat") and self.time is None:
            raise OptionError(f"progress={name} without `time`", hint="name the column that holds the event time")
        if name == "heartbeat" and self.time is None:
            raise OptionError(
                "progress=heartbeat without `time`", hint="name the column to add, in which rows are stamped on entry"
            )
        if name == "embedded" and not self.key:
            raise OptionError(
                "progress=embedded without `key`", hint="name the key; rows without one are the punctuation"
            )
        if name == "displaced" and self.progress_displacement > 100_000:
            raise OptionError(f"progressDisplacement={self.progress_displacement}", expected="at most 100000")
        if name == "promised":
            # A promise is exact, and rows do not move it: nothing has to be confirmed.
            return Policy(name, max_jump_us=_ANY_JUMP_US, confirmations=1)
        return Policy(
            cast("PolicyName", name),
            self.progress_delay_us,
            self.progress_displacement,
            self.max_jump_us,
            self.confirmations,
            self.target_late,
        )

    def looks(self) -> bool:
        """Return whether the source looks at the times of all rows, and so counts the rows."""
        return self.punctuation and self.time is not None and self.progress not in ("latent", "heartbeat")

    def idle_rule(self) -> IdleRule:
        """Return the rule for silent feeds."""
        enabling = Enabling(self.progress == "heartbeat", self.ets_delay_us, self.progress_delay_us)
        held = None
        if self.idle == "ets" and self.checkpoint_location is not None:
            held = Held(reports_below(TableFolder(self.checkpoint_location, self.storage)))
        return IdleRule(self.idle_after_us if self.idle == "advance" else None, enabling, held)

    def limit(self) -> Limit:
        """Return how many rows and bytes one batch may take."""
        return Limit(rows=self.max_rows_per_trigger, bytes=self.max_bytes_per_trigger)

    def tasks(self) -> int:
        """Return into how many tasks a large batch is divided."""
        return self.min_partitions or max(os.cpu_count() or 1, 2)

    def check(self) -> None:
        """Refuse combinations that contradict each other.

        Raises
        ------
        OptionError
            Options contradict each other; the message names all such combinations.
        """
        problems: list[str] = []
        if self.coalesce and not self.key:
            problems.append("coalesce=true without `key`: it keeps the newest row per key")
        if self.time is not None and self.time in self.key:
            problems.append(f"{self.time!r} is both `time` and part of `key`")
        if self.time_format is not None and self.time is None:
            problems.append("timeFormat without `time`")
        if self.progress == "heartbeat" and self.time_format is not None:
            problems.append("timeFormat with progress=heartbeat: the time column is stamped on entry, not read")
        if (self.progress == "promised") > (self.connector == "latest"):
            problems.append("progress=promised: only connector=latest says besides its rows how far they are complete")
        if self.progress == "embedded" and self.connector == "latest":
            problems.append(
                "progress=embedded: a latest table holds no punctuation; what its commits say is progress=promised"
            )
        if self.select is not None and self.connector not in ("files", "kafka"):
            problems.append(f"select with connector={self.connector}: only files and kafka have columns to choose from")
        problems += self._idle_problems()
        if problems:
            raise OptionError("; ".join(problems), hint="give or leave out the options named")
        check_time_zone("timeZone", self.time_zone)
        self.policy()

    def _idle_problems(self) -> list[str]:
        problems: list[str] = []
        if self.idle != "wait" and (self.progress == "latent" or self.time is None or not self.punctuation):
            problems.append(
                f"idle={self.idle} without `time`, with progress=latent or punctuation=off: nobody waits for a feed"
            )
        if self.idle == "ets" and self.checkpoint_location is None:
            problems.append(
                "idle=ets without `checkpointLocation`: operators say below the query's checkpoint what they hold"
            )
        return problems
