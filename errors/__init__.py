"""The errors that UpStream raises on purpose: ``upstream.errors``.

What a call refuses, it raises as one of these classes, before a query starts. Catch :class:`UpstreamError` for all of
them, or the class that you can do something about. Each class is also the built-in exception that fits best, so
``except ValueError`` takes a wrong option.

An error in a running query comes as Spark's ``StreamingQueryException``, from ``query.awaitTermination()`` and
``query.exception()``. Its message ends with the class's name and our message.

Examples
--------
>>> try:
...     us.Watermark.bounded("soon")
... except us.errors.OptionError as error:
...     print(error.problem, "->", error.expected)
delay='soon' -> a duration such as '10 minutes'
"""

from ..conf.errors import (
    AggregateOverflowError,
    CheckpointError,
    EnvironmentMissingError,
    FeedChangedError,
    MalformedRowError,
    OptionError,
    QueryError,
    QueryRefusedError,
    SchemaError,
    StateLimitError,
    TableError,
    UpstreamError,
)

__all__ = [
    "AggregateOverflowError",
    "CheckpointError",
    "EnvironmentMissingError",
    "FeedChangedError",
    "MalformedRowError",
    "OptionError",
    "QueryError",
    "QueryRefusedError",
    "SchemaError",
    "StateLimitError",
    "TableError",
    "UpstreamError",
]
