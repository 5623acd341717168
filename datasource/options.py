"""Options of the source for every connector."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from typing import Any, cast

from ..conf.errors import OptionError
from ..conf.locations import absolute_location, checkpoint_location
from ..conf.options import (
    boolean,
    bytes_,
    duration_us,
    non_empty,
    one_of,
    option,
    parsed,
    positive_int,
    share,
    text,
    whole,
)
from ..core.feedback.on_demand_watermark import DownstreamReports, OnDemandWatermark, reports_below
from ..core.rows.event_times import check_time_zone, is_pattern
from ..core.rows.key import KEY_OPTION, NO_KEY, Key
from ..core.rows.time_patterns import time_pattern
from ..core.watermark.bounds import AFTER_ALL
from ..core.watermark.policies import FeedProgress, Policy, PolicyName
from ..storage.folder import TableFolder
from .connectors.contract import Advance, Limit


def heard_now(before: Mapping[str, int], feeds: Collection[str], step: Advance, now_us: int) -> dict[str, int]:
    """Return when each feed last had rows, had rows beyond a limit, or was first known; `before` is the last result."""
    heard = {feed: before.get(feed, now_us) for feed in feeds}
    return heard | dict.fromkeys({part.feed for part in step.ranges} | step.waiting.keys(), now_us)


def advance(progress: Mapping[str, FeedProgress], silent: Collection[str], away: Collection[str]) -> None:
    """Advance the low-watermark of silent feeds to the least that live feeds have reached.

    Feeds that are `away` (no longer read, or not begun) follow under any rule, to the end. A silent feed follows an
    ended one only as far as that has come, so that its next rows are not late.
    """
    # A feed without rows so far is unknown downstream, and holds no other feed back.
    live = [each for feed, each in progress.items() if feed not in {*silent, *away} and each.bound is not None]
    shown = [each.reached for each in live if each.reached is not None]
    if shown:
        for feed in set(silent).difference(away):
            if progress[feed].bound is not None:
                progress[feed].promise(min(shown))
    # Those that are away follow idle feeds as well, which others wait for in their turn.
    bounds = [each.bound for feed, each in progress.items() if feed not in away and each.bound is not None]
    for feed in away:
        if bounds and progress[feed].bound is not None:
            progress[feed].promise(min(bounds))


@dataclasses.dataclass
class IdleRule:
    """The user's rule for idle feeds."""

    after_us: int | None = None  # time after which the others resume without a silent feed; None to wait
    on_demand: OnDemandWatermark = dataclasses.field(default_factory=OnDemandWatermark)
    downstream: DownstreamReports | None = None  # rows that operators hold; None unless the rule acts on demand
    stopped: bool = False  # the clock alone releases nothing

    def silent(self, heard: Mapping[str, int], ended: Collection[str], now_us: int) -> frozenset[str]:
        """Return the feeds that have been silent for so long that the others resume without them."""
        if self.after_us is None:
            return frozenset()
        return frozenset(feed for feed, at in heard.items() if now_us - at >= self.after_us and feed not in ended)

    def asked(
        self,
        progress: Mapping[str, Mapping[str, Any]],
        heard: Mapping[str, int],
        ended: Collection[str],
        now_us: int,
    ) -> bool:
        """Return whether the rule may release something although no feed has rows.

        It may if an operator waits for more than the feeds' low-watermarks, or if an ended feed waits for silent ones.
        `progress` has the :meth:`FeedProgress.snapshot` of each feed.
        """
        if self.stopped:
            return False
        if ended and self.silent(heard, ended, now_us):
            return True
        if self.downstream is None:
            return False
        bounds = [state["bound"] for state in progress.values() if state["bound"] not in (None, AFTER_ALL)]
        return bool(bounds) and any(need > min(bounds) for need in self.downstream.needs(now_us, bounds))

    def stop(self) -> None:
        """Release nothing by the clock alone from now on: a run with `Trigger.AvailableNow` waits for no clock."""
        self.stopped, self.downstream = True, None

    def apply(
        self,
        progress: Mapping[str, FeedProgress],
        heard: Mapping[str, int],
        away: Collection[str],
        ended: Collection[str],
        now_us: int,
    ) -> None:
        """Advance silent feeds after a batch's rows; its end offset has the result as punctuation, for replays."""
        if self.downstream is not None:
            open_feeds = {feed: each for feed, each in progress.items() if each.bound != AFTER_ALL and feed not in away}
            if any(heard[feed] < now_us for feed in open_feeds):
                bounds = [each.bound for each in open_feeds.values() if each.bound is not None]
                needs = self.downstream.needs(now_us, bounds)
                self.on_demand.enable(open_feeds, heard, needs, now_us)
        advance(progress, self.silent(heard, ended, now_us), away)


POSITION = "_position"
"""The column that orders change events: their position in the source's log, as a number."""

_OF_CHANGES = ("debezium", "debezium-avro")


def reads_changes(options: Mapping[str, object]) -> bool:
    """Return whether a source's options choose a format of change events; names may have underscores."""
    named = {name.replace("_", "").lower(): str(value).strip().lower() for name, value in options.items()}
    return any(named.get(name) in _OF_CHANGES for name in ("format", "fileformat", "valueformat"))


def names_its_key(options: Mapping[str, object]) -> bool:
    """Return whether a source's options choose a feed that may name its update key: change events, or a table."""
    return reads_changes(options) or any(
        name.lower() == "connector" and str(value).lower() == "latest" for name, value in options.items()
    )


STORAGE_PREFIX = "storage."
"""The prefix of options for the client of an object store."""

# A century.
_ANY_JUMP_US = 3_155_760_000_000_000


def _place(value: str) -> str:
    """Return the absolute location, since tasks may run in another folder, and on another machine."""
    return absolute_location(non_empty(value))


def _checkpoint(value: str) -> str:
    return checkpoint_location(non_empty(value))


@dataclasses.dataclass(frozen=True)
class SourceOptions:
    """The options of the source that hold for every connector; see each option's documentation."""

    connector: str = option(
        "connector",
        one_of("files", "kafka", "latest", "replay", "synthetic"),
        "files",
        "Choose where the rows come from.",
    )
    key: Key = option(  # noqa: RUF009 it declares a field
        "key",
        KEY_OPTION,
        NO_KEY,
        "Set the update key: columns, or fields of structs (`position.id`). A row replaces the earlier row "
        "with the same values in them.",
    )
    time: str | None = option("eventTime", text(), None, "Name the column that holds the event time.")
    sequence: Key = option(  # noqa: RUF009 it declares a field
        "sequenceBy",
        KEY_OPTION,
        NO_KEY,
        "Name the columns that order the rows of a key in place of `eventTime`, such as `source.file, "
        "source.pos`. `coalesce` then keeps the row with the largest values, and a row in which one is null is "
        "malformed.",
    )
    time_format: str | None = option(
        "timeFormat",
        text(),
        None,
        "Set how to read the time column. For text, give a pattern of Python's strptime; the column becomes a "
        "TIMESTAMP. "
        "For numbers, give what they count: epoch_s, epoch_ms, epoch_us, or epoch_ns. Timestamps, dates, and "
        "ISO 8601 text need no format.",
    )
    time_zone: str = option(
        "timeZone",
        text(),
        "UTC",
        "Set the time zone of times without one. A date means midnight at the beginning of that day in this zone.",
    )
    schema: str | None = option(
        "schema",
        text(),
        None,
        "Set the schema of the rows in Spark's DDL, without the system column. If it is not set, UpStream infers it.",
    )
    select: str | None = option(
        "select",
        text(),
        None,
        "Compute columns in Spark's SQL, in place of the feed's own: `data.s AS symbol, "
        "timestamp_millis(data.E) AS at, data.b::DOUBLE AS bid`. `key`, `eventTime`, and `where` then name these "
        "columns; `schema` still describes the feed's own. If a column of a row cannot be computed, the row "
        "is malformed. For the connectors `files` and `kafka`.",
    )
    select_duplicates: str = option(
        "selectDuplicates",
        one_of("refuse", "first", "last"),
        "refuse",
        "Choose what `select` does with columns of one name, as in `coalesce(after.id, before.id) AS id, after.*`. "
        "`first` and `last`: it keeps that one.",
    )
    where: str | None = option(
        "where",
        text(),
        None,
        "Drop rows for which this condition in Spark's SQL is not true, before any coalescing. If it cannot be "
        "computed for a row, the row is malformed.",
    )
    coalesce: bool = option(
        "coalesce",
        boolean(),
        False,
        "Keep only the newest row per key of the rows that a task reads in a batch. Use it only if the newest "
        "row per key is all that you need. `_upstream.covered` counts the rows that each one replaces, "
        "itself included.",
    )
    progress: str | None = option(
        "watermark",
        one_of("ordered", "bounded", "displaced", "embedded", "arrival", "none", "adaptive", "from_table"),
        None,
        "Choose how to find the low-watermark of a feed. If it is not set: `bounded` with `eventTime`, and "
        "`none` (no low-watermark) without. A latest table uses `from_table`: the low-watermarks in its "
        "commits.",
    )
    progress_delay_us: int = option(
        "watermarkDelay",
        duration_us(),
        600_000_000,
        "For `bounded`: set how far a row's time may be behind the largest time so far. For `adaptive`, and for "
        "`idle=ets` without `etsDelay`: the delay to use until enough rows have arrived.",
    )
    progress_displacement: int = option(
        "watermarkDisplacement",
        whole(),
        1000,
        "For `displaced`: set by how many rows a row may be out of place. At most 100000.",
    )
    target_late: float = option(
        "targetLate",
        share(),
        0.001,
        "For `adaptive`: set the share of a feed's rows that may be late.",
    )
    idle: str = option(
        "idle",
        one_of("wait", "advance", "ets"),
        "wait",
        "Choose what to do about a feed that is silent while others move. `wait`: the low-watermark waits for "
        "it. `advance`: after `idleAfter`, it follows the others. `ets`: while it blocks rows that an "
        "operator holds, its low-watermark follows its clock. `ets` needs `checkpointLocation`.",
    )
    idle_after_us: int = option(
        "idleAfter",
        duration_us(),
        60_000_000,
        "For `idle=advance`: set how long a feed is silent before it counts as idle.",
    )
    ets_delay_us: int | None = option(
        "etsDelay",
        duration_us(),
        None,
        "For `idle=ets`: set by how much the delays of a feed's rows differ at most. If it is not set, UpStream "
        "measures it; with `bounded`, it is at least `watermarkDelay`.",
    )
    on_end: str = option(
        "onEnd",
        one_of("close", "keep"),
        "keep",
        "Choose what happens to feeds at the end of a run with `Trigger.AvailableNow` (`--once`). `keep`: the "
        "next run continues them, and windows wait for it. `close`: every feed ends and every window closes; "
        "rows of a later run are late. Feeds that end by themselves always close: a recording, synthetic "
        "feeds with `rows`, Kafka with `endingOffsets`.",
    )
    max_jump_us: int = option(
        "maxJump",
        duration_us(),
        3_600_000_000,
        "Set the outlier guard. A row further than this beyond the largest confirmed time is suspect, and "
        "does not move the low-watermark until other rows confirm it.",
    )
    confirmations: int = option(
        "confirmations", positive_int(), 5, "Set how many rows in succession beyond a jump confirm it (see `maxJump`)."
    )
    punctuation: bool = option(
        "punctuation",
        boolean(),
        True,
        "Append punctuation rows, which mark how far each feed is complete. Only for streams.",
    )
    on_malformed: str = option(
        "onMalformed",
        one_of("quarantine", "fail"),
        "quarantine",
        "Choose what to do with a row that is unreadable, or has no key or no readable time. `fail`: stop the "
        "query with an error that names the row. `quarantine`: write the row to `deadLetters`, and continue.",
    )
    dead_letters: str | None = option(
        "deadLetters",
        parsed("a folder, or its address", _place),
        None,
        "Set the location of the Delta table of malformed rows. If it is not set: `dead_letters` below "
        "`checkpointLocation`; without that, a malformed row stops the query.",
    )
    checkpoint_location: str | None = option(
        "checkpointLocation",
        parsed("a folder, or its address", _checkpoint),
        None,
        "Set the query's checkpoint folder. `write` and `write_latest` set it by themselves. The folder then also "
        "holds malformed rows, and the lists of files and feeds that otherwise are in every offset. If you set the "
        "option yourself, it also holds the inferred schema. If it is in an object store, options that begin with "
        "`storage.` go to the store without that prefix.",
    )
    max_rows_per_trigger: int | None = option(
        "maxRowsPerTrigger",
        positive_int(),
        None,
        "Set the maximum number of rows in a batch. A compressed file is never split.",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        bytes_(),
        None,
        "Set the maximum number of bytes in a batch. A compressed file is never split.",
    )
    min_partitions: int | None = option(
        "minPartitions",
        positive_int(),
        None,
        "Set the number of tasks per batch, if the batch has that many ranges. If it is not set: the number "
        "of cores of the driver's machine, and fewer for a small batch.",
    )
    storage: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def checkpoint(self) -> TableFolder | None:
        return None if self.checkpoint_location is None else TableFolder(self.checkpoint_location, self.storage)

    def policy(self) -> Policy:
        """Return the progress policy; raise OptionError if it needs another option, or for too large a displacement."""
        name = self.progress or ("bounded" if self.time else "none")
        if name not in ("none", "arrival") and self.time is None:
            raise OptionError(f"watermark={name} without `eventTime`", hint="name the column that holds the event time")
        if name == "arrival" and self.time is None:
            raise OptionError(
                "watermark=arrival without `eventTime`",
                hint="name the column to add, in which rows are stamped on entry",
            )
        if name == "embedded" and not self.key:
            raise OptionError(
                "watermark=embedded without `key`", hint="name the key; rows without one are the punctuation"
            )
        if name == "displaced" and self.progress_displacement > 100_000:
            raise OptionError(f"watermarkDisplacement={self.progress_displacement}", expected="at most 100000")
        if name == "from_table":
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
        """Return whether the source observes the times of all rows, and so counts the rows."""
        return self.punctuation and self.time is not None and self.progress not in ("none", "arrival")

    def idle_rule(self) -> IdleRule:
        on_demand = OnDemandWatermark(self.progress == "arrival", self.ets_delay_us, self.progress_delay_us)
        downstream = None
        if self.idle == "ets" and self.checkpoint_location is not None:
            downstream = DownstreamReports(reports_below(TableFolder(self.checkpoint_location, self.storage)))
        return IdleRule(self.idle_after_us if self.idle == "advance" else None, on_demand, downstream)

    def limit(self) -> Limit:
        return Limit(rows=self.max_rows_per_trigger, bytes=self.max_bytes_per_trigger)

    def tasks(self) -> int:
        return self.min_partitions or max(os.cpu_count() or 1, 2)

    def check(self, *, keyed: bool = False) -> None:
        """Raise one OptionError for all combinations that contradict each other; `keyed` if the feed names the key."""
        problems: list[str] = []
        if self.coalesce and not (self.key or keyed):
            problems.append("coalesce=true without `key`: it keeps the newest row per key")
        if self.time is not None and self.time in self.key:
            problems.append(f"{self.time!r} is both `eventTime` and part of `key`")
        if self.time_format is not None and self.time is None:
            problems.append("timeFormat without `eventTime`")
        if self.progress == "arrival" and self.time_format is not None:
            problems.append("timeFormat with watermark=arrival: the time column is stamped on entry, not read")
        if (self.progress == "from_table") > (self.connector == "latest"):
            problems.append(
                "watermark=from_table: only the tables of connector=latest record how far they are complete"
            )
        if self.progress == "embedded" and self.connector == "latest":
            problems.append("watermark=embedded: a latest table has no punctuation; use watermark=from_table")
        if self.select is not None and self.connector not in ("files", "kafka"):
            problems.append(f"select with connector={self.connector}: only files and kafka have columns to choose from")
        problems += self._idle_problems()
        if problems:
            raise OptionError("; ".join(problems), hint="give or leave out the options named")
        check_time_zone("timeZone", self.time_zone)
        if self.time_format is not None and is_pattern(self.time_format):
            time_pattern(self.time_format)
        self.policy()

    def _idle_problems(self) -> list[str]:
        problems: list[str] = []
        if self.idle != "wait" and (self.progress == "none" or self.time is None or not self.punctuation):
            problems.append(
                f"idle={self.idle} without `eventTime`, with watermark=none or punctuation=off: no step waits for a "
                "feed"
            )
        return problems
