"""Rows that update a key, and the steps they have gone through: what every kind of step stands on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, cast

from ..conf.column_names import quoted
from ..conf.errors import SchemaError
from ..core.pushdown.at_source import at_source
from ..core.pushdown.source_steps import ArrowStep
from ..core.rows.collations import check_collations
from ..core.rows.system_column import SYSTEM
from .completeness import Incomplete, incomplete_source
from .runtime.arrow_steps import chained, map_in_arrow
from .runtime.pack import PACKED_DDL
from .runtime.sharded import InShards

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType
    from typing_extensions import Self

__all__ = ["KeyedRows"]


class KeyedRows:
    """A stream of rows with an update key, apart from the steps that it offers; see :class:`~upstream.operators.stream.UpdateStream`."""

    def __init__(self, df: DataFrame, *, key: str | Sequence[str], time: str | None = None) -> None:
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.time = time
        self._base: DataFrame | InShards = df
        # Steps on Arrow batches that one Python worker runs one after the other, and the schema after them.
        self._steps: tuple[ArrowStep, ...] = ()
        self._schema: StructType = df.schema
        self._shards: int | None = None
        self._windows = 0
        self._incomplete: Incomplete | None = incomplete_source(df)
        # Where operators of this stream report; two that reported to one place would overwrite each other.
        self._folders: tuple[str, ...] = ()
        self._reorders = self._queues = 0
        self._in_order = False
        self._check()
        check_collations(self._schema, names=self.key)

    @classmethod
    def _of_shards(cls, rows: InShards, schema: StructType, *, key: Sequence[str], time: str | None) -> Self:
        """A stream of what an operator in shards gives."""
        made = cls.__new__(cls)
        made.key, made.time = tuple(key), time
        made._base, made._steps, made._schema = rows, (), schema
        made._shards, made._windows, made._incomplete = None, 0, None
        made._folders, made._in_order = (), False
        made._reorders = made._queues = 0
        made._check()
        return made

    def _check(self) -> None:
        wanted = (*self.key, *([self.time] if self.time else []), SYSTEM)
        absent = [name for name in wanted if name not in self._schema.names]
        if absent:
            raise SchemaError(
                f"the stream has no column {', '.join(absent)}",
                expected=f"the key, the time and {SYSTEM}, as the source made it; fields of structs are keys of the source and the sink, and of no step between",
                hint=_NO_SYSTEM if SYSTEM in absent else _absent(self._schema.names),
            )

    @property
    def df(self) -> DataFrame:
        """The stream as a DataFrame, with the system column."""
        if isinstance(self._base, InShards):
            return self._base.df(self._steps, self._schema)
        return map_in_arrow(self._base, chained(self._steps), self._schema) if self._steps else self._base

    @property
    def schema(self) -> StructType:
        """The columns of :attr:`df`."""
        return self._schema

    @property
    def windows(self) -> int:
        """How many window operators the stream has come through."""
        return self._windows

    @property
    def shards(self) -> int | None:
        """Into how many parts, each in one task, the keys are divided (``pmod(hash(key), shards)``); None if they are not."""
        return self._shards

    @property
    def reports(self) -> tuple[str, ...]:
        """The folders to which the stream's operators report."""
        return self._folders

    def after_window(
        self, results: InShards, schema: StructType, shards: int, incomplete: Incomplete | None, folder: str
    ) -> Self:
        """The stream of a window operator's results; called by the windows, not by users."""
        stream = copy(self)
        stream.time = "window_time"
        stream._base, stream._steps, stream._schema = results, (), schema
        stream._shards, stream._windows, stream._incomplete = shards, self._windows + 1, incomplete
        stream._folders, stream._in_order = (*self._folders, folder), False
        return stream

    def packed(self, step: ArrowStep, columns: Sequence[str] | None = None) -> DataFrame:
        """What a step packs for the shards of the operator that follows, of some columns, or of all. Called by operators.

        In Arrow since an operator or a step before, rows stay in the Python worker that has them.
        """
        from pyspark.sql.types import StructType

        if isinstance(self._base, InShards) or self._steps:
            own = step if columns is None else chained((_choosing(columns), step))
            packed = self.in_arrow(own, cast("StructType", StructType.fromDDL(PACKED_DDL)))
            assert packed is not None
            return packed
        df = self._base if columns is None else self._base.select(*[quoted(name) for name in columns])
        return map_in_arrow(df, step, PACKED_DDL)

    def in_arrow(self, step: ArrowStep, schema: StructType) -> DataFrame | None:
        """A step's result where rows are in Arrow before it; None where Spark holds them in its own form. Called by the sink."""
        if isinstance(self._base, InShards):
            return self._base.few((*self._steps, step), schema)
        if self._steps:
            return map_in_arrow(self._base, chained((*self._steps, step)), schema)
        return at_source(self._base, step, schema)

    def _fixed(self) -> list[str]:
        time = [self.time] if self.time is not None and self.time not in self.key else []
        return [*self.key, *time, SYSTEM]

    def _with(self, df: DataFrame) -> Self:
        """The same keys in the same tasks, other rows or columns."""
        stream = copy(self)
        stream._base, stream._steps, stream._schema = df, (), df.schema
        return stream

    def _then(self, step: ArrowStep, schema: StructType) -> Self:
        stream = copy(self)
        stream._steps, stream._schema = (*self._steps, step), schema
        return stream


_NO_SYSTEM = (
    f"keep {SYSTEM} in every select; if you gave the source a schema by readStream.schema(…), give it as an option instead, "
    '.option("schema", "a INT, b STRING"), or append the column, .schema(upstream.with_system_ddl("a INT, b STRING")); '
    "for a stream of another source use UpdateStream.from_dataframe"
)


def _absent(names: Sequence[str]) -> str:
    return f"name columns that are there: {', '.join(names)}; of a field make one, with withColumn, before"


def _choosing(columns: Sequence[str]) -> ArrowStep:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (batch.select(list(columns)) for batch in batches)

    return run
