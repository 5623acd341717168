"""What a query can name: streams, stored relations, and views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.types as patypes

from ...conf.errors import OptionError, SchemaError
from ..expressions.kinds import UTC
from ..relations.nodes import Stream
from .places import near
from .reserved_names import FREE_NAMES, is_reserved
from .syntax import NOT_NAMES

__all__ = ["Catalog"]


@dataclass(frozen=True)
class Catalog:
    """Streams and views by name. Names are compared without regard to case, as Spark compares them.

    Parameters
    ----------
    streams : mapping of str to Stream
        Streams and stored relations.
    views : mapping of str to str
        Queries that others name, as text.
    time_zone : str
        The session's, in which expressions have their values: as of :func:`~..expressions.zones.zone_of_session`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from upstream.queries.language.catalog import Catalog
    >>> from upstream.queries.relations.nodes import Stream
    >>> schema = pa.schema({"k": pa.string(), "v": pa.int64(), "t": pa.timestamp("us", "UTC")})
    >>> catalog = Catalog().with_stream(Stream("s", schema, key=("k",), event_time="t", updates=True))
    >>> catalog.with_view("large", "SELECT * FROM s WHERE v > 100").names()
    ['large', 's']
    """

    streams: Mapping[str, Stream] = field(default_factory=dict[str, Stream])
    views: Mapping[str, str] = field(default_factory=dict[str, str])
    time_zone: str = UTC

    def in_zone(self, time_zone: str) -> Catalog:
        """Return the catalogue for a query of another time zone."""
        return self if time_zone == self.time_zone else replace(self, time_zone=time_zone)

    def with_stream(self, stream: Stream) -> Catalog:
        """Return a catalogue with one stream more.

        Raises
        ------
        OptionError
            If the name is taken.
        SchemaError
            If key or event time are not columns of the stream, or the event time is no timestamp.
        """
        self._free(stream.name)
        names = stream.schema.names
        if len({each.lower() for each in names}) != len(names):
            raise SchemaError(
                f"two columns of '{stream.name}' have one name: {', '.join(names)}",
                expected="names that differ in more than case",
                hint="rename one of them",
            )
        reserved = next(filter(is_reserved, names), None)
        if reserved is not None:
            raise SchemaError(
                f"a column of '{stream.name}' is named '{reserved}'", expected=FREE_NAMES, hint="rename it"
            )
        for each in (*stream.key, *([] if stream.static else [stream.event_time])):
            if each not in names:
                raise SchemaError(
                    f"'{stream.name}' has no column '{each}'",
                    expected="one of " + ", ".join(names),
                    hint=near(each, names) or "name the key's columns and the event time",
                )
        if not stream.static and not patypes.is_timestamp(stream.schema.field(stream.event_time).type):
            kind = stream.schema.field(stream.event_time).type
            raise SchemaError(
                f"the event time '{stream.event_time}' of '{stream.name}' has the type {kind}",
                expected="a timestamp",
                hint="cast the column before you register the stream",
            )
        if stream.updates and not stream.key:
            raise OptionError(
                f"'{stream.name}' is a stream of updates without a key", expected="the columns of the update key"
            )
        return replace(self, streams={**self.streams, stream.name: stream})

    @property
    def relations(self) -> dict[str, Stream]:
        """The stored relations."""
        return {name: each for name, each in self.streams.items() if each.static}

    def with_relation(self, relation: Stream) -> Catalog:
        """Return a catalogue with a stored relation more, or with another version of it.

        Raises
        ------
        OptionError, SchemaError
            As of :meth:`with_stream`.
        """
        known = self.relations
        others = {name: each for name, each in self.streams.items() if name not in known or name != relation.name}
        return replace(self, streams=others).with_stream(relation)

    def with_view(self, name: str, query: str) -> Catalog:
        """Return a catalogue with one view more. The query is checked when it is used or bound by itself.

        Raises
        ------
        OptionError
            If the name is taken.
        """
        self._free(name)
        return replace(self, views={**self.views, name: query})

    def _free(self, name: str) -> None:
        if not name or name.upper() in NOT_NAMES:
            raise OptionError(f"{name!r} cannot be a name", expected="a word that is not one of the language")
        if self.stream(name) is not None or self.view(name) is not None:
            raise OptionError(f"the name '{name}' is taken", hint="choose another name, or drop the other first")

    def stream(self, name: str) -> Stream | None:
        """Return the stream of the name, if there is one."""
        found = self.streams.get(name)
        return found or next((each for key, each in self.streams.items() if key.lower() == name.lower()), None)

    def view(self, name: str) -> tuple[str, str] | None:
        """Return the view of the name, as its own name and its text, if there is one."""
        if name in self.views:
            return name, self.views[name]
        return next(((key, each) for key, each in self.views.items() if key.lower() == name.lower()), None)

    def names(self) -> list[str]:
        """Return all names, in order."""
        return sorted([*self.streams, *self.views])

    def schema_of(self, name: str) -> pa.Schema | None:
        """Return a stream's columns, if there is a stream of the name."""
        found = self.stream(name)
        return found.schema if found is not None else None
