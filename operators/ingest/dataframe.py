"""The plan of an update stream over any streaming DataFrame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa

from ...conf.column_names import quoted
from ...conf.errors import OptionError, SchemaError
from ...conf.options import (
    column_argument,
    duration_argument,
    path_argument,
    word_argument,
)
from ...core.feedback.on_demand_watermark import OnDemandWatermark
from ...core.pushdown.at_source import refuse_preimages
from ...core.rows.event_times import TimeFormat, check_time_type, check_time_zone
from ...core.rows.system_column import SYSTEM
from ...core.rows.text import check_collations
from ...core.watermark.policies import Policy
from ...plan.nodes import Intake, left_out_by_source
from .plan import ARRIVAL, DELETED, FEED, ORDER, IntakePlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


Idle = Literal["wait", "ets"]
"""The treatment of a silent input partition that an operator waits for."""

OnMalformed = Literal["quarantine", "fail"]

_KAFKA = {"topic", "partition", "offset"}
"""Columns of Spark's Kafka source from which feeds and their order are derived."""


def intake(
    df: DataFrame,
    plan: IntakePlan,
    *,
    feed: str | Column | None,
    order: str | Column | None,
    deleted: str | Column | None,
    dead_letters: str | os.PathLike[str] | None,
    dead_letter_rows: Literal["late"] | None,
) -> Intake:
    """Return a DataFrame as an input, with the columns that name its feeds, their order and its tombstones."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    refuse_preimages(df, "an update stream")
    for option, given in (("feed", feed), ("order", order), ("deleted", deleted)):
        column_argument(option, given)
    _check_frame(df, plan.key, plan.time, stamped=plan.stamped)
    check_types(plan)
    kafka = set(df.columns) >= _KAFKA
    if feed is None and kafka:
        feed = F.concat_ws("/", F.col("topic"), F.col("partition"))
        order = F.col("offset") if order is None else order
    columns = {FEED: F.lit(plan.name) if feed is None else _column(df, feed).cast("string")}
    if order is not None:
        columns[ORDER] = _column(df, order)
    if deleted is not None:
        columns[DELETED] = F.coalesce(_column(df, deleted).cast("boolean"), F.lit(False))
    # Spark journals a batch's time before the batch runs: it is the first time at which the rows were visible.
    columns[ARRIVAL] = F.current_timestamp()
    return Intake(
        plan.key, plan.time, from_arrow_schema(plan.leaving), left_out_by_source(df),
        specification=plan, frame=df, columns=columns, name=plan.name, promises=plan.promises,
        given=TimeFormat(plan.time_format, plan.time_zone),
        paced=plan.on_demand is not None, late_aside=copies_late(dead_letter_rows),
        dead_letters=None if dead_letters is None else path_argument("dead_letters", dead_letters),
    )  # fmt: skip


def copies_late(dead_letter_rows: str | None) -> bool:
    """Return whether late rows go to the dead-letter table; raise OptionError for another word than ``late``."""
    return dead_letter_rows is not None and bool(word_argument("dead_letter_rows", dead_letter_rows, Literal["late"]))


def on_demand_watermark(policy: Policy, idle: Idle, ets_delay: str | None) -> OnDemandWatermark | None:
    """Return the settings of on-demand timestamps; None unless `idle` is ``ets``."""
    if idle not in get_args(Idle):
        raise OptionError(
            f"idle={idle!r}",
            expected="'wait', or 'ets', which advances an idle partition's watermark by the clock",
            hint="correct idle",
        )
    if idle == "wait":
        if ets_delay is not None:
            raise OptionError(f"ets_delay={ets_delay!r} with idle='wait'", expected="idle='ets' beside it")
        return None
    if policy.name == "none":
        raise OptionError(
            "idle='ets' without a watermark", expected="a watermark for the clock to move", hint="leave idle out"
        )
    delay_us = None if ets_delay is None else duration_argument("ets_delay", ets_delay)
    return OnDemandWatermark(policy.name == "arrival", delay_us, policy.delay_us)


def _column(df: DataFrame, given: str | Column) -> Column:
    from pyspark.sql import functions as F

    if not isinstance(given, str):
        return given
    return F.col(quoted(given)) if given in df.columns else F.expr(given)


def _check_frame(df: DataFrame, key: Sequence[str], time: str | None, *, stamped: bool) -> None:
    if not df.isStreaming:
        raise OptionError(
            "the DataFrame is not a stream",
            expected="a DataFrame made by readStream",
            hint="read it with spark.readStream",
        )
    if SYSTEM in df.columns:
        raise SchemaError(
            f"the DataFrame has the column {SYSTEM} already",
            expected="rows without feeds and progress",
            hint="this DataFrame is an update stream already: use UpdateStream(df, key=…, event_time=…)",
        )
    absent = [each for each in (*key, *([time] if time and not stamped else [])) if each not in df.columns]
    if absent:
        raise SchemaError(
            f"the DataFrame has no column {', '.join(absent)}",
            expected="the key and the time among " + ", ".join(df.columns),
            hint="of a field of a struct make a column, with withColumn, before",
        )
    if stamped and time in df.columns:
        raise SchemaError(
            f"Watermark.arrival() would stamp rows in the column {time!r}, which they have already",
            expected="the name of a new column",
        )
    check_collations(df.schema)
    if time is not None and time in key:
        raise OptionError(f"{time!r} is both the time and part of the key", expected="different columns")


def check_types(plan: IntakePlan) -> None:
    """Refuse columns whose types do not suit the key or the time."""
    check_time_zone("time_zone", plan.time_zone)
    if plan.time is not None and not plan.stamped:
        check_time_type(plan.time, plan.schema.field(plan.time).type, plan.time_format, "time_format")
    for name in plan.key:
        dtype = plan.schema.field(name).type
        if pa.types.is_list(dtype) or pa.types.is_map(dtype):
            raise SchemaError(
                f"the key column {name!r} is of type {dtype}", expected="a type that can be compared for equality"
            )
    if plan.policy.name == "embedded" and not plan.key:
        raise OptionError(
            "Watermark.embedded() without a key", hint="name the key; rows without one are the punctuation"
        )
