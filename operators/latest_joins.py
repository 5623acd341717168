"""Joins of the current state of two streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from ..conf.errors import OptionError
from ..conf.options import count_argument, text_argument
from ..plan.newest_nodes import LatestJoin, Versions
from ..plan.nodes import IncompleteInput
from .joins.band import SIDES
from .joins.latest_changes import check_key_texts
from .joins.latest_plan import LatestHow, LatestJoinPlan, LatestSide, VersionPlan
from .joins.plan import OnLimit
from .keyed_stream import KeyedRows
from .step_arguments import TimeToLive, check_partner, columns_of_on, latest_limit, of_both, schemas_of, time_span

if TYPE_CHECKING:
    from typing_extensions import Self


class LatestJoinSteps(KeyedRows):
    """Joins of newest rows: part of :class:`~upstream.operators.stream.UpdateStream`."""

    def join_latest(
        self,
        other: Self,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: LatestHow = "inner",
        suffix: str = "_right",
        ttl: TimeToLive = None,
        tombstone_retention: str | int | None = None,
        state_limit: str | int | None = None,
        on_limit: OnLimit = "fail",
        shards: int = 16,
    ) -> Self:
        r"""Join the newest rows of two streams: the table holds the join of both tables as they are now.

        A newer row of either side replaces the pairs of the row before it; a tombstone takes them out.

        Parameters
        ----------
        other
            The right stream.
        on
            The columns that are equal in rows that meet; a mapping names those of the left and of the right. A key
            whose new row has other values leaves its former partners.
        how
            ``inner``, ``left``, ``right`` or ``full``, which give rows of that side, or of both, without a partner with
            nulls.
        suffix
            Added to names of columns of the right that the left has too.
        ttl
            How long a row lives, such as ``1 hour``; a pair gives it for the left and the right, None for no end
            [default]. A row expires when the low-watermark of its own stream passes its event time by this. You can
            change it with a restart.
        tombstone_retention
            How far a stream's watermark has to pass a deletion before it is forgotten, such as ``7 days`` [default:
            never]. An older row that arrives after that counts as new.
        state_limit
            As for :meth:`join`.
        on_limit
            Only ``fail``, which ends the query at the limit.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        UpdateStream
            Of pairs, and of tombstones for pairs that are gone: the columns of `on`, those of the left, those of the
            right, and ``join_time``, the later of the two times. The stream has no event time: what arrives later is
            newer.

            The page on newest rows lists the update keys of all kinds of joins.

        Raises
        ------
        OptionError
            An argument makes no sense, or `ttl` or `tombstone_retention` is set and a stream has no watermark.
        SchemaError
            A column does not exist, the two streams differ in its type, or an update key has no text.

        Notes
        -----
        Guarantee: after each batch the table holds the join of the newest rows that have not expired, whatever the
        order of arrival and the batches. Either input may be coalesced or come from a queue. A row with a null in `on`
        meets nothing.

        Examples
        --------
        >>> now = stream.join_latest(other, on="vehicle_id")
        >>> recent = stream.join_latest(other, on="vehicle_id", how="full", ttl="10 minutes")
        >>> recent.key
        ('vehicle_id',)
        """
        columns = columns_of_on(on)
        check_partner("join_latest", other)
        if how not in get_args(LatestHow):
            raise OptionError(f"how={how!r}", expected="one of " + ", ".join(get_args(LatestHow)), hint="correct how")
        kinds = schemas_of(self, other, columns, "join_latest")
        for each in (self, other):
            each._check_key_columns("join_latest")
        left, right = (
            LatestSide(
                names, "", schema, stream.key, stream.event_time,
                retention=time_span("join_latest", "tombstone_retention", stream, tombstone_retention),
                ttl=time_span("join_latest", "ttl", stream, life),
            )
            for names, schema, stream, life in zip(
                (tuple(columns), tuple(columns.values())), kinds, (self, other), of_both(ttl), strict=True
            )
        )  # fmt: skip
        suffix = text_argument("suffix", suffix) or "_right"
        shards = count_argument("shards", shards)
        limit = latest_limit(state_limit, on_limit, shards * (1 + sum(not each.stays for each in (left, right))))
        plan = LatestJoinPlan(left, right, how, suffix, shards, limit)
        for side, name in zip(plan.sides, SIDES, strict=True):
            if plan.own_key:
                check_key_texts(side.schema, side.key, name)
        return self._joined_newest(other, plan)

    def _joined_newest(self, other: KeyedRows, plan: LatestJoinPlan) -> Self:
        from pyspark.sql.pandas.types import from_arrow_schema

        inputs = tuple(
            stream.plan
            if side.stays
            else Versions(
                side.key, None, from_arrow_schema(side.versioned), None, False, plan.shards,
                inputs=(stream.plan,), specification=VersionPlan(side, plan.shards, plan.limit),
            )
            for side, stream in zip(plan.sides, (self, other), strict=True)
        )  # fmt: skip
        left_out = IncompleteInput(
            "join_latest() gives pairs of newest rows, and takes them back",
            "put the window before the join",
        )
        return self._of(
            LatestJoin(
                plan.key, None, from_arrow_schema(plan.schema), left_out, False,
                plan.shards if plan.key == plan.left.on else None,
                inputs=inputs, specification=plan,
            )
        )  # fmt: skip
