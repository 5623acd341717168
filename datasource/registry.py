"""Connectors by name, and their options."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa

from ..conf.options import documented, parse_options
from .connectors.contract import Connector
from .options import POSITION, STORAGE_PREFIX, SourceOptions, reads_changes


@dataclasses.dataclass(frozen=True)
class ConnectorEntry:
    """The import names of a connector and its options, so that only the one in use is imported."""

    module: str
    options: str
    factory: str

    def group(self) -> type:
        return getattr(import_module(self.module, __package__), self.options)

    def make(self, options: object, common: SourceOptions) -> Connector:
        make: Callable[..., Connector] = getattr(import_module(self.module, __package__), self.factory)
        return make(options, common)


CONNECTORS = {
    "files": ConnectorEntry(".connectors.files", "FilesOptions", "make"),
    "kafka": ConnectorEntry(".connectors.kafka", "KafkaOptions", "KafkaConnector"),
    "latest": ConnectorEntry(".connectors.latest_table", "LatestOptions", "LatestConnector"),
    "replay": ConnectorEntry(".connectors.replay", "ReplayOptions", "make"),
    "synthetic": ConnectorEntry(".connectors.synthetic", "SyntheticOptions", "make"),
}


def make_connector(common: SourceOptions, own: object, raw: pa.Schema | None = None) -> Connector:
    """Make the connector that the options name; under `select`, `raw` is the feed's own schema, if known."""
    make: Callable[[SourceOptions], Connector] = functools.partial(CONNECTORS[common.connector].make, own)
    if changes := _reads_changes(own):
        from .changes import changes_of

        make = functools.partial(changes_of, make)
    if common.select is None:
        return make(common)
    from .selection import SelectingConnector, copied_column

    if raw is None and common.schema is not None:
        from ..expressions.bind import arrow_schema

        raw = arrow_schema(with_position(common.schema) if changes else common.schema)
    # Inside, key and time are the feed's columns: those that the selection takes as they are.
    key = [copied_column(common.select, name) for name in common.key]
    inside = dataclasses.replace(
        common,
        key=() if None in key or common.schema is not None else tuple(name for name in key if name is not None),
        time=None if common.time is None else copied_column(common.select, common.time),
        schema=None,
        where=None,
    )
    return SelectingConnector(make(inside), common.select, common.time_zone, raw, common.select_duplicates)


# Added by Spark itself.
_SPARKS_OWN = ("paths",)


def parse_source_options(given: Mapping[str, str]) -> tuple[SourceOptions, Any]:
    """Return the common options and those of the connector; raise one OptionError for all problems."""
    name = {key.lower(): value for key, value in given.items()}.get("connector", "files").strip().lower()
    entry = CONNECTORS.get(name)
    if entry is None:
        parse_options({"connector": name}, [SourceOptions])
        raise AssertionError(name)
    groups: list[type[Any]] = [SourceOptions, entry.group()]
    known = {doc.name.lower() for doc in documented(*groups)}
    elsewhere: dict[str, str] = {}
    if not known.issuperset(key.lower() for key in given):
        # Only a wrong name is worth importing the other connectors for.
        others = [(other, each.group()) for other, each in CONNECTORS.items() if other != name]
        elsewhere = {
            doc.name.lower(): f"belongs to connector={other}" for other, group in others for doc in documented(group)
        }
    passed_on: Mapping[str, str] = getattr(groups[1], "PASSED_ON", {})
    prefixes = (STORAGE_PREFIX, *passed_on)
    common, own = parse_options(given, groups, elsewhere=elsewhere, ignored=_SPARKS_OWN, ignored_prefixes=prefixes)
    common = dataclasses.replace(common, storage=_after(STORAGE_PREFIX, given))
    for prefix, field in passed_on.items():
        settings = {key: value for key, value in _after(prefix, given).items() if prefix + key not in known}
        own = dataclasses.replace(own, **{field: settings})
    completed: Callable[[SourceOptions], SourceOptions] | None = getattr(own, "completed", None)
    if completed is not None:
        common = completed(common)
    if changes := _reads_changes(own):
        from .changes import in_log_order

        common = in_log_order(common)
    common.check(keyed=changes)
    return common, own


def with_position(schema: str) -> str:
    """Return the schema of change events that a user gives, with their position."""
    from ..expressions.bind import arrow_schema

    return schema if POSITION in arrow_schema(schema).names else f"{schema}, {POSITION} BIGINT"


def _reads_changes(own: object) -> bool:
    """Return whether the options of a connector choose a format of change events."""
    return reads_changes({"format": getattr(own, "file_format", None) or getattr(own, "value_format", None)})


def _after(prefix: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options whose names begin with a prefix, in lower case and without the prefix."""
    lowered = {key.lower(): value for key, value in given.items()}
    return {key[len(prefix) :]: value for key, value in lowered.items() if key.startswith(prefix)}
