"""A job in SQL: its sources, read as their statements say, and its views, as its text defines them."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from ..conf.errors import OptionError
from ..conf.locations import absolute_location, format_option, source_address
from ..conf.options import path_argument
from ..core.rows.key import Key
from ..datasource.options import reads_changes
from ..datasource.schema import feed_key, feed_time
from ..hosting.job_file import apply, definitions, differences
from ..hosting.journal import Settings
from ..hosting.registry import Registry, registry_now
from ..hosting.table_merge import GivenForTables
from ..language.statements import CreateSource, Definition, Environment, parse, script, text_of
from ..operators.ingest.dataframe import copies_late
from ..operators.relations.plan.nodes import Stream
from .definitions import columns_of, no_event_time, time_zone_of
from .queries import Queries, queries
from .stream import UpdateStream, feed_columns, read, spelt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BOOLEANS = (("updates", "true"), ("coalesce", "false"))
_OF_QUEUES = (
    "policy",
    "budget",
    "batch_budget",
    "batch_duration",
    "access_interval",
    "weight",
    "cost",
    "half_life",
    "stalest_keys",
)
_ITS_QUEUE = "its queue has: queue = 'in-place', queue.budget = 10000, queue.weight = 'speed'"
_TO_KAFKA = ("bootstrap_", "security_", "sasl_", "ssl_", "isolation_")


@dataclass(frozen=True)
class NamedStream:
    """A stream that a program gives to a job's text."""

    name: str
    stream: UpdateStream
    updates: bool = True  # a row replaces the earlier row of its key
    dead_letter_rows: Literal["late"] | None = None


def source(
    name: str,
    rows: UpdateStream | DataFrame,
    *,
    updates: bool = True,
    dead_letter_rows: Literal["late"] | None = None,
    **options: Any,
) -> NamedStream:
    """Name a stream or a streaming DataFrame, so that the views of :func:`upstream.sql` read it.

    Parameters
    ----------
    name
        The source's name in queries.
    rows
        An update stream, or a streaming DataFrame.
    updates
        Whether a row replaces the earlier row of its key, and tombstones delete it. With False each row stays.
    dead_letter_rows
        With ``late``, rows that are late for a view are written to the dead-letter table. They are counted in any case.
    **options
        For a DataFrame: ``key``, ``event_time``, and the other arguments of :meth:`UpdateStream.from_dataframe`.

    Returns
    -------
    NamedStream
        For the argument `sources` of :func:`upstream.sql`.

    Raises
    ------
    OptionError
        `rows` is not a stream, a DataFrame has no ``key``, or an update stream has options.

    Examples
    --------
    >>> rows = spark.readStream.schema("vehicle_id INT, timestamp TIMESTAMP").csv("feed/", header=True)
    >>> buses = us.source("buses", rows, key="vehicle_id", event_time="timestamp")
    >>> text = "CREATE MATERIALIZED VIEW fleet AS SELECT COUNT(*) AS n FROM LATEST(buses)"
    >>> job = us.sql(spark, text, sources=[buses], to="source_lake")
    >>> job.start(availableNow=True).awaitTermination()
    >>> job.scan("fleet").collect().rows()
    [(2,)]
    """
    if not isinstance(rows, UpdateStream):
        if options.get("key") is None:
            raise OptionError(
                f"the source '{name}' is a DataFrame, and has no key",
                expected="the column or columns of the update key",
                hint=f"us.source({name!r}, df, key=…, event_time=…)",
            )
        options.setdefault("name", name)
        return NamedStream(name, UpdateStream.from_dataframe(rows, **options), updates, dead_letter_rows)
    if options:
        raise OptionError(
            f"the source '{name}' is an update stream, and has the options {', '.join(options)}",
            expected="these options only for a DataFrame",
            hint="give them where the stream is made, such as us.read(…)",
        )
    return NamedStream(name, rows, updates, dead_letter_rows)


def sql(
    spark: SparkSession,
    text: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str] | None = None,
    sources: Sequence[NamedStream] = (),
    change: bool = False,
    **options: Any,
) -> Queries:
    """Open a job that SQL defines: its sources, tables, views, and materialized views.

    Parameters
    ----------
    spark
        The session that runs the job.
    text
        CREATE statements separated by semicolons, or the path of a file with them that ends in ``.sql``.
    to
        The folder in which each materialized view has a table of its name.
    checkpoint
        The job's checkpoint [default: `to` followed by ``_checkpoint``].
    sources
        Streams and DataFrames that :func:`upstream.source` names, beside those of CREATE SOURCE.
    change
        Whether to alter and drop what differs from the text in the checkpoint. By default, a difference is an error.
    **options
        Options of the object store with the tables, which begin with ``storage.``.

    Returns
    -------
    Queries
        To be started.

    Raises
    ------
    OptionError
        A statement or an option is wrong, the text has other than CREATE statements, or the text differs from the
        checkpoint's without `change`.
    QueryRefusedError
        A query does not fit its sources, or needs unbounded state. The message points at the place.

    Notes
    -----
    Guarantee: the text takes effect as a whole, with one batch. A value ``env('NAME')`` of an option is read from the
    environment each time the job starts, and stored nowhere.

    Examples
    --------
    >>> job = us.sql(
    ...     spark,
    ...     '''
    ...     CREATE SOURCE buses FROM 'feed/' WITH (key = 'vehicle_id', event_time = 'timestamp');
    ...     CREATE MATERIALIZED VIEW fleet AS SELECT COUNT(*) AS n FROM LATEST(buses);
    ...     ''',
    ...     to="sql_lake",
    ... )
    >>> job.start(availableNow=True).awaitTermination()
    >>> job.scan("fleet").collect().rows()
    [(2,)]
    """
    wanted = definitions([*script(text_of(text))])
    folder = absolute_location(path_argument("to", to)).rstrip("/")
    job = queries(spark, checkpoint=checkpoint or f"{folder}_checkpoint", to=folder, **options)
    define_sources(job, spark, wanted, sources)
    storage = GivenForTables.of(options, overwrite=False).storage
    apply(job.checkpoint, wanted, storage, time_zone_of(spark), change=change)
    return job


def define_sources(
    job: Queries, spark: SparkSession, wanted: Sequence[Definition], sources: Sequence[NamedStream]
) -> None:
    """Declare the streams of a job's text, and those that a program gives."""
    known = {each.name.lower() for each in wanted}
    for each in sources:
        if each.name.lower() in known:
            raise OptionError(
                f"there are two definitions of '{each.name}'", expected="CREATE SOURCE or us.source, once for a name"
            )
        known.add(each.name.lower())
    for each in wanted:
        if isinstance(each, CreateSource):
            define_source(job, spark, each)
    for each in sources:
        job.source(each.name, each.stream, updates=each.updates, dead_letter_rows=each.dead_letter_rows)


def define_source(job: Queries, spark: SparkSession, statement: CreateSource) -> None:
    """Declare the stream of a statement."""
    arguments, queue, updates = arguments_of(statement)
    arguments.setdefault("checkpoint", job.checkpoint)  # for the columns, which the feed may add to
    with _masked(statement):
        feed_columns(**arguments)
        stream = read(spark, **arguments)
        stream = stream if queue is None else stream.queue(**queue)
        job.source(statement.name, stream, updates=updates, dead_letter_rows=_dead_letter_rows(statement))


def check_definitions(wanted: Sequence[Definition], to: str, storage: Mapping[str, str]) -> None:
    """Raise the errors of a new job's sources and queries, without a session."""
    settings = Settings(to, 1)
    for each in wanted:
        if isinstance(each, CreateSource):
            stream = _stream_of(each)
            if stream is None:
                return
            settings = settings.with_stream(stream)
    differences(wanted, Registry(0, settings.catalog(), {}, settings), storage, None)


def _stream_of(statement: CreateSource) -> Stream | None:
    """Return the stream of a statement; None for change events, and if only Spark has one of its types."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arguments, queue, updates = arguments_of(statement)
    arguments.pop("checkpoint", None)
    time = arguments.get("event_time")
    if reads_changes(arguments):
        return None
    with _masked(statement):
        found = feed_columns(**arguments)
    if found is None:
        return None
    time = feed_time(found) if time is None else time
    if time is None:
        raise no_event_time(statement.name)
    schema = to_arrow_schema(found, timezone="UTC").remove_metadata()
    newest = bool(arguments.get("coalesce")) or (queue is not None and queue["policy"] != "append")
    key = spelt(Key.given(arguments["key"] or feed_key(found)), found)
    (time,) = spelt(Key((time,)), found)
    return Stream(
        statement.name, columns_of(schema, time, arguments.get("timeformat")), key, time, updates=updates, newest=newest
    )


@contextmanager
def _masked(statement: CreateSource) -> Generator[None]:
    """Mask the values that a statement takes from the environment in all errors."""
    try:
        yield
    except Exception as error:
        masked = str(error)
        for each in statement.options.values():
            if isinstance(each, Environment) and (value := os.environ.get(each.variable)):
                masked = masked.replace(value, f"env('{each.variable}')")
        if masked == str(error):
            raise
        # Spark adds a traceback to what its process for Python says.
        sentence = masked.rpartition("Error: ")[2].partition("\n")[0]
        raise OptionError(f"CREATE SOURCE {statement.name}: {sentence}") from None


def resume(job: Queries, spark: SparkSession) -> None:
    """Declare the streams of the statements that a checkpoint has."""
    for statement in map(parse, registry_now(job.checkpoint).statements.values()):
        if isinstance(statement, CreateSource):
            define_source(job, spark, statement)


def arguments_of(statement: CreateSource) -> tuple[dict[str, Any], dict[str, Any] | None, bool]:
    """Return the arguments of :func:`read`, those of a queue, and whether a row replaces the earlier one of its key."""
    given = {name.lower(): _value(value, name) for name, value in statement.options.items()}
    key = [each.strip() for each in given.pop("key", "").split(",") if each.strip()] or None
    updates, coalesce = (_boolean(name, given.pop(name, value)) for name, value in _BOOLEANS)
    given = {name: value for name, value in given.items() if not _names_dead_rows(name)}
    copies_late(_dead_letter_rows(statement))
    queue = _queue_of(given)
    path, implied = source_address(statement.path)
    connector = {**given, **implied}.get("connector", "files")
    # The arguments watermark and watermark_delay exclude each other, and the source's options do not.
    own = ("event_time",) if "watermark" in given else ("event_time", "watermark_delay")
    named = {name: given.pop(name) for name in own if name in given}
    options = {_option(name, connector): value for name, value in given.items()}
    named |= {"coalesce": True} if coalesce else {}
    return {"path": path, "key": key, **named, **implied, **options}, queue, updates


def _dead_letter_rows(statement: CreateSource) -> Any:
    """Return which rows of a source become dead letters, beside malformed ones."""
    return next((_value(value, name) for name, value in statement.options.items() if _names_dead_rows(name)), None)


def _names_dead_rows(option: str) -> bool:
    return option.replace("_", "").lower() == "deadletterrows"


def _boolean(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise OptionError(f"{name} = {value!r}", expected="true or false")
    return value.lower() == "true"


def _queue_of(given: dict[str, str]) -> dict[str, Any] | None:
    """Take the options of a queue, and return them as arguments of :meth:`UpdateStream.queue`."""
    named = [*signature(UpdateStream.queue).parameters][2:]  # after self and policy
    wrong = next((name for name in given if name.startswith("queue.") and name[6:] not in named), None)
    bare = next((name for name in given if name in _OF_QUEUES), None)
    if wrong is not None:
        raise OptionError(f"a queue has no option {wrong}", expected=", ".join(f"queue.{each}" for each in named))
    if bare is not None:
        raise OptionError(f"a source has no option {bare}", expected="an option of the source", hint=_ITS_QUEUE)
    found = {name: given.pop(f"queue.{name}") for name in named if f"queue.{name}" in given}
    policy = given.pop("queue", None)
    if policy is None and found:
        raise OptionError(f"queue.{next(iter(found))} has no queue", expected="queue = 'in-place', or another policy")
    if policy is None:
        return None
    return {"policy": policy, **{name: _argument(name, value) for name, value in found.items()}}


def _argument(name: str, value: str) -> str | int:
    return int(value) if name in ("shards", "stalest_keys") and value.isdecimal() else value


def _option(name: str, connector: str) -> str:
    """Return the source's own name of an option: names may have underscores, and Kafka's common ones no prefix."""
    if connector == "kafka" and name.startswith(_TO_KAFKA):
        return "kafka." + name.replace("_", ".")
    # The argument `watermark` is no text.
    aliases = {"topic": "subscribe", "watermark": "Watermark", "format": format_option({"connector": connector})}
    return aliases.get(name, name if "." in name else name.replace("_", ""))


def _value(value: str | Environment, name: str) -> str:
    if isinstance(value, str):
        return value
    found = os.environ.get(value.variable)
    if found is None:
        raise OptionError(
            f"{name} = env('{value.variable}'), and the environment has no such variable",
            hint=f"set {value.variable} where the job starts",
        )
    return found
