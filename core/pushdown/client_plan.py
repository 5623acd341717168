"""The sources of a DataFrame of Spark Connect, from the unresolved plan that the client sends to the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["is_client_frame", "source_alone", "sources_within"]

_SOURCE = "spark.connect.Read.DataSource"


def is_client_frame(df: DataFrame) -> bool:
    """Return whether a DataFrame belongs to a client of Spark Connect."""
    return getattr(df, "_jdf", None) is None and getattr(df, "_plan", None) is not None


def source_alone(df: DataFrame, name: str) -> Mapping[str, str] | None:
    """Return the options of the source of that format if `df` reads it and does nothing more; else None.

    None also for a source with a schema or a name that the user set, or with several paths.
    """
    root = _relation(df)
    if root.WhichOneof("rel_type") != "read" or not root.read.is_streaming or not root.read.HasField("data_source"):
        return None
    source = root.read.data_source
    named = getattr(root.read, "source_name", "") or getattr(source, "source_name", "")
    if source.format != name or source.schema or named or len(source.paths) > 1:
        return None
    return _options(source)


def sources_within(df: DataFrame, name: str | None) -> list[Mapping[str, str]]:
    """Return the options of each source of a format, or of any, at any depth; views of the server hide theirs."""
    return [_options(source) for source in _messages(_relation(df), _SOURCE) if name in (None, source.format)]


def _relation(df: DataFrame) -> Any:
    plan: Any = df._plan  # pyright: ignore[reportAttributeAccessIssue] PySpark has no public name for it
    client: Any = df.sparkSession.client
    # Not the whole message, which the client may compress.
    return plan.plan(client)


def _options(source: Any) -> dict[str, str]:
    # A path given to `load` is an option too, as on a classic session.
    return {**dict(source.options), **({"path": str(source.paths[0])} if source.paths else {})}


def _messages(message: Any, kind: str) -> Iterator[Any]:
    """Iterate over the messages of a kind within a message, itself included."""
    if message.DESCRIPTOR.full_name == kind:
        yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for each in [value] if hasattr(value, "DESCRIPTOR") else value:
            yield from _messages(each, kind)
