"""The record of a source in its query's checkpoint, by which its rows are read again without Spark."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ..conf.errors import CheckpointError
from ..conf.locations import absolute_location
from ..conf.options import documented
from ..core.feedback.checkpoint_layout import SOURCE_RECORD
from ..core.rows.key import Key
from ..storage.atomic_write import write_whole
from ..storage.folder import TableFolder
from .options import STORAGE_PREFIX, SourceOptions
from .registry import CONNECTORS, make_connector, parse_source_options
from .schema import FeedShape, record_id, with_columns
from .task import Reading

_LAYOUT = 1
_FILES = "files"


@dataclasses.dataclass(frozen=True)
class SourceRecord:
    """A source, as a query reads it. Options of a store, and those of brokers, are not recorded: they have secrets."""

    given: Mapping[str, str]
    reading: Reading
    feed: pa.Schema | None = None  # the feed's own schema, if `select` computes others

    def keep(self, checkpoint: TableFolder) -> None:
        """Write the record, unless the checkpoint has it."""
        reading = self.reading
        value = {
            "layout": _LAYOUT,
            "connector": reading.connector.name,
            "options": self._options(),
            "key": list(reading.options.key),
            "rows": _text(reading.shape.rows),
            "leaving": _text(reading.shape.leaving),
            "stamped": reading.shape.stamped,
            "feed": None if self.feed is None else _text(self.feed),
        }
        name, content = f"{SOURCE_RECORD}{record_id(self.given)}.json", json.dumps(value).encode()
        with checkpoint.guarded():
            with contextlib.suppress(FileNotFoundError):
                if checkpoint.read(name) == content:
                    return
            write_whole(checkpoint, name, lambda stream: stream.write(content))

    def _options(self) -> dict[str, str]:
        """Return the options that hold anywhere: paths are absolute, and names are in lower case."""
        groups = [SourceOptions, *([CONNECTORS[_FILES].group()] if self.reading.options.connector == _FILES else [])]
        known = {doc.name.lower() for doc in documented(*groups)}
        options = {name.lower(): value for name, value in self.given.items() if name.lower() in known}
        options.pop("checkpointlocation", None)
        if "path" in options:
            options["path"] = _absolute(options["path"])
        if "paths" in options:
            options["paths"] = json.dumps([_absolute(path) for path in json.loads(options["paths"])])
        if self.reading.options.dead_letters is not None:
            options["deadletters"] = self.reading.options.dead_letters
        return options


def _absolute(path: str) -> str:
    return absolute_location(path) + ("/" if path.endswith("/") and os.path.isdir(path) else "")


@dataclasses.dataclass(frozen=True)
class RecordedSource:
    """A source as its record describes it."""

    connector: str  # as end offsets name it
    columns: str  # as end offsets have them
    reading: Reading | None  # None if its rows are not in files


def recorded_sources(checkpoint: TableFolder) -> list[RecordedSource]:
    """Return the sources whose records a checkpoint has; raise a CheckpointError for a record that cannot be read."""
    names = sorted(name for name in checkpoint.names("") if name.startswith(SOURCE_RECORD))
    return [_recorded(checkpoint, name) for name in names]


def _recorded(checkpoint: TableFolder, name: str) -> RecordedSource:
    try:
        value = json.loads(checkpoint.read(name))
        layout = value["layout"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(checkpoint, name, str(error)) from error
    if layout != _LAYOUT:
        raise _unreadable(checkpoint, name, f"it has layout {layout}, and this version reads layout {_LAYOUT}")
    given: dict[str, Any] = {
        **value["options"],
        **{STORAGE_PREFIX + option: text for option, text in checkpoint.storage.items()},
        "checkpointLocation": checkpoint.location,
    }
    shape = FeedShape(_schema(value["rows"]), _schema(value["leaving"]), value["stamped"])
    columns = json.dumps([[field.name, str(field.type)] for field in shape.rows])
    if given.get("connector", _FILES) != _FILES:
        return RecordedSource(value["connector"], columns, None)
    options, own = parse_source_options(given)
    options = with_columns(dataclasses.replace(options, key=Key(value["key"])), shape)
    connector = make_connector(options, own, None if value["feed"] is None else _schema(value["feed"]))
    connector.fix_schema(shape.rows)
    return RecordedSource(value["connector"], columns, Reading(options, shape, connector, None))


def _unreadable(checkpoint: TableFolder, name: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"the record of a source in {checkpoint.location}/{name} cannot be read: {why}",
        hint="remove the file; the query writes it again when it starts",
    )


def _text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))
