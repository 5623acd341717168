"""Steps that run in the source, if only a choice of columns is between (docs/decisions/0008)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa

from ...conf.errors import OptionError, SchemaError
from ...conf.locations import is_remote
from ...conf.options import boolean
from ..feedback.lanes import every_row
from .source_steps import STEPS_OPTION, ArrowStep, SourceSteps, parse_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


_SOURCE = "spark.connect.Read.DataSource"


def is_client_frame(df: DataFrame) -> bool:
    """Return whether a DataFrame belongs to a client of Spark Connect."""
    return getattr(df, "_jdf", None) is None and getattr(df, "_plan", None) is not None


def source_alone(df: DataFrame, name: str) -> Mapping[str, str] | None:
    """Return the options of the source of that format if `df` reads one path, as it is, and no more; else None."""
    root = _relation(df)
    if root.WhichOneof("rel_type") != "read" or not root.read.is_streaming or not root.read.HasField("data_source"):
        return None
    source = root.read.data_source
    named = getattr(root.read, "source_name", "") or getattr(source, "source_name", "")
    if source.format != name or source.schema or named or len(source.paths) > 1:
        return None
    return _options(source)


def sources_within(df: DataFrame, name: str | None) -> list[Mapping[str, str]]:
    """Return the options of each source of a format, or of any, at any depth; views of the server hide theirs."""
    return [_options(source) for source in _messages(_relation(df), _SOURCE) if name in (None, source.format)]


def _relation(df: DataFrame) -> Any:
    plan: Any = df._plan  # pyright: ignore[reportAttributeAccessIssue] PySpark has no public name for it
    client: Any = df.sparkSession.client
    # Not the whole message, which the client may compress.
    return plan.plan(client)


def _options(source: Any) -> dict[str, str]:
    # A path given to `load` is an option too, as on a classic session.
    return {**dict(source.options), **({"path": str(source.paths[0])} if source.paths else {})}


def _messages(message: Any, kind: str) -> Iterator[Any]:
    """Iterate over the messages of a kind within a message, itself included."""
    if message.DESCRIPTOR.full_name == kind:
        yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for each in [value] if hasattr(value, "DESCRIPTOR") else value:
            yield from _messages(each, kind)


_OWN_SOURCE = "upstream"
_CHECKPOINT = "checkpointLocation"
_STORAGE = "storage."
_MOST_BYTES = 200_000
"""Longer programs (a map with a model) are not passed as an option, which Spark sends with each task."""


def at_source(df: DataFrame, step: ArrowStep, schema: StructType) -> DataFrame | None:
    """Run a step in the source that `df` is read from, which spares Spark two conversions of each row.

    The step gets the batches that ``mapInArrow`` would give it, but larger ones. None if the plan has more than a
    choice of columns, or if the step cannot be passed to a source.
    """
    found = _chosen(df)
    if found is None:
        return None
    before, options = parse_steps(found.options)
    run = _as_from_spark(None if before is None else before.step(), found.places, _arrow_schema(df), step)
    rows = found.schema if before is None else before.rows
    # A client of Spark Connect has no files of a job: its workers have the package installed.
    context: Any = getattr(df.sparkSession, "_sc", None)
    archives: Sequence[str] = () if context is None else context._python_includes or ()
    try:
        moved = SourceSteps.of(rows, schema.json(), run, archives)
        option = dataclasses.replace(moved, stream=getattr(step, "stream", "")).to_option()
    except Exception:  # noqa: BLE001 of any kind, from any library: Spark tries next, and succeeds or reports the error
        return None
    if len(option) > _MOST_BYTES:
        return None
    return df.sparkSession.readStream.format(_OWN_SOURCE).options(**options, **{STEPS_OPTION: option}).load()


def with_checkpoint(df: DataFrame, checkpoint: str | None, storage: Mapping[str, str] | None = None) -> DataFrame:
    """Return the same rows and columns, with the query's checkpoint as an option of each source of ours."""
    if checkpoint is None:
        return df

    def more(options: Mapping[str, str]) -> dict[str, str]:
        return checkpoint_options(options, checkpoint, storage or {})

    if not any(map(more, _sources(df))):
        return df
    return _client_with(df, more) if is_client_frame(df) else _classic_with(df, more)


def checkpoint_options(given: Mapping[str, str], checkpoint: str, storage: Mapping[str, str]) -> dict[str, str]:
    """Return what a source's options lack to use its query's checkpoint, which `storage` opens in an object store.

    A source that reads from a store without options of its own gets nothing: it might not reach its feed with others.
    """
    names = {name.lower() for name in given}
    if _CHECKPOINT.lower() in names:
        return {}
    if not storage or not is_remote(checkpoint) or any(name.startswith(_STORAGE) for name in names):
        return {_CHECKPOINT: checkpoint}
    if any(map(is_remote, _paths(given))):
        return {}
    return {_CHECKPOINT: checkpoint, **{_STORAGE + name: value for name, value in storage.items()}}


def _classic_with(df: DataFrame, more: Callable[[Mapping[str, str]], Mapping[str, str]]) -> DataFrame:
    """Return the rows of a classic session's DataFrame, whose sources have `more` options."""
    from pyspark.sql import DataFrame as Rows

    session: Any = df.sparkSession
    jvm, known = session._jvm, cast("Any", df)._jdf
    made: list[tuple[Any, Any]] = []

    def replaced(plan: Any) -> Any:
        """Return the plan itself if no source below it changes."""
        before = list(_each(plan.children()))
        if not before:
            return changed(plan) if _is_own(plan) else plan
        after = [replaced(each) for each in before]
        if all(one is other for one, other in zip(before, after, strict=True)):
            return plan
        return plan.withNewChildren(jvm.PythonUtils.toSeq(after))

    def changed(source: Any) -> Any:
        # A source that occurs twice is read once.
        found = next((new for old, new in made if old.equals(source)), None)
        if found is not None:
            return found
        added = more(_options_of(session, source))
        if not added:
            return source
        # Spark keeps the options of a source of Python where it was made, so a new one takes its place.
        reader = session.readStream.format(_OWN_SOURCE).options(**added)._jreader
        reader = reader.schema(source.schema()).options(source.extraOptions().asCaseSensitiveMap())
        fresh = reader.load().queryExecution().analyzed()
        new = source.copy(
            fresh.source(), source.sourceName(), fresh.table(), fresh.extraOptions(), source.output(),
            source.catalog(), source.identifier(), source.v1Relation(), source.sourceIdentifyingName(),
        )  # fmt: skip
        made.append((source, new))
        return new

    plan = replaced(known.queryExecution().analyzed())
    return Rows(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def _client_with(df: DataFrame, more: Callable[[Mapping[str, str]], Mapping[str, str]]) -> DataFrame:
    """Return the rows of a client's DataFrame, whose sources have `more` options in what the server gets."""
    from pyspark.sql.connect.dataframe import DataFrame as ClientRows
    from pyspark.sql.connect.plan import LogicalPlan

    class WithOptions(LogicalPlan):
        def plan(self, session: Any) -> Any:
            assert self._child is not None
            whole = self._child.plan(session)
            for source in _messages(whole, _SOURCE):
                if source.format == _OWN_SOURCE:
                    for name, value in more(_options(source)).items():
                        source.options[name] = value
            return whole

    known: Any = df
    return cast("DataFrame", ClientRows(WithOptions(known._plan), known.sparkSession))


def source_options(df: DataFrame) -> Mapping[str, str] | None:
    """Return the options of the source of `df`, in lower case; None if the plan has more than a choice of columns."""
    found = _chosen(df)
    if found is None:
        return None
    _, options = parse_steps(found.options)
    return {name.lower(): value for name, value in options.items()}


def reads_coalesced(df: DataFrame) -> bool:
    """Return whether any source of a DataFrame, at any depth, keeps only the newest row of each key of a batch."""
    return any(map(_coalesces, _sources(df)))


def check_coalesced(df: DataFrame, sequence: str) -> None:
    """Refuse a DataFrame whose source coalesces by time or arrival, although `sequence` orders the table's rows."""
    for options in _sources(df):
        if _coalesces(options) and "sequenceby" not in {name.lower() for name in options}:
            raise OptionError(
                f"the source coalesces by time or arrival, and the table by the sequence {sequence}",
                expected="one order for both: the source has dropped rows that the table would keep",
                hint=f'give the source the option sequence_by="{sequence}" too, or leave out its coalesce',
            )


def paths_read(df: DataFrame) -> list[str]:
    """Return the paths and patterns that a DataFrame streams from, at any depth, through any of Spark's sources."""
    found: list[str] = []
    for options in _sources(df, None):
        found += _paths(options)
    return list(dict.fromkeys(found))


def _paths(options: Mapping[str, str]) -> list[str]:
    given = {name.lower(): value for name, value in options.items()}
    found = [given["path"]] if given.get("path") else []
    with contextlib.suppress(ValueError):  # the source refuses it
        found += [each for each in json.loads(given.get("paths") or "[]") if isinstance(each, str)]
    return found


def refuse_preimages(df: DataFrame, what: str) -> None:
    """Refuse a DataFrame with preimages (`changes=full`) at any depth: `what` would take each for an update."""
    for options in _sources(df):
        given = {name.lower(): value for name, value in options.items()}
        if given.get("changes", "").strip().lower() == "full":
            raise SchemaError(
                f"{what} of rows that changes=full reads: a preimage is not an update of its key",
                expected="rows that each update a key, as changes=newest gives them",
                hint="remove changes, because group_by and join_latest find the earlier row of a key. Or process both "
                "images with Spark's own aggregates, or in foreachBatch",
            )


def _sources(df: DataFrame, name: str | None = _OWN_SOURCE) -> list[Mapping[str, str]]:
    """Return options of each streaming source, or of those with a name. Spark's older API shows the path alone."""
    if is_client_frame(df):
        return list(sources_within(df, name))
    known = _known(df)
    return [] if known is None else [options for source, options in known.sources if name in (None, source)]


def _coalesces(options: Mapping[str, str]) -> bool:
    given = {name.lower(): value for name, value in options.items()}.get("coalesce", "false")
    try:
        return bool(boolean().parse(given))
    except KeyError:
        return False  # the source refuses the word


def _as_from_spark(earlier: ArrowStep | None, places: Sequence[int], schema: pa.Schema, step: ArrowStep) -> ArrowStep:
    """Return a step that runs `earlier`, then `step` on the chosen columns with Spark's names and types."""

    def given(batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(place) for place in places]
        cast = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(cast, schema=schema)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return step(given(batch) for batch in (batches if earlier is None else earlier(every_row(batches))))

    return run


def _arrow_schema(df: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    # The zone is part of Arrow's type: a user's function that reads the hour gets the session's.
    return to_arrow_schema(df.schema, timezone=df.sparkSession.conf.get("spark.sql.session.timeZone"))


class _SourceChoice(NamedTuple):
    """The source of a plan that only chooses columns. The schema is Spark's JSON."""

    options: Mapping[str, str]
    schema: str
    places: Sequence[int]  # the positions of the chosen columns in the source


def _chosen(df: DataFrame) -> _SourceChoice | None:
    """Return the source of a plan that only chooses columns; None for any other plan."""
    if is_client_frame(df):
        # Columns that the client chooses have names, which only the server resolves.
        options = source_alone(df, _OWN_SOURCE)
        return None if options is None else _SourceChoice(options, df.schema.json(), range(len(df.columns)))
    known = _known(df)
    return None if known is None else known.choice


class _ClassicPlan:
    """What is known of the plan of a classic session's DataFrame: each look costs hundreds of calls of the JVM."""

    def __init__(self, df: DataFrame) -> None:
        # Not the DataFrame itself, which is the weak key of this object.
        self._session: Any = df.sparkSession
        self._frame: Any = cast("Any", df)._jdf

    @cached_property
    def sources(self) -> list[tuple[str | None, Mapping[str, str]]]:
        """The name and the options of each streaming source; no name for a source of Spark's older API."""
        found: list[tuple[str | None, Mapping[str, str]]] = []
        for leaf in _each(self._frame.queryExecution().analyzed().collectLeaves()):
            kind = leaf.getClass().getSimpleName()
            if kind == "StreamingRelationV2":
                found.append((leaf.sourceName(), _options_of(self._session, leaf)))
            elif kind == "StreamingRelation":
                path = leaf.dataSource().options().get("path")
                found += [(None, {"path": str(path.get())})] if path.isDefined() else []
        return found

    @cached_property
    def choice(self) -> _SourceChoice | None:
        whole = plan = self._frame.queryExecution().analyzed()
        while plan.getClass().getSimpleName() == "Project" and _chooses(plan.projectList()):
            plan = plan.child()
        if not _is_own(plan):
            return None
        # A source that the user named in the checkpoint keeps its name, which a new one would not have.
        if not plan.sourceIdentifyingName().getClass().getSimpleName().startswith("Unassigned"):
            return None
        # Not by name: Spark's names go in any case, and keep the one in which they were asked for.
        places = {column.exprId().id(): place for place, column in enumerate(_each(plan.output()))}
        chosen = [places[column.exprId().id()] for column in _each(whole.output())]
        return _SourceChoice(_options_of(self._session, plan, steps=True), plan.schema().json(), chosen)


_KNOWN: weakref.WeakKeyDictionary[DataFrame, _ClassicPlan] = weakref.WeakKeyDictionary()


def _known(df: DataFrame) -> _ClassicPlan | None:
    """Return the plan of a DataFrame; None for rows of no session."""
    return None if getattr(df, "_jdf", None) is None else _KNOWN.setdefault(df, _ClassicPlan(df))


def _options_of(session: Any, source: Any, *, steps: bool = False) -> dict[str, str]:
    """Return the options of a source, without steps that run in it: to fetch their text may take 40 ms."""
    # Py4J iterates over a map at several calls an entry, and the last one fails.
    options = source.extraOptions().asCaseSensitiveMap()
    names = session._jvm.java.lang.String.join("\0", options.keySet()).split("\0")
    return {name: options[name] for name in names if name and (steps or name != STEPS_OPTION)}


def _is_own(plan: Any) -> bool:
    """Return whether a plan is a source of ours."""
    return plan.getClass().getSimpleName() == "StreamingRelationV2" and plan.sourceName() == _OWN_SOURCE


def _chooses(columns: Any) -> bool:
    """Return whether a projection computes nothing: its columns are the source's own."""
    return all(column.getClass().getSimpleName() == "AttributeReference" for column in _each(columns))


def _each(values: Any) -> Iterator[Any]:
    return (values.apply(number) for number in range(values.size()))
