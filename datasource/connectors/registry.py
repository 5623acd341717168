"""Connectors by name, and the options each of them takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa

from ...conf.options import documented, parse_options
from ..options import SourceOptions
from .contract import Connector

__all__ = ["CONNECTORS", "ConnectorEntry", "parse_source_options"]


@dataclasses.dataclass(frozen=True)
class ConnectorEntry:
    """Where a connector and its options are, so that only the one in use is imported."""

    module: str
    options: str
    factory: str

    def group(self) -> type:
        """The connector's option group."""
        return getattr(import_module(self.module, __package__), self.options)

    def make(self, options: object, common: SourceOptions, schema: pa.Schema | None) -> Connector:
        """The connector itself."""
        make: Callable[..., Connector] = getattr(import_module(self.module, __package__), self.factory)
        return make(options, common, schema)


CONNECTORS = {
    "files": ConnectorEntry(".files", "FilesOptions", "make"),
    "kafka": ConnectorEntry(".kafka", "KafkaOptions", "make"),
    "latest": ConnectorEntry(".latest", "LatestOptions", "make"),
    "replay": ConnectorEntry(".replay", "ReplayOptions", "make"),
    "synthetic": ConnectorEntry(".synthetic", "SyntheticOptions", "make"),
}

# Added by Spark itself.
_SPARKS_OWN = ("paths",)


def parse_source_options(given: Mapping[str, str]) -> tuple[SourceOptions, Any]:
    """The common options and those of the connector they name.

    Raises
    ------
    OptionError
        Every problem found, in one.
    """
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
    prefix: str | None = getattr(groups[1], "PASSED_ON", None)
    prefixes = () if prefix is None else (prefix,)
    common, own = parse_options(given, groups, elsewhere=elsewhere, ignored=_SPARKS_OWN, ignored_prefixes=prefixes)
    if prefix is not None:
        lowered = {key.lower(): value for key, value in given.items()}
        passed_on = {key[len(prefix) :]: value for key, value in lowered.items() if key.startswith(prefix)}
        own = dataclasses.replace(
            own, passed_on={key: value for key, value in passed_on.items() if prefix + key not in known}
        )
    completed: Callable[[SourceOptions], SourceOptions] | None = getattr(own, "completed", None)
    if completed is not None:
        common = completed(common)
    common.check()
    return common, own
