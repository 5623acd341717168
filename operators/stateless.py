"""Steps on single rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ..conf.errors import OptionError, SchemaError
from ..conf.options import column_argument, count_argument
from ..core.pushdown.at_source import reads_coalesced
from ..core.rows.system_column import SYSTEM
from ..plan.nodes import Choice, Filter, IncompleteInput, InputRows, walk
from ..plan.properties import check_final
from .keyed_stream import KeyedRows
from .runtime.steps import mapped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType
    from typing_extensions import Self


class Stateless(KeyedRows):
    """Filters, columns, maps: part of :class:`~upstream.operators.stream.UpdateStream`."""

    def where(self, condition: str | Column, *, on_leave: Literal["keep", "delete"] | None = None) -> Self:
        """Keep only the rows that satisfy a condition.

        Parameters
        ----------
        condition
            SQL, or a column. If it is null, the row fails, as in Spark. Punctuation rows and tombstones pass, whatever
            it yields for them.
        on_leave
            If a key's row fails: ``keep`` the key's earlier result [default], or ``delete`` the key by a tombstone.
            After steps that take results back, such as `join_latest`, `group_by` and joins with ``early=True``, it is
            ``delete``.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            `condition` is no column and no text, or `on_leave` is another word.
        SchemaError
            `on_leave` is ``keep`` after steps that take results back.

        Notes
        -----
        A tombstone has its key, its time and the system column; all else in it is null.

        Examples
        --------
        >>> moving = stream.where("speed > 0")
        >>> moving = stream.where("speed > 0", on_leave="delete")
        """
        changes = self.plan.retracts
        asked: str | None = on_leave
        if asked is None:
            on_leave = "delete" if changes else "keep"
        if on_leave not in ("keep", "delete"):
            raise OptionError(
                f"on_leave={on_leave!r}",
                expected="'keep' or 'delete'",
                hint="keep drops the row and lets the earlier result stay, delete takes the key out of the table",
            )
        if column_argument("where", condition) is None:
            raise OptionError("where(None)", expected="a condition in SQL, or a column")
        if on_leave == "keep":
            check_final(
                self.plan, 'where(…, on_leave="keep")', "would keep results that no longer hold", "leave on_leave out"
            )
            self._check_whole(condition)
            return self._transformed(Filter(condition))
        if changes:
            return self._transformed(Filter(condition, on_leave))
        return self._transformed(
            Filter(condition, on_leave),
            IncompleteInput(
                'where(…, on_leave="delete") makes tombstones of rows, which have no values',
                'filter with on_leave="keep" before a window, or count each key once by group_by(…).window(…)',
            ),
        )

    filter = where

    def _check_whole(self, condition: str | Column) -> None:
        """Refuse a filter after coalescing: in its batch, a newer row that fails may have replaced one that passes."""
        if any(isinstance(each, InputRows) and reads_coalesced(each.frame) for each in walk(self.plan)):
            raise OptionError(
                f"where({str(condition)!r}) behind a source that coalesces: what it lets on depends on the batches",
                expected="the filter before coalescing",
                hint='give the condition to the source, read(…, where="…"); or, where the newest row is to decide, '
                'say where(…, on_leave="delete")',
            )

    def select(self, *columns: str | Column) -> Self:
        """Keep or compute columns. The key, the time and the system column stay as they are, named or not.

        Parameters
        ----------
        *columns
            Names of columns, SQL such as ``speed * 3.6 AS kmh``, or columns of Spark.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            One is no column and no text.
        SchemaError
            A column would take the place of the key or the time.

        Examples
        --------
        >>> from pyspark.sql import functions as F
        >>> stream.select((F.col("speed") * 3.6).alias("kmh")).schema.names
        ['vehicle_id', 'timestamp', 'kmh', '_upstream']
        """
        if any(column_argument("select", each) is None for each in columns):
            raise OptionError("select(None)", expected="names of columns, SQL, or columns")
        made = self._transformed(Choice(columns))
        clash = [name for name in self.plan.fixed if made.schema.names.count(name) > 1]
        if clash:
            raise SchemaError(
                f"{', '.join(clash)} would be computed again, and is the stream's key, time or system column",
                expected="new columns under other names: the key and the time of a row do not change",
                hint="rename the column, or begin a new stream with UpdateStream(df, key=…, event_time=…)",
            )
        return made

    project = select

    def map(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
        schema: StructType | str,
        *,
        batch_rows: int = 1000,
    ) -> Self:
        """Compute columns by a Python function over Arrow batches: a model, a look-up.

        Parameters
        ----------
        function
            Takes a batch of rows without punctuation, tombstones and the system column, returns as many rows in the
            same order, with the columns of `schema`.
        schema
            Of the new columns, in Spark's terms. The key and the time are kept as they were, and may not be in it.
        batch_rows
            Most rows that `function` sees at once.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            `function` cannot be called, `schema` is none, or `batch_rows` is no number of rows.
        SchemaError
            `schema` names the key or the time; or, when the query runs, the function returns other columns or another
            number of rows.

        Examples
        --------
        >>> def score(batch):
        ...     return pa.record_batch({"score": pc.multiply(batch["speed"], 0.1)})
        >>> scored = stream.map(score, "score DOUBLE")
        """
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructField, StructType

        if not callable(function):
            raise OptionError(f"map({function!r})", expected="a function over Arrow batches")
        if not isinstance(schema, (str, StructType)):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
            raise OptionError(f"schema={schema!r}", expected="the new columns, such as 'score DOUBLE', or a StructType")
        count_argument("batch_rows", batch_rows)
        fixed = self.plan.fixed
        new = self._parsed(schema) if isinstance(schema, str) else schema
        clash = [field.name for field in new if field.name in fixed]
        if clash:
            raise SchemaError(
                f"the map would give {', '.join(clash)}, which is the stream's key, time or system column",
                expected="new columns only: a map may not change what a row updates, or when",
                hint="leave it out of the schema; it is kept as it is",
            )
        kept = [field for field in self.schema if field.name in fixed and field.name != SYSTEM]
        # Punctuation has null in new columns, even if the schema rules nulls out.
        computed = [StructField(field.name, field.dataType, nullable=True, metadata=field.metadata) for field in new]
        whole = StructType([*kept, *computed, self.schema[SYSTEM]])
        arrow = to_arrow_schema(whole, timezone="UTC")
        called = getattr(function, "__qualname__", type(function).__name__)
        step = mapped(function, arrow, [field.name for field in new], batch_rows)
        return self._mapped(f"map {called}", step, whole)
