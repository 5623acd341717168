"""Rows with an update key, and the steps behind them: the base of every kind of step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

from ..conf.column_names import Tree, path_name, resolved
from ..conf.errors import OptionError, SchemaError
from ..conf.options import frame_argument, names_argument, path_argument, text_argument
from ..core.pushdown.at_source import refuse_preimages, source_options
from ..core.pushdown.source_steps import ArrowStep
from ..core.rows.system_column import SYSTEM
from ..core.rows.text import check_collations
from ..plan.explain import draw_plan, explain_plan, fusable
from ..plan.fingerprint import needs_checkpoint, number_along, places
from ..plan.nodes import (
    IncompleteInput,
    InputRows,
    Map,
    Node,
    RowStep,
    StatefulNode,
    Transform,
    left_out_by_source,
    source_text,
)
from ..plan.properties import check_table_key
from ..plan.rewrites import rewritten
from .compile import BoundStream, bind, bind_together, in_stages, on_spark
from .runtime.steps import arrow_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType
    from typing_extensions import Self


class KeyedRows:
    """A stream of rows with an update key: the base of :class:`~upstream.operators.stream.UpdateStream`."""

    def __init__(
        self,
        df: DataFrame,
        *,
        key: str | Sequence[str],
        event_time: str | None = None,
    ) -> None:
        frame_argument("df", df)
        refuse_preimages(df, "an update stream")
        tree = _tree(df.schema)
        keys = tuple(_spelt(name, tree) for name in key_argument(key))
        event_time = text_argument("event_time", event_time)
        given = source_options(df)
        self.plan: Node = InputRows(
            keys,
            event_time,
            df.schema,
            left_out_by_source(df),
            frame=df,
            source=source_text(given),
            ours=given is not None,
        )
        self._check()
        check_collations(df.schema, names=keys)

    @classmethod
    def _of(cls, plan: Node) -> Self:
        made = cls.__new__(cls)
        made.plan = plan
        made._check()
        return made

    def _check(self) -> None:
        tree = _tree(self.schema)
        absent = [name for name in self.key if name not in tree and not _is_field(name, tree)]
        absent += [name for name in (self.event_time, SYSTEM) if name is not None and name not in tree]
        if absent:
            raise SchemaError(
                f"the stream has no column {', '.join(absent)}",
                expected=f"the key, the time and {SYSTEM}, as the source made it",
                hint=_NO_SYSTEM if SYSTEM in absent else _absent(self.schema.names),
            )
        if isinstance(self.plan, StatefulNode):
            self._check_key_columns(self.plan.word)

    def _check_key_columns(self, what: str) -> None:
        """Raise SchemaError if a part of the key is a field of a struct: the step divides rows by key columns."""
        fields = [name for name in self.key if name not in self.schema.names]
        if fields:
            raise SchemaError(
                f"{what} of a stream whose key has {', '.join(fields)}, a field of a struct",
                expected="columns: only the source, steps on each row, and the sink take fields",
                hint='make a column of the field where rows are read, read(…, select="data.s AS symbol, …"), and name '
                "that in the key",
            )

    def _check_table_key(self, key: Sequence[str]) -> None:
        """Raise an error if a table's key has too few columns for results that are retracted."""
        check_table_key(self.plan, key)

    @property
    def key(self) -> tuple[str, ...]:
        """The update key's columns."""
        return self.plan.key

    @property
    def event_time(self) -> str | None:
        """The column of the event time; None if arrival decides which row is newer."""
        return self.plan.time

    @property
    def schema(self) -> StructType:
        """The columns of the rows, including the system column."""
        return self.plan.schema

    @property
    def df(self) -> DataFrame:
        """The stream as a DataFrame. If it has steps with state, use :meth:`dataframe`."""
        return self._bound(self.plan, None).df

    def dataframe(self, checkpoint: str | os.PathLike[str]) -> DataFrame:
        """Return the stream as a DataFrame, with the system column, for a query of your own.

        Parameters
        ----------
        checkpoint
            The one that the query will have: operators report below it.

        Returns
        -------
        pyspark.sql.DataFrame

        Examples
        --------
        >>> query = stream.queue().dataframe("cp").writeStream.format("noop").option("checkpointLocation", "cp")
        """
        return self.bound(path_argument("checkpoint", checkpoint)).df

    def bound(self, checkpoint: str | os.PathLike[str] | None, *, newest: bool = False) -> BoundStream:
        """Return the stream on Spark for the sink; `checkpoint` is the query's, None if no operator needs it.

        With `newest`, the consumer needs only the newest row of each key.
        """
        place = None if checkpoint is None else path_argument("checkpoint", checkpoint)
        return self._bound(self._rewritten_for_newest if newest else self._rewritten, place)

    def _bound(self, plan: Node, checkpoint: str | None) -> BoundStream:
        return bind(plan, checkpoint)

    def explain(
        self, form: Literal["text", "svg"] = "text", *, checkpoint: str | os.PathLike[str] | None = None
    ) -> str:
        """Return the steps of the stream, what is known of the rows after each, and what state each keeps and until
        when.

        Parameters
        ----------
        form
            Lines of text, the last step first; or a picture, in which rows go down.
        checkpoint
            The query's, to see where operators report, and which share a stage there.

        Returns
        -------
        str

        Raises
        ------
        OptionError
            There is no such form.
        CheckpointError
            The checkpoint belongs to other operators.

        Examples
        --------
        >>> print(stream.where("speed > 0").explain())
        where speed > 0
        │  key vehicle_id, event time timestamp
        │  every row, once
        │  runs where the rows are read, not in Spark: its condition means the same there
        └─ read files feed/
              key vehicle_id, event time timestamp
              every row, once
        """
        if form not in ("text", "svg"):
            raise OptionError(
                f"explain({form!r})", expected="'text' or 'svg'", hint="give a checkpoint as explain(checkpoint=…)"
            )
        if checkpoint is not None:
            checkpoint = path_argument("checkpoint", checkpoint)
        plan = self._rewritten
        folders = {} if checkpoint is None else places(plan, checkpoint)
        fused = in_stages(plan, folders, checkpoint)[0] if folders else fusable(plan)
        return (explain_plan if form == "text" else draw_plan)(plan, folders, fused)

    @cached_property
    def _rewritten(self) -> Node:
        """The plan after all rules. It is always the same one, so that later steps find the DataFrame's columns."""
        return rewritten(self.plan, arrow_step)

    @cached_property
    def _rewritten_for_newest(self) -> Node:
        """The plan after all rules, for a consumer that needs only the newest row of each key."""
        return rewritten(self.plan, arrow_step, newest=True)

    @property
    def session(self) -> SparkSession:
        return self.plan.session

    @property
    def windows(self) -> int:
        """The number of window operators before this point of the stream."""
        return number_along(self.plan, "windows")

    @property
    def shards(self) -> int | None:
        """The number of parts of the keys, one task each (``pmod(hash(key), shards)``); None if not divided."""
        return self.plan.shards

    def _sample(self) -> DataFrame:
        """Return a DataFrame with the stream's columns, from which Spark can infer the columns after a step.

        It is empty if the stream's own needs a checkpoint.
        """
        if needs_checkpoint(self.plan):
            return self.session.createDataFrame([], self.schema)
        return self.df

    def _after(self, step: RowStep) -> StructType:
        """Return the columns after a step, as Spark infers them."""
        return on_spark(step, self._sample(), self.plan.fixed).schema

    def _check_expression(self, text: str) -> None:
        """Let Spark raise an error for an expression that is no SQL."""
        from pyspark.sql import functions as F

        F.expr(text)

    def _parsed(self, ddl: str) -> StructType:
        from pyspark.sql.types import StructType

        return cast("StructType", StructType.fromDDL(ddl))

    def _transformed(self, step: RowStep, left_out: IncompleteInput | None = None) -> Self:
        """Return the stream after a step on rows or columns that leaves keys in their tasks."""
        plan = self.plan
        return self._of(
            Transform(
                plan.key, plan.time, self._after(step), left_out or plan.left_out, plan.in_order, plan.shards,
                inputs=(plan,), step=step,
            )
        )  # fmt: skip

    def _mapped(self, says: str, step: ArrowStep, schema: StructType) -> Self:
        plan = self.plan
        return self._of(
            Map(
                plan.key,
                plan.time,
                schema,
                plan.left_out,
                plan.in_order,
                plan.shards,
                inputs=(plan,),
                says=says,
                step=step,
            )
        )


def key_argument(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return the update key's columns; raise OptionError unless they are names."""
    found = names_argument("key", value)
    if not found:
        raise OptionError(f"key={value!r}", expected="the name of a column, or a list of several", hint="name the key")
    return (found,) if isinstance(found, str) else tuple(found)


def bound_together(streams: Sequence[KeyedRows], checkpoint: str) -> list[BoundStream]:
    """Return the streams of one query on Spark, bound to its checkpoint. No two share an operator."""
    return bind_together([each._rewritten for each in streams], checkpoint)


def _tree(schema: StructType) -> Tree:
    """Return the names of columns, and of the fields of structs."""
    from pyspark.sql.types import StructType

    kinds = {field.name: field.dataType for field in schema.fields}
    return {name: _tree(kind) if isinstance(kind, StructType) else None for name, kind in kinds.items()}


def _spelt(name: str, tree: Tree) -> str:
    """Return a part of the key as it is spelled: a column by its name, a field by its unambiguous path."""
    found = resolved(name, tree)
    return name if name in tree or found is None or len(found) == 1 else path_name(found)


def _is_field(name: str, tree: Tree) -> bool:
    """Return whether a name refers to a field of a struct."""
    return len(resolved(name, tree) or ()) > 1


_NO_SYSTEM = (
    f"keep {SYSTEM} in every select; if you gave the source a schema by readStream.schema(…), give it as an option "
    "instead, "
    '.option("schema", "a INT, b STRING"), or append the column, .schema(upstream.with_system_ddl("a INT, b STRING")); '
    "for a stream of another source use UpdateStream.from_dataframe"
)


def _absent(names: Sequence[str]) -> str:
    return f"name columns that are there: {', '.join(names)}; of a field make one, with withColumn, before"
