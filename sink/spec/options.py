"""The options of ``df.writeStream.format("upstream")``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ...conf.errors import OptionError
from ...conf.locations import Place, absolute_location, check_apart, checkpoint_location
from ...conf.options import (
    bytes_,
    duration_us,
    one_of,
    option,
    parse_options,
    parsed,
    positive_int,
    text,
    whole,
)
from ...conf.units import StalenessTarget, parse_duration_us
from ...core.feedback.checkpoint_layout import beside_checkpoint, dead_letters_folder
from ...core.rows.key import BY_ARRIVAL, KEY_OPTION, NO_KEY, Key
from ...storage.folder import TableFolder
from .history import ColumnGroup, History, NullRule, PartialUpdates
from .maintenance_rules import MaintenanceRules

LATE, CONFLICTS, TEXT = "late", "conflicts", "text"
"""The kinds of rows that may go to the dead-letter table."""

STORAGE_PREFIX = "storage."
SPARKS_OWN = ("checkpointLocation", "queryName")
"""What Spark's own DataStreamWriter puts among the options."""


@dataclasses.dataclass(frozen=True)
class Retention:
    """The time for which a deletion is remembered: a duration, or a number in the time column's own unit."""

    duration_us: int | None = None
    number: float | None = None

    @classmethod
    def parse(cls, value: str) -> Retention:
        try:
            number = float(value)
        except ValueError:
            return cls(duration_us=parse_duration_us(value))
        if not 0 <= number < float("inf"):
            raise ValueError
        return cls(number=number)


def _kinds(value: str) -> frozenset[str]:
    found = frozenset(each.strip().lower() for each in value.split(","))
    if not found <= {LATE, CONFLICTS, TEXT}:
        raise ValueError
    return found


@dataclasses.dataclass(frozen=True)
class SinkOptions:
    """The user's options for the table. `path` and `key` must be given."""

    path: str = option(
        "path", text(), "", "Set the location of the Delta table: a folder, or an address in an object store."
    )
    key: Key = option(  # noqa: RUF009 it declares a field
        "key",
        KEY_OPTION,
        NO_KEY,
        "Set the update key: columns, or fields of structs (`position.id`). The table holds one row for each "
        "value of the key.",
    )
    time: str | None = option(
        "eventTime",
        text(),
        None,
        "Name the column of the event time: the row of a key with the larger time is newer. If it is not set, "
        "the row that arrives later is newer.",
    )
    sequence: Key = option(  # noqa: RUF009 it declares a field
        "sequenceBy",
        KEY_OPTION,
        NO_KEY,
        "Name the columns, or fields of structs (`source.pos`), that order the rows of a key in place of "
        "`eventTime`, as in change data. The first one is compared, then the next; text by its bytes. `_arrival`: the "
        "row that arrives later is newer. `eventTime` then only moves the low-watermark, and may be unreliable, or "
        "null in some rows.",
    )
    history: History = option(  # noqa: RUF009 it is frozen
        "history",
        parsed("latest, 'latest N' or all", History.parse),
        History(),
        "Choose what the table keeps. `latest`: the newest row of each key. `latest N`: its N newest rows, "
        "one for each time. `all`: every row, without comparison, with or without a key. The first write "
        "fixes the choice; `upstream set-history` changes N, and changes `latest` to `latest N` or back.",
    )
    delete_when: str | None = option(
        "deleteWhen",
        text(),
        None,
        "Name a boolean column: a row in which it is true deletes its key, from the row's time on. The table "
        "does not get this column. `write_latest` also accepts an SQL condition or a column expression.",
    )
    dead_letters: str | None = option(
        "deadLetters",
        text(),
        None,
        "Set the location of the dead-letter table. If it is not set: `dead_letters` below `checkpointLocation`.",
    )
    dead_letter_rows: frozenset[str] = option(
        "deadLetterRows",
        parsed("some of late, conflicts, text, separated by commas", _kinds),
        frozenset(),
        "Name the rows to write to the dead-letter table. `late`: copies of rows with a time below the committed "
        "low-watermark of their feed; the main table also gets them. `conflicts`: rows that lost to a row with the "
        "same key and time, but other content; UpStream counts them in any case. `text`: rows whose text is not "
        "UTF-8. These stay out of the main table, because readers such as Polars and deltalake would reject the "
        "column.",
    )
    schema_evolution: str = option(
        "schemaEvolution",
        one_of("fail", "add"),
        "fail",
        "Choose what happens if the query's columns differ from the table's. `fail`: UpStream rejects the query. "
        "`add`: the table gets the query's new columns, and wider types where the query's are wider. Columns that the "
        "query lacks become null.",
    )
    null_means: NullRule = option(  # noqa: RUF009 it is frozen
        "nullMeans",
        parsed("null, unchanged, or unchanged: and names of columns", NullRule.parse),
        NullRule(),
        "Choose what a null in a row means. `null`: the column becomes null. `unchanged`: the value of the key's last "
        "row with a value stays, in all columns, or in those that follow (`unchanged: speed, heading`). The first "
        "write fixes the choice.",
    )
    column_groups: tuple[ColumnGroup, ...] = option(
        "columnGroups",
        parsed("groups such as 'lat, lon by position_time; state by state_time'", ColumnGroup.parse),
        (),
        "Name groups of columns with an order of their own. In a group, the key's row with the largest value in the "
        "column after `by` counts. A row in which that is null changes nothing in the group. The first write fixes the "
        "choice.",
    )
    buckets: int = option(
        "buckets",
        positive_int(),
        16,
        "Set the number of buckets of a new table. A commit rewrites the buckets that it touches. To change "
        "the number later, use `upstream rebucket`.",
    )
    engine: str = option(
        "engine",
        one_of("auto", "rewrite", "vectors"),
        "auto",
        "Choose how a commit removes rows. `rewrite`: it rewrites the buckets that it touches; every Delta reader "
        "can read the table. `vectors`: it marks rows as deleted, at a cost that depends on what changed; not "
        "every reader supports that. `auto`: `vectors` in buckets of 100,000 rows or more of a table with "
        "deletion vectors, otherwise `rewrite`. A new table gets them if `expectedKeys` implies such buckets, "
        "another one only by `vectors`. The table property `delta.enableDeletionVectors=false` forbids them.",
    )
    expected_keys: int | None = option(
        "expectedKeys",
        whole(1),
        None,
        "Set how many keys you expect in a new table. `write_latest` and `write_batch` derive the number of "
        "buckets from it, and `engine=auto` the choice of deletion vectors.",
    )
    index_location: str | None = option(
        "indexLocation",
        text(),
        None,
        "Set the folder, on each worker's own disk, for the index of the engine `vectors`: where each key's "
        "row is. The index is a cache; UpStream rebuilds missing parts from the table. If it is not set: a "
        "folder below the system's temporary folder.",
    )
    index_limit: int = option(
        "indexLimit",
        bytes_(),
        20 << 30,
        "Set the maximum size of the index on each worker, for this table. If the key is a whole number, a "
        "row takes 36 bytes.",
    )
    tombstone_retention: Retention | None = option(  # noqa: RUF009 it declares a field, as for the others
        "tombstoneRetention",
        parsed(
            "a duration such as '7 days'; a number, in its own unit, where the time column holds numbers",
            Retention.parse,
        ),
        None,
        "Set how far the low-watermark must pass a deletion before the table drops its tombstone. An older "
        "row that arrives after that counts as new. If it is not set: 7 days, but no tombstone is dropped if "
        "the time column holds numbers.",
    )
    lease_us: int = option(
        "lease",
        duration_us(),
        5 * 60 * 1_000_000,
        "Set how long the table rejects other queries after the last sign of life of the query that writes "
        "it. Each batch is such a sign, and queries of `write_latest` also give one between batches. With `0 "
        "s` no query is rejected; of two that commit at the same moment, one fails.",
    )
    target: StalenessTarget | None = option(  # noqa: RUF009 it is frozen
        "target",
        parsed("a figure of staleness with its bound, such as 'p99 < 10 s'", StalenessTarget.parse),
        None,
        "Set a bound for the staleness of each batch: its mean, p50, p99, or max. The summary of each commit "
        "records whether the batch met it.",
    )
    durability: str = option(
        "durability",
        one_of("process", "power"),
        "process",
        "Choose what a committed batch survives on a disk. `process`: the end of any process, at any moment. "
        "`power`: also a power cut, because a commit waits until its files are on the disk. With either, an "
        "object store keeps what it has confirmed.",
    )
    metrics: str | None = option(
        "metricsLocation",
        text(),
        None,
        "Set the location of a Delta table of metrics, with a row for each commit. Several queries can share one.",
    )
    maintenance: str = option(
        "maintenance",
        one_of("auto", "off"),
        "auto",
        "Choose whether the query maintains the table between batches. It writes checkpoints of the log, and "
        "compacts small files. It removes log entries and files past `retention`, and files that failed tasks "
        "left. With `off`, the table grows until you run `upstream maintain` or VACUUM.",
    )
    retention_us: int | None = option(
        "retention",
        duration_us(),
        None,
        "Set how long a version stays readable after the next one. Open queries, time travel, and queries that "
        "follow the table need it. The table records the last value given; for a new "
        "table, it is 7 days. VACUUM uses it too, by the table property delta.deletedFileRetentionDuration.",
    )
    retention_versions: int | None = option(
        "retentionVersions",
        whole(100),
        None,
        "Set the maximum number of versions to keep, however young they are: each commit lists the folder of "
        "the log. The table records the last value given; for a new table, it is 10000, or 2.8 hours at a "
        "commit a second.",
    )
    maintenance_budget_us: int = option(
        "maintenanceBudget",
        duration_us(),
        2_000_000,
        "Set the maximum time that maintenance takes after a commit. It runs about every hundred commits, and "
        "in tables with deletion vectors whenever a bucket has become slow to read. Unfinished work waits for "
        "the next time, except that a bucket once begun is finished.",
    )

    @property
    def by_arrival(self) -> bool:
        """Return True if the later arrival of two rows of a key is the newer one, whatever their times."""
        return self.sequence == BY_ARRIVAL

    @property
    def partial(self) -> PartialUpdates:
        """Return the parts of a row that are decided apart, as the user names them."""
        return PartialUpdates(self.null_means, self.column_groups)

    def maintenance_rules(self, configuration: Mapping[str, str]) -> MaintenanceRules | None:
        """Return the rules for a table with these properties; None if it is not maintained."""
        if self.maintenance == "off":
            return None
        budget_s = self.maintenance_budget_us / 1e6
        return MaintenanceRules.of_table(configuration, self.retention_us, self.retention_versions, budget_s)


@dataclasses.dataclass(frozen=True)
class SinkTarget:
    """The location of a query's table, and the query's name in it. All locations are absolute paths or addresses."""

    options: SinkOptions
    location: str
    storage: Mapping[str, str] = dataclasses.field(repr=False)  # options for the object store; never shown
    checkpoint: str
    metrics: str | None = None
    application: str | None = None  # the writer of a batch; None is the query, by the id in its checkpoint
    repeatable: bool = True  # True if the table is to remember which of the writer's batches it has
    dead_letters: str = ""  # the dead-letter table, if any
    of_query: bool = True  # True if Spark numbers the batches: a lower number is an error, not a repeat
    # a digest of the batch's offsets, if it does not come from the writer's checkpoint
    offsets: str | None = dataclasses.field(default=None, repr=False)
    numbered_by: str | None = None  # the query whose input numbers the rows, if it is not the writer

    @property
    def is_local(self) -> bool:
        """Return True if the table is on a disk of this machine, or one mounted there."""
        return self.folder.is_local

    @property
    def folder(self) -> TableFolder:
        return TableFolder(self.location, self.storage, self.is_durable)

    @property
    def is_durable(self) -> bool:
        """Return True if a committed batch must survive a power cut."""
        return self.options.durability == "power"

    @property
    def checkpoint_folder(self) -> TableFolder:
        """Return the checkpoint's folder, with the table's store options."""
        return TableFolder(self.checkpoint, self.storage, self.is_durable)

    @property
    def dead_letter_rows(self) -> frozenset[str]:
        return self.options.dead_letter_rows

    @property
    def tables(self) -> list[Place]:
        """Return the table and those beside it, each with the option that names it."""
        named = {"path": self.location, "metricsLocation": self.metrics, "deadLetters": self.options.dead_letters}
        given = [(name, place) for name, place in named.items() if place is not None]
        return [each for each in given if beside_checkpoint(each, self.checkpoint or None)]

    def masked(self, message: object) -> str:
        """Return a message without the values of the storage options."""
        return self.folder.masked(message)


def parse_sink_options(given: Mapping[str, str], *, started: bool = True) -> SinkTarget:
    """Return the options' target, perhaps without a checkpoint; an OptionError names all wrong options."""
    (options,) = parse_options(given, [SinkOptions], ignored=SPARKS_OWN, ignored_prefixes=(STORAGE_PREFIX,))
    lowered = {name.lower(): value for name, value in given.items()}
    checkpoint = lowered.get("checkpointlocation", "").strip()
    wanted = {"path": options.path, "key": options.key or options.history.count is None}
    absent = [name for name, value in wanted.items() if not value]
    if absent:
        raise OptionError(
            f"missing option: {', '.join(absent)}",
            expected="path, the folder of the table, and key, the columns that identify a row",
            hint="give " + " and ".join(f'.option("{name}", …)' for name in absent),
        )
    if not checkpoint and started:
        raise OptionError(
            "the option checkpointLocation is not set on this query",
            expected="a folder of its own for each query; its id is what tells a repeated batch from a new one",
            hint='give .option("checkpointLocation", …); the Spark setting of that name does not reach the sink',
        )
    storage = {name[len(STORAGE_PREFIX) :]: value for name, value in lowered.items() if name.startswith(STORAGE_PREFIX)}
    _check_storage(storage)
    location = absolute_location(options.path)
    _check_together(options)
    metrics = None if options.metrics is None else absolute_location(options.metrics)
    where = checkpoint_location(checkpoint) if checkpoint else ""
    letters = options.dead_letters or (dead_letters_folder(where) if where else "")
    letters = absolute_location(letters) if letters else ""
    target = SinkTarget(options, location, storage, where, metrics, dead_letters=letters)
    check_apart(target.tables, [("the checkpoint", where)] if where else ())
    return target


def _check_together(options: SinkOptions) -> None:
    """Refuse options without others that they need, or with others that they exclude."""
    timed = (options.time is not None or bool(options.sequence)) and not options.by_arrival
    timed = timed and options.history.count is not None
    kept = f"history={options.history}"
    problems = [
        (kept, not timed and (options.history.count or 1) > 1, "eventTime, or sequenceBy with columns"),
        ("deadLetterRows=conflicts", not timed and CONFLICTS in options.dead_letter_rows,
         "eventTime, or sequenceBy with columns: rows conflict that are equal in them"),
        ("nullMeans or columnGroups", bool(options.partial) and not (timed and options.history.latest),
         "eventTime, or sequenceBy with a column, and history=latest"),
        ("sequenceBy", options.history.count is None and bool(options.sequence),
         "a history other than all, under which no row is compared"),
        ("deadLetterRows=late", options.time is None and LATE in options.dead_letter_rows,
         "eventTime: rows are late by their time"),
        ("deleteWhen", options.history.count is None and options.delete_when is not None,
         "a history other than all, under which nothing leaves the table"),
    ]  # fmt: skip
    wrong = [(what, needs) for what, holds, needs in problems if holds]
    if wrong:
        raise OptionError(
            "; ".join(f"{what} needs {needs}" for what, needs in wrong),
            hint="leave out " + " and ".join(what for what, _ in wrong) + ", or give what it needs",
        )


def _check_storage(storage: Mapping[str, str]) -> None:
    """Refuse storage options that would let one writer's commit overwrite another's log entry."""
    for name, value in storage.items():
        unsafe = name.endswith("allow_unsafe_rename") and value.strip().lower() not in ("false", "0", "off", "no", "")
        disabled = name.endswith("conditional_put") and value.strip().lower() == "disabled"
        if unsafe or disabled:
            raise OptionError(
                f"{STORAGE_PREFIX}{name} is {value}",
                expected="a store that puts an object only if there is none, such as S3 and most that support its "
                "protocol",
                hint="leave this option out; if the store cannot do that, keep the table in one that can",
            )
