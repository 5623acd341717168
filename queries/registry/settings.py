"""The settings that all queries of a checkpoint share: their streams, and the folder of their tables."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.errors import CheckpointError, OptionError
from ..relations.nodes import Stream
from ..relations.stored import StoredTable

if TYPE_CHECKING:
    from ..language.catalog import Catalog

__all__ = ["Settings", "stream_from_json", "stream_to_json"]


@dataclass(frozen=True)
class Settings:
    """The content of ``queries/streams.json`` below a checkpoint."""

    to: str  # folder of the queries' tables: an absolute path or an address
    shards: int  # number of parts of the state
    streams: tuple[Stream, ...] = ()  # the streams that queries can name
    inputs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # paths that a stream's sources read, by stream
    # Unique, so caches distinguish two checkpoints at the same place
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)

    def catalog(self) -> Catalog:
        from ..language.catalog import Catalog

        catalog = Catalog()
        for each in self.streams:
            catalog = catalog.with_stream(each)
        return catalog

    def with_stream(self, stream: Stream, inputs: Iterable[str] = ()) -> Settings:
        """Return the settings with a stream added or redefined.

        Raises OptionError or SchemaError if the stream cannot be read, or its name differs from another's in case only.
        """
        others = tuple(each for each in self.streams if each.name != stream.name)
        paths = {**dict(self.inputs), stream.name: tuple(inputs)}
        changed = replace(self, streams=(*others, stream), inputs=tuple(paths.items()), nonce=uuid.uuid4().hex)
        changed.catalog()
        return changed

    def table_of(self, query: str) -> str:
        return f"{self.to}/{query}"

    def stream(self, name: str) -> Stream | None:
        """Return the stream of exactly this name, if there is one."""
        return next((each for each in self.streams if each.name == name), None)

    def to_json(self) -> bytes:
        content = {
            "to": self.to,
            "shards": self.shards,
            "streams": [stream_to_json(each) for each in self.streams],
            "inputs": dict(self.inputs),
            "nonce": self.nonce,
        }
        return json.dumps(content, ensure_ascii=False, indent=1).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Settings:
        """Parse the file; raise CheckpointError if it is damaged or a later release wrote it."""
        try:
            read: dict[str, Any] = json.loads(content)
            streams = tuple(stream_from_json(each) for each in read["streams"])
            inputs = tuple((str(name), tuple(map(str, paths))) for name, paths in read["inputs"].items())
            return cls(str(read["to"]), int(read["shards"]), streams, inputs, str(read["nonce"]))
        except (ValueError, TypeError, KeyError, AttributeError, pa.ArrowInvalid, OSError) as error:
            raise CheckpointError(
                f"queries/streams.json of the checkpoint cannot be read: {error}",
                expected="the file as this release or an earlier one has written it",
                hint="use the release that wrote it, or restore the file",
            ) from error

    def check_same(self, to: str | None, shards: int | None) -> None:
        """Raise OptionError if a later run's arguments differ from the first run's."""
        for name, given, kept in (("to", to, self.to), ("shards", shards, self.shards)):
            if given is not None and given != kept:
                raise OptionError(
                    f"{name}={given!r}, and the checkpoint was begun with {kept!r}",
                    expected=f"the same for the life of a checkpoint: {kept!r}",
                    hint=f"leave {name} out, or begin a new checkpoint",
                )


def stream_to_json(stream: Stream) -> dict[str, Any]:
    """Return a JSON value of a stream or a stored relation."""
    table = {} if stream.table is None else {"table": asdict(stream.table)}
    return {
        **table,
        "name": stream.name,
        "key": list(stream.key),
        "event_time": stream.event_time,
        "updates": stream.updates,
        "static": stream.static,
        # For people who read the file; only the schema is parsed.
        "columns": {each.name: str(each.type) for each in stream.schema},
        "schema": base64.b64encode(stream.schema.serialize().to_pybytes()).decode(),
    }


def stream_from_json(read: Mapping[str, Any]) -> Stream:
    """Return the stream or relation from :func:`stream_to_json`."""
    schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(read["schema"])))
    key: Iterable[Any] = read["key"]
    return Stream(
        str(read["name"]),
        schema,
        tuple(str(each) for each in key),
        str(read["event_time"]),
        updates=bool(read["updates"]),
        static=bool(read["static"]),
        table=StoredTable(**read["table"]) if "table" in read else None,
    )
