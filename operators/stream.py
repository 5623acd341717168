"""The fluent update stream: steps on rows that have an update key, ending in a DataFrame."""

from __future__ import annotations

from .stateful import Stateful
from .stateless import Stateless

__all__ = ["UpdateStream"]


class UpdateStream(Stateless, Stateful):
    """Rows that update a key.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Streaming, with the system column ``_upstream``, as ``spark.readStream.format("upstream")`` gives it.
    key : str or sequence of str
        The update key's column or columns.
    time : str, optional
        The column that says which of two rows of a key is newer: a timestamp, a date or a number. Without it, arrival does.

    Raises
    ------
    SchemaError
        A column is missing.

    Notes
    -----
    Each step gives a new stream; nothing runs until it is written, by :func:`~upstream.sink.latest.write_latest` or as the DataFrame
    :attr:`df`. Punctuation and tombstones pass every step.
    """
