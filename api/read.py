"""The short way from a feed to an update stream."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..conf.arguments import path_argument, text_argument
from ..conf.errors import OptionError
from ..core.watermark.choice import Watermark, check_watermark
from ..datasource.latest_stream import latest_options, load_source
from ..operators.keyed import key_argument
from .stream import UpdateStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["read"]


def read(
    spark: SparkSession,
    path: str | os.PathLike[str] | None = None,
    *,
    key: str | Sequence[str],
    event_time: str | None = None,
    watermark: Watermark | None = None,
    watermark_delay: str | None = None,
    coalesce: bool = False,
    **options: object,
) -> UpdateStream:
    """Read a feed as a stream of updates.

    Parameters
    ----------
    spark
        Any session.
    path
        File, directory or pattern; None for a connector that needs none.
    key
        The update key's column or columns.
    event_time
        The column of the event time: it decides which of two rows of a key is newer, and moves the watermark. Without
        it arrival decides.
    watermark
        How far each input partition is complete, such as ``Watermark.adaptive(late=0.001)``.
    watermark_delay
        Short for ``Watermark.bounded(…)``: how far a row may be behind the newest.
    coalesce
        Let only the newest row of each key leave a task in each batch. Right for a table or a queue; windows need every
        row, and refuse it.
    **options
        Any option of the source, see docs/options.md, for example ``connector="kafka"``, ``timeFormat="epoch_ms"``.

    Returns
    -------
    UpdateStream
        To be filtered, windowed, and written.

    Raises
    ------
    OptionError
        An argument is wrong. A wrong option of the source raises a Spark exception whose message ends in UpStream's,
        since Spark starts the source in a process of its own.

    Examples
    --------
    >>> stream = us.read(spark, "feed/", key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")
    """
    keys = key_argument(key)
    time = text_argument("event_time", event_time)
    spelt = next((name for name in options if name.lower() == "time"), None)
    if spelt is not None:
        raise OptionError(
            f"{spelt}={options[spelt]!r}",
            expected="event_time",
            hint=f"write event_time={options[spelt]!r}: all steps use it",
        )
    if watermark is not None and watermark_delay is not None:
        raise OptionError(
            "both watermark and watermark_delay are given", expected="one of them", hint="leave watermark_delay out"
        )
    policy = Watermark.bounded(watermark_delay) if watermark_delay is not None else check_watermark(watermark)
    asked = {**latest_options(key, time), "coalesce": str(bool(coalesce)).lower()}
    asked |= {} if policy is None else policy.options()
    df = load_source(spark, None if path is None else path_argument("path", path), asked, options)
    return UpdateStream(df, key=keys, event_time=time)
