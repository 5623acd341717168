"""The names that a query can use: streams, stored relations, and views."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as patypes

from ..conf.errors import OptionError, SchemaError
from ..expressions.bind import arrow_schema
from ..expressions.kinds import UTC
from ..expressions.places import near
from ..expressions.python_functions import PythonFunction
from ..expressions.reader import NOT_NAMES
from ..expressions.types import function_names
from ..operators.relations.plan.aggregates import is_aggregate
from ..operators.relations.plan.nodes import Stream
from .statements import CreateFunction, parse

_LONGEST = 1_000
FREE_NAMES = (
    f"a name of at most {_LONGEST:,} characters, not empty and without control characters, that does not begin with "
    "two underscores or with _upstream"
)


def reserved_name(schema: pa.Schema) -> str | None:
    """Return a column or field that cannot have its name, in a readable form; None if all can.

    Evaluation and tables use some names themselves, and Polars renames columns without a name. Files hold no control
    characters or halves of a character in names.
    """
    fields, found = [*schema], list[str]()
    while fields:
        field = fields.pop()
        fields += [field.type.field(at) for at in range(field.type.num_fields)]
        found.append(field.name)
    bad = next((each for each in schema.names if each.lower().startswith(("__", "_upstream"))), None)
    if bad is None:
        bad = next((each for each in found if not each or len(each) > _LONGEST or not _PLAIN.fullmatch(each)), None)
    if bad is None or len(bad) <= _LONGEST:
        return bad if bad is None else ascii(bad)
    return f"{bad[:50]!a} … ({len(bad):,} characters)"


_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*")


def by_position(stream: Stream) -> bool:
    """Return whether the rows of a stream are in the order of a number, such as a position in a log, and of no time."""
    return not stream.static and patypes.is_int64(stream.schema.field(stream.event_time).type)


@lru_cache(maxsize=1024)
def function_of(text: str) -> PythonFunction:
    """Return the function that a statement declares; raise OptionError if it cannot be one."""
    statement = parse(text)
    assert isinstance(statement, CreateFunction)
    if not statement.parameters:
        raise OptionError(f"the function '{statement.name}' has no parameter", expected="one or more columns")
    if not all(statement.place.partition(":")):
        raise OptionError(f"'{statement.place}' names no function", expected="'module:function'")
    parameters, result = arrow_schema(statement.parameters), arrow_schema(f"result {statement.returns}")
    return PythonFunction(statement.name, parameters, result.field(0).type, statement.place)


@dataclass(frozen=True)
class Catalog:
    """Streams and views by name. Names compare without regard to case, as in Spark."""

    streams: Mapping[str, Stream] = field(default_factory=dict[str, Stream])  # Also stored relations.
    views: Mapping[str, str] = field(default_factory=dict[str, str])  # Their queries as text.
    functions: Mapping[str, str] = field(default_factory=dict[str, str])  # Their statements.
    time_zone: str = UTC  # The session's, for expressions; see `zone_of_session`.

    def in_zone(self, time_zone: str) -> Catalog:
        return self if time_zone == self.time_zone else replace(self, time_zone=time_zone)

    def with_lateness(self, lateness_us: int) -> Catalog:
        """Return a catalog in whose streams a row counts up to so much below the low-watermark."""
        if not lateness_us:
            return self
        streams = {
            name: each if each.static else replace(each, lateness_us=lateness_us) for name, each in self.streams.items()
        }
        return replace(self, streams=streams)

    def with_stream(self, stream: Stream) -> Catalog:
        """Return a catalog with a stream added; refuse a taken name, and a key or event time that does not fit."""
        self._free(stream.name)
        names = stream.schema.names
        if len({each.lower() for each in names}) != len(names):
            raise SchemaError(
                f"two columns of '{stream.name}' have one name: {', '.join(names)}",
                expected="names that differ in more than case",
                hint="rename one of them",
            )
        reserved = reserved_name(stream.schema)
        if reserved is not None:
            raise SchemaError(f"a column of '{stream.name}' is named {reserved}", expected=FREE_NAMES, hint="rename it")
        for each in (*stream.key, *([] if stream.static else [stream.event_time])):
            if each not in names:
                raise SchemaError(
                    f"'{stream.name}' has no column '{each}'",
                    expected="one of " + ", ".join(names),
                    hint=near(each, names) or "name the key's columns and the event time",
                )
        is_time = stream.static or patypes.is_timestamp(stream.schema.field(stream.event_time).type)
        if not is_time and not (stream.updates and by_position(stream)):
            kind = stream.schema.field(stream.event_time).type
            raise SchemaError(
                f"the event time '{stream.event_time}' of '{stream.name}' has the type {kind}",
                expected="a timestamp, or for newest rows alone a position in a log, a BIGINT",
                hint="make a timestamp of it, such as select = '…, timestamp_millis(t) AS t' in CREATE SOURCE",
            )
        if stream.updates and not stream.key:
            raise OptionError(
                f"'{stream.name}' is a stream of updates without a key", expected="the columns of the update key"
            )
        return replace(self, streams={**self.streams, stream.name: stream})

    @property
    def relations(self) -> dict[str, Stream]:
        return {name: each for name, each in self.streams.items() if each.static}

    def with_relation(self, relation: Stream) -> Catalog:
        """Return a catalog with a stored relation, or another version of it, added."""
        known = self.relations
        others = {name: each for name, each in self.streams.items() if name not in known or name != relation.name}
        return replace(self, streams=others).with_stream(relation)

    def with_view(self, name: str, query: str) -> Catalog:
        """Return a catalog with a view added. Its query is checked only when it is used, or bound alone."""
        self._free(name)
        return replace(self, views={**self.views, name: query})

    def with_function(self, name: str, text: str) -> Catalog:
        """Return a catalog with a function added; raise OptionError if its statement or its name does not fit."""
        self._free(name)
        function_of(text)
        if is_aggregate(name.lower()) or name.lower() in function_names():
            raise OptionError(f"{name.upper()} is a function of SQL", hint="choose another name")
        return replace(self, functions={**self.functions, name: text})

    def _free(self, name: str) -> None:
        if not name or name.upper() in NOT_NAMES:
            raise OptionError(f"{name!r} cannot be a name", expected="a word that is not one of the language")
        if any(each.lower() == name.lower() for each in (*self.names(), *self.functions)):
            raise OptionError(f"the name '{name}' is taken", hint="choose another name, or drop the other first")

    def stream(self, name: str) -> Stream | None:
        found = self.streams.get(name)
        return found or next((each for key, each in self.streams.items() if key.lower() == name.lower()), None)

    def view(self, name: str) -> tuple[str, str] | None:
        """Return a view's name in its own spelling and its text, if there is one."""
        if name in self.views:
            return name, self.views[name]
        return next(((key, each) for key, each in self.views.items() if key.lower() == name.lower()), None)

    def function(self, name: str) -> PythonFunction | None:
        found = next((each for key, each in self.functions.items() if key.lower() == name.lower()), None)
        return None if found is None else function_of(found)

    def names(self) -> list[str]:
        return sorted([*self.streams, *self.views])
