"""Joins of two streams."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from ..conf.arguments import count_argument, names_argument, text_argument
from ..conf.errors import OptionError, SchemaError
from ..plan.completeness import LeftOut, check_complete
from ..plan.nodes import Join
from ..plan.promises import check_promised
from .joins.band import LEFT
from .joins.pairs import pair_condition
from .joins.plan import How, JoinOutput, JoinPlan, JoinSide
from .joins.within import Interval, band_of, unit_of
from .keyed import KeyedRows, checkpoint_argument

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Joining"]


class Joining(KeyedRows):
    """Joins: part of :class:`~upstream.operators.stream.UpdateStream`."""

    def join(
        self,
        other: Self,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        within: Interval | None = None,
        tumbling: str | int | None = None,
        how: How = "inner",
        output: JoinOutput = "all",
        condition: str | None = None,
        suffix: str = "_right",
        time_format: str | None = None,
        checkpoint_location: str | os.PathLike[str] | None = None,
        shards: int = 16,
    ) -> Self:
        """Join two streams by key and time (OA-Join, thesis §7.1).

        Each row is kept until the watermark of the *other* stream has passed the last time at which it can meet a row.
        Rows may come in any order.

        Parameters
        ----------
        other
            The right stream.
        on
            The columns that are equal in rows that meet; a mapping names those of the left and those of the right. They
            need not be the update keys.
        within
            How far apart in time rows may be that meet: ``us.interval(before="2 minutes", after="3 minutes")``.
        tumbling
            The length of windows, in place of `within`: rows meet if they lie in one window.
        how
            ``inner``, ``left``, ``right`` or ``full``; ``semi`` and ``anti`` give rows of the left that have a partner,
            or have none. A row without a partner is given once the watermark of the other stream rules one out.
        output
            ``all`` gives each pair once. ``latest`` gives, of each key and batch, the pair with the greatest time; for
            `semi` and `anti` there is only ``all``.
        condition
            What pairs have to satisfy beside, in SQL, such as ``"l.price > r.limit"``.
        suffix
            What is put behind the names of columns of the right that the left has too.
        time_format
            What a time column of whole numbers counts, such as ``epoch_ms``; without it `within` takes whole numbers.
        checkpoint_location
            A folder below the query's checkpoint for the shards' reports. Leave it out: the query's is used.
        shards
            The number of parts into which keys are divided; fixed for the life of a checkpoint.

        Returns
        -------
        UpdateStream
            Of pairs: the columns of `on`, those of the left, those of the right, ``join_time``, and with ``output=
            "all"`` ``left_row`` and ``right_row``, numbers of the two rows. Its key is `on`, its time ``join_time``,
            the later of the two times. A table keeps the newest pair of each key; with ``write(…, key=[…, "left_row",
            "right_row"])`` it keeps all. For `semi` and `anti`, rows of the left as they are.

        Raises
        ------
        OptionError
            An argument makes no sense, or a stream has no watermark.
        SchemaError
            A column does not exist, the two streams differ in its type, or one of them leaves rows out.

        Notes
        -----
        Guarantee: each pair is given once, and each row without a partner once, whatever the order of arrival and the
        batches, for rows that are not late. A late row meets the rows that are still kept. State per stream is its rate
        times (the reach of the interval and how far the other stream's watermark lags).

        Tombstones end the query. A row with a null in `on` meets nothing; outer joins leave it out and count it, an
        anti join gives it.

        Examples
        --------
        >>> both = stream.join(other, on="vehicle_id", within=us.interval(before="2 minutes", after="3 minutes"))
        """
        if not isinstance(other, KeyedRows):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
            raise OptionError(
                f"join with {other!r}",
                expected="an UpdateStream",
                hint="join a static DataFrame with from_dataframe: df.join(static, …) before the stream is made",
            )
        if how not in get_args(How):
            raise OptionError(f"how={how!r}", expected="one of " + ", ".join(get_args(How)), hint="correct how")
        if output not in get_args(JoinOutput) or (how in ("semi", "anti") and output != "all"):
            raise OptionError(
                f"output={output!r} with how={how!r}",
                expected="'all', or 'latest' for a join that gives pairs",
                hint="correct output",
            )
        columns = _on(on)
        kinds = self._join_kinds(other, columns)
        plan = JoinPlan(
            JoinSide(tuple(columns), kinds[0][0], kinds[0][1]),
            JoinSide(tuple(columns.values()), kinds[1][0], kinds[1][1]),
            band_of(within, tumbling, unit := unit_of(*kinds[0][2], text_argument("time_format", time_format))),
            how=how,
            output=output,
            condition=text_argument("condition", condition),
            suffix=text_argument("suffix", suffix) or "_right",
            unit_us=unit,
            shards=count_argument("shards", shards),
        )
        pair_condition(plan)  # refuses what cannot be computed
        return self._joined(other, plan, checkpoint_argument(checkpoint_location))

    def _join_kinds(
        self, other: KeyedRows, on: Mapping[str, str]
    ) -> list[tuple[str, pa.Schema, tuple[str, pa.DataType]]]:
        """Return the time column and the columns of both streams, checked.

        Raises
        ------
        OptionError, SchemaError
            See :meth:`join`.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        found: list[tuple[str, pa.Schema, tuple[str, pa.DataType]]] = []
        for each, name, names in ((self, "left", list(on)), (other, "right", list(on.values()))):
            if each.event_time is None:
                raise OptionError(
                    f"join of a {name} stream without an event time",
                    expected="an event time in both streams",
                    hint="name the column: read(…, event_time=…)",
                )
            check_promised(each.plan, f"join() over the {name} stream")
            check_complete(each.plan.left_out, "a join would miss pairs here")
            schema = to_arrow_schema(each.schema, timezone="UTC")
            absent = [column for column in names if column not in schema.names]
            if absent:
                raise SchemaError(
                    f"join on {', '.join(absent)}, which the {name} stream has not",
                    expected="columns among " + ", ".join(schema.names),
                    hint='name the columns of both: on={"left_name": "right_name"}',
                )
            found.append((each.event_time, schema, (each.event_time, schema.field(each.event_time).type)))
        (left_time, left, _), (right_time, right, _) = found
        for one, two in [*on.items(), (left_time, right_time)]:
            kinds = left.field(one).type, right.field(two).type
            if kinds[0] != kinds[1] or pa.types.is_floating(kinds[0]) or pa.types.is_nested(kinds[0]):
                raise SchemaError(
                    f"a join by {one} of type {kinds[0]} and {two} of type {kinds[1]}",
                    expected="columns of one type, and no fractions, arrays or structs",
                    hint="cast one of them where the rows are read: read(…, select='CAST(a AS BIGINT) AS a, …')",
                )
        return found

    def _joined(self, other: KeyedRows, plan: JoinPlan, checkpoint: str | None) -> Self:
        from pyspark.sql.pandas.types import from_arrow_schema

        left_out: LeftOut | None = None
        if plan.output == "latest":
            left_out = LeftOut(
                "join(output='latest') gives the newest pair of each key only",
                "join with output='all'",
            )
        alone = plan.left_alone
        key = self.key if alone else plan.left.on
        return self._of(
            Join(
                key, plan.time, self.schema if alone else from_arrow_schema(plan.schema), left_out, False,
                plan.shards if key == plan.sides[LEFT].on else None,
                inputs=(self.plan, other.plan), specification=plan, checkpoint=checkpoint,
            )
        )  # fmt: skip


def _on(given: Any) -> dict[str, str]:
    """Return the columns of the right by those of the left."""
    if isinstance(given, Mapping):
        found = dict(given)
        if found and all(isinstance(each, str) and each for each in (*found, *found.values())):
            return found
    else:
        names = names_argument("on", given)
        if names:
            return {name: name for name in ([names] if isinstance(names, str) else names)}
    raise OptionError(
        f"on={given!r}",
        expected="the name of a column, a list of several, or a mapping from the left's to the right's",
        hint="name the columns that are equal in rows that meet",
    )
