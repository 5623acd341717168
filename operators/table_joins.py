"""Joins of a stream with a table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from ..conf.errors import OptionError
from ..conf.locations import absolute_location
from ..conf.options import names_argument, path_argument, text_argument
from ..core.pushdown.at_source import reads_coalesced
from ..plan.nodes import InputRows, TableJoin, walk
from .keyed_stream import KeyedRows
from .step_arguments import columns_of_on
from .tables.lookup import TableHow, planned
from .tables.reading import columns_of_table

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self


class TableJoinSteps(KeyedRows):
    """Joins with tables: part of :class:`~upstream.operators.stream.UpdateStream`."""

    def join_table(
        self,
        table: str | os.PathLike[str],
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: TableHow = "inner",
        columns: Sequence[str] | None = None,
        suffix: str = "_table",
        storage: Mapping[str, str] | None = None,
    ) -> Self:
        """Join each row with the row of a Delta table that has its key.

        Each batch reads the version that the table has when the batch is planned.

        Parameters
        ----------
        table
            The folder of any Delta table, or its address.
        on
            The columns that are equal; a mapping names those of the stream and those of the table.
        how
            ``inner``, ``left``, ``semi`` or ``anti``.
        columns
            Of the table, to be added to the rows; by default all that are not joined by.
        suffix
            Added to names of columns of the table that the stream has too.
        storage
            Options for the table's object store.

        Returns
        -------
        UpdateStream
            Rows of the stream with the columns of the table. Their key and their time are those of the stream.

        Raises
        ------
        OptionError
            An argument makes no sense.
        SchemaError
            A column does not exist, or two that are compared differ in type.
        TableError
            There is no table; or, when the query runs, a key is in several rows of it.

        Notes
        -----
        Guarantee: a batch that runs again reads the same version. A new version of the table revises no earlier result.
        Punctuation and tombstones pass. Each Python worker keeps the columns that are joined in memory.

        Examples
        --------
        >>> named = stream.join_table("vehicles", on="vehicle_id", how="left", columns=["model"])
        """
        names = columns_of_on(on)
        if how not in get_args(TableHow):
            raise OptionError(f"how={how!r}", expected="one of " + ", ".join(get_args(TableHow)), hint="correct how")
        chosen = names_argument("columns", columns)
        if how != "left" and any(
            isinstance(each, InputRows) and reads_coalesced(each.frame) for each in walk(self.plan)
        ):
            raise OptionError(
                f"join_table(…, how={how!r}) behind a source that coalesces: what it drops depends on the batches",
                expected="how='left', or a source that gives every row",
                hint="read without coalesce=True",
            )
        location, schema = self._table(path_argument("table", table), dict(storage or {}))
        plan = planned(
            self._columns(), schema, location, names, how, [chosen] if isinstance(chosen, str) else chosen,
            text_argument("suffix", suffix) or "_table", dict(storage or {}),
        )  # fmt: skip
        from pyspark.sql.pandas.types import from_arrow_schema

        before = self.plan
        return self._of(
            TableJoin(
                before.key, before.time, from_arrow_schema(plan.schema), before.left_out, before.in_order,
                before.shards, inputs=(before,), specification=plan,
            )
        )  # fmt: skip

    def _table(self, path: str, storage: dict[str, Any]) -> tuple[str, pa.Schema]:
        """Return a table's location, and its columns."""
        location = absolute_location(path)
        return location, columns_of_table(location, storage)

    def _columns(self) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.schema, timezone="UTC")
