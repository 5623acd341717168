"""The options of ``df.writeStream.format("upstream")``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ...conf.errors import OptionError
from ...conf.locations import absolute_location, checkpoint_location
from ...conf.options import (
    boolean,
    bytes_,
    columns,
    duration_us,
    one_of,
    option,
    parse_options,
    parsed,
    positive_int,
    text,
    whole,
)
from ...conf.staleness_target import StalenessTarget
from ...conf.units import parse_duration_us
from ...storage.folder import TableFolder
from .history import Keep
from .maintenance_rules import MaintenanceRules

__all__ = ["SPARKS_OWN", "STORAGE_PREFIX", "Retention", "SinkOptions", "SinkTarget", "parse_sink_options"]

STORAGE_PREFIX = "storage."
SPARKS_OWN = ("checkpointLocation", "queryName")
"""What Spark's own DataStreamWriter puts among the options."""


@dataclasses.dataclass(frozen=True)
class Retention:
    """How long a deletion is remembered: a duration, or a number in the time column's own unit."""

    duration_us: int | None = None
    number: float | None = None

    @classmethod
    def parse(cls, value: str) -> Retention:
        """Read ``7 days``, or ``3600``."""
        try:
            number = float(value)
        except ValueError:
            return cls(duration_us=parse_duration_us(value))
        if not 0 <= number < float("inf"):
            raise ValueError
        return cls(number=number)


@dataclasses.dataclass(frozen=True)
class SinkOptions:
    """What the user says of the table. `path` and `key` must be given."""

    path: str = option("path", text(), "", "Where the Delta table lies: a folder, or the address of an object store.")
    key: tuple[str, ...] = option(
        "key",
        columns(),
        (),
        "The update key: the table holds one row for each of its values. Columns, or fields of structs "
        "(`position.id`).",
    )
    time: str | None = option(
        "time",
        text(),
        None,
        "The column that says which of two rows of a key is newer; without it the row that arrives later is.",
    )
    guard: str | None = option(
        "guard",
        one_of("time", "arrival"),
        None,
        "What says which of two rows of a key is newer: `time`, the default where a time column is given, or "
        "`arrival`, the default where none is. With `arrival` a "
        "time column says only how far the feeds are complete: for times that are not to be trusted, or absent from "
        "some rows.",
    )
    keep: Keep = option(  # noqa: RUF009 it is frozen
        "keep",
        parsed("latest, 'latest N' or all", Keep.parse),
        Keep(),
        "What the table keeps: `latest`, the newest row of each key; `latest N`, its N newest, one for each time; "
        "`all`, every row, nothing compared, with a key or without. "
        "Fixed when the table is made; `upstream keep` changes N, and makes one of the first two the other.",
    )
    delete_when: str | None = option(
        "deleteWhen",
        text(),
        None,
        "A column of booleans: a row in which it is true deletes its key, from its time on. The table does not have "
        "this column. `write_latest` takes an SQL condition or a "
        "column expression, too.",
    )
    late_output: str | None = option(
        "lateOutput",
        text(),
        None,
        "Where a Delta table of late rows is kept: those with a time below the low-watermark that the query had "
        "committed for their feed. They take part as any others.",
    )
    conflict_output: str | None = option(
        "conflictOutput",
        text(),
        None,
        "Where a Delta table of conflicting rows is kept: those that lost to another row of the same key and time with "
        "another content. They are counted in any case.",
    )
    text_output: str | None = option(
        "textOutput",
        text(),
        None,
        "Where a Delta table of rows is kept that have text which is not UTF-8, as bytes: such rows then do not get "
        "into the table, and are counted. Without it they do; Spark and Arrow "
        "read them, and other readers, Polars and deltalake among them, refuse the column.",
    )
    merge_schema: bool = option(
        "mergeSchema",
        boolean(),
        False,
        "Whether the table gets columns that the query has and it has not, wider types where the query's are wider, "
        "and nulls in columns that the query lacks.",
    )
    buckets: int = option(
        "buckets",
        positive_int(),
        16,
        "Into how many parts the table is cut by its key. A commit rewrites the parts that it touches. Fixed when the "
        "table is made; `upstream rebucket` changes it.",
    )
    engine: str = option(
        "engine",
        one_of("auto", "rewrite", "vectors"),
        "auto",
        "How a commit takes rows out of the table. rewrite: by writing anew the parts that it touches, which every "
        "reader of Delta can read. "
        "vectors: by marking rows as deleted (Delta's deletion vectors, which not every reader can read), so that a "
        "commit costs what changed "
        "and not what is there. auto: rewrite, unless the table has deletion vectors: then vectors in parts of 100,000 "
        "rows or more. A new table gets them if `expectedKeys` says that "
        "its parts will be that large, which is said once; one without them stays so until `vectors` is asked for. The "
        "table's property `delta.enableDeletionVectors=false` forbids them.",
    )
    expected_keys: int | None = option(
        "expectedKeys",
        whole(1),
        None,
        "How many keys a new table is to hold. `write_latest` and `write_batch` divide it by this number, and "
        "`engine=auto` goes by it.",
    )
    index_location: str | None = option(
        "indexLocation",
        text(),
        None,
        "Where the workers keep, on a disk of their own, where each key's row lies, for the engine vectors. A cache: "
        "what is not there is made "
        "anew from the table. A folder below the system's temporary one unless given.",
    )
    index_limit: int = option(
        "indexLimit",
        bytes_(),
        20 << 30,
        "How much room that may take on each worker, for this table: 36 bytes for each row with a whole number as its "
        "key.",
    )
    tombstone_retention: Retention | None = option(  # noqa: RUF009 it declares a field, as for the others
        "tombstoneRetention",
        parsed(
            "a duration such as '7 days'; a number, in its own unit, where the time column holds numbers",
            Retention.parse,
        ),
        None,
        "How far the low-watermark has to be beyond a deletion before the deletion is forgotten: an older row that "
        "comes after that "
        "is taken for a new one. 7 days unless given; where the time column holds numbers, nothing is forgotten unless "
        "it is given.",
    )
    lease_us: int = option(
        "lease",
        duration_us(),
        5 * 60 * 1_000_000,
        "For how long a query that says nothing of itself is taken to be still writing the table, so that another one "
        "is refused. Queries "
        "say so with their batches, and those of `write_latest` also in between. With `0 s` none is refused, and of "
        "two that commit at the same moment one fails.",
    )
    target: StalenessTarget | None = option(  # noqa: RUF009 it is frozen
        "target",
        parsed("a figure of staleness with its bound, such as 'p99 < 10 s'", StalenessTarget.parse),
        None,
        "The bound that the staleness of each batch is to keep to: mean, p50, p99 or max. Whether it did is in the "
        "commit's summary.",
    )
    durability: str = option(
        "durability",
        one_of("process", "power"),
        "process",
        "What a committed batch outlives on a disk. `process`: the end of any process, at any moment. `power`: a power "
        "cut as well, since a commit waits until its files "
        "are on the disk. An object store keeps what it has confirmed, with either.",
    )
    metrics: str | None = option(
        "metricsLocation",
        text(),
        None,
        "Where a Delta table with a row of figures for each commit is kept. Queries may share one.",
    )
    maintenance: str = option(
        "maintenance",
        one_of("auto", "off"),
        "auto",
        "Whether the query looks after the table between batches: checkpoints of its log, removal of log entries and "
        "files that are past `retention`, of files that failed tasks left, "
        "small files put together. With `off` it grows until `upstream maintain` or VACUUM is run.",
    )
    retention_us: int | None = option(
        "retention",
        duration_us(),
        None,
        "How long a version of the table can still be read, by a query that has opened it, by time travel, or by one "
        "that follows the table, after another took its place. "
        "What was said last, as the table records it; 7 days for a new one. VACUUM goes by it too, since the table's "
        "property delta.deletedFileRetentionDuration follows.",
    )
    retention_versions: int | None = option(
        "retentionVersions",
        whole(100),
        None,
        "The most versions that are kept, however young they are, since each commit lists the log's folder. What was "
        "said last, as the table records it; 10000 for a new one, "
        "which at a commit a second are 2.8 hours.",
    )
    maintenance_budget_us: int = option(
        "maintenanceBudget",
        duration_us(),
        2_000_000,
        "The most time that maintenance takes after a commit (about every hundredth, and in tables with deletion "
        "vectors whenever a bucket has become bad to read); what is not done by then waits for the next time. A bucket "
        "that was begun is ended.",
    )

    def maintenance_rules(self, configuration: Mapping[str, str]) -> MaintenanceRules | None:
        """How a table with these properties is looked after; None if it is not."""
        if self.maintenance == "off":
            return None
        budget_s = self.maintenance_budget_us / 1e6
        return MaintenanceRules.of_table(configuration, self.retention_us, self.retention_versions, budget_s)


@dataclasses.dataclass(frozen=True)
class SinkTarget:
    """Where a query writes, and by which name the table knows it.

    Attributes
    ----------
    options : SinkOptions
        The user's options.
    location : str
        The table's absolute path, or its address if it is not on a local disk.
    storage : mapping
        Options for the object store. Never shown.
    checkpoint : str
        The query's checkpoint location.
    metrics : str or None
        The metrics table's absolute path or address.
    application : str or None
        Who writes a batch; None is the query, by the id in its checkpoint.
    repeatable : bool
        Whether the table is to remember which of the writer's batches it has.
    late, conflicts, texts : str or None
        The same of the tables of late and of conflicting rows, and of those with text that is none.
    of_query : bool
        Whether Spark numbers the batches, and so repeats none but the last; else a number that is not above the last is
        taken for a repeat.
    offsets : str or None
        What a query's batch reads, where it is no writer's checkpoint that says so.
    numbered_by : str or None
        The query whose input numbers the rows, where the writer's name is another.
    """

    options: SinkOptions
    location: str
    storage: Mapping[str, str] = dataclasses.field(repr=False)
    checkpoint: str
    metrics: str | None = None
    application: str | None = None
    repeatable: bool = True
    late: str | None = None
    conflicts: str | None = None
    texts: str | None = None
    of_query: bool = True
    offsets: str | None = dataclasses.field(default=None, repr=False)
    numbered_by: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the table lies on a disk of this machine (or one mounted there)."""
        return self.folder.is_local

    @property
    def folder(self) -> TableFolder:
        """The table's folder."""
        return TableFolder(self.location, self.storage, self.is_durable)

    @property
    def is_durable(self) -> bool:
        """Whether a committed batch is to outlive a power cut."""
        return self.options.durability == "power"

    @property
    def checkpoint_folder(self) -> TableFolder:
        """The checkpoint's folder, for which the store's options are the table's."""
        return TableFolder(self.checkpoint, self.storage, self.is_durable)

    def masked(self, message: object) -> str:
        """A message without the values of the storage options."""
        return self.folder.masked(message)


def parse_sink_options(given: Mapping[str, str], *, started: bool = True) -> SinkTarget:
    """The target that the options describe.

    Parameters
    ----------
    given
        The user's options, and those that Spark adds.
    started
        Whether the query has been started, so that its checkpoint location must be known.

    Raises
    ------
    OptionError
        Naming all that is unknown, mistyped or missing.
    """
    (options,) = parse_options(given, [SinkOptions], ignored=SPARKS_OWN, ignored_prefixes=(STORAGE_PREFIX,))
    lowered = {name.lower(): value for name, value in given.items()}
    checkpoint = lowered.get("checkpointlocation", "").strip()
    wanted = {"path": options.path, "key": options.key or options.keep.count is None}
    absent = [name for name, value in wanted.items() if not value]
    if absent:
        raise OptionError(
            f"the sink is not told its {' and '.join(absent)}",
            expected="path, the folder of the table, and key, the columns that name what is updated",
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
    others = {"metricsLocation": options.metrics, "lateOutput": options.late_output}
    others |= {"conflictOutput": options.conflict_output, "textOutput": options.text_output}
    places = {name: None if place is None else absolute_location(place) for name, place in others.items()}
    _check_apart({"path": location, **places})
    metrics, late, conflicts, texts = places.values()
    where = checkpoint_location(checkpoint) if checkpoint else ""
    return SinkTarget(options, location, storage, where, metrics, late=late, conflicts=conflicts, texts=texts)


def _check_apart(places: Mapping[str, str | None]) -> None:
    taken: dict[str, str] = {}
    for name, place in places.items():
        if place is not None and taken.setdefault(place, name) != name:
            raise OptionError(
                f"{taken[place]} and {name} are both {place}",
                expected="a folder of its own for each table",
                hint=f'give .option("{name}", "{place}_{name.removesuffix("Location").removesuffix("Output").lower()}")',
            )


def _check_together(options: SinkOptions) -> None:
    """Refuse what an option needs, or cannot be together with."""
    timed = options.time is not None and options.guard != "arrival" and options.keep.count is not None
    kept = f"keep={options.keep}"
    problems = [
        ("guard=time", options.guard == "time" and options.time is None, "a time column"),
        (kept, not timed and (options.keep.count or 1) > 1, "a time column, and no guard=arrival"),
        ("conflictOutput", not timed and options.conflict_output is not None, "a time column that decides: rows conflict that have one time"),
        ("lateOutput", options.time is None and options.late_output is not None, "a time column: rows are late by their time"),
        ("deleteWhen", options.keep.count is None and options.delete_when is not None, "another keep than all, under which nothing leaves the table"),
    ]  # fmt: skip
    wrong = [(what, needs) for what, holds, needs in problems if holds]
    if wrong:
        raise OptionError(
            "; ".join(f"{what} needs {needs}" for what, needs in wrong),
            hint="leave out " + " and ".join(what for what, _ in wrong) + ", or give what it needs",
        )


def _check_storage(storage: Mapping[str, str]) -> None:
    """Refuse what would let one writer's commit overwrite another's: each takes a version's log entry only if there is
    none.
    """
    for name, value in storage.items():
        unsafe = name.endswith("allow_unsafe_rename") and value.strip().lower() not in ("false", "0", "off", "no", "")
        disabled = name.endswith("conditional_put") and value.strip().lower() == "disabled"
        if unsafe or disabled:
            raise OptionError(
                f"{STORAGE_PREFIX}{name} is {value}",
                expected="a store that puts an object only if there is none: S3 and most that speak its protocol do",
                hint="leave this option out; if the store cannot do that, keep the table in one that can",
            )
