"""The journal of a registry: one small file per change, below the checkpoint; the settings and names in it."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from ..conf.errors import CheckpointError, OptionError, SchemaError
from ..conf.locations import checkpoint_location
from ..expressions.places import near
from ..operators.relations.plan.nodes import StoredTable, Stream
from ..storage.atomic_write import NumberedFiles, write_whole
from ..storage.folder import TableFolder

if TYPE_CHECKING:
    from ..language.catalog import Catalog


Kind = Literal[
    "create", "alter", "activate", "deactivate", "drop", "view", "drop_view", "table", "drop_table",
    "function", "drop_function", "statement", "apply", "fail",
]  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change of the registry. The job writes ``fail`` to deactivate a query; users cause the other kinds."""

    kind: Kind
    name: str  # of the query, view or relation
    text: str | None = None  # of a query or view, or a statement
    weight: float | None = None  # set by ``create`` and ``alter``
    active: bool | None = None  # run at once (``create``)
    buckets: int | None = None  # number of parts of the table (``create``)
    lateness_us: int | None = None  # by how much below the low-watermark rows still count (``create``)
    reason: str | None = None  # of a deactivation or failure
    kept_since_us: int | None = None  # when ``deactivate`` was asked to keep the state
    id: int | None = None  # failed incarnation; a later one of the query is not affected
    delete_table: bool | None = None  # have the job delete the table (``drop``)
    stream: dict[str, Any] | None = None  # the stored relation as JSON (``relation``)
    time_zone: str | None = None  # of the session, kept with a new text; None: UTC, or as before (``alter``)
    restarts: tuple[str, ...] | None = None  # queries that restart, as what they read is another one
    parts: tuple[Change, ...] | None = None  # changes that hold together (``apply``)
    queue: dict[str, str] | None = None  # options of its queue (``create``, and ``alter``; empty for none)
    by: str | None = None  # who made the change, where that is known

    def to_json(self) -> bytes:
        """Return the content of a file of the journal, with a nonce that is in no other file."""
        # Two writers of equal changes must each find out whose file was written.
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps({**given, "nonce": uuid.uuid4().hex}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Change:
        """Parse a file of the journal; raise CheckpointError if it is damaged."""
        try:
            read: dict[str, Any] = json.loads(content)
            read.pop("nonce")
            change = cls._of(read)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _unreadable("a change of the registry", content[:200].decode(errors="replace")) from error
        for each in (change, *(change.parts or ())):
            if each.kind not in get_args(Kind) or (each.kind == "table" and not isinstance(each.stream, dict)):
                raise _unreadable("a change of the registry", content[:200].decode(errors="replace"))
        return change

    @classmethod
    def _of(cls, read: Mapping[str, Any]) -> Change:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in read.items()
        }
        if values.get("parts") is not None:
            values["parts"] = tuple(map(cls._of, values["parts"]))
        return cls(**values)


def _unreadable(what: str, why: object) -> CheckpointError:
    return CheckpointError(
        f"{what} cannot be read: {why}",
        expected="the files below queries/ of the checkpoint as they were written",
        hint="restore that folder",
    )


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
        """Return the settings with a stream; raise OptionError or SchemaError if it is unreadable or its name taken."""
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
        """Parse the file; raise CheckpointError if it is damaged."""
        try:
            read: dict[str, Any] = json.loads(content)
            streams = tuple(stream_from_json(each) for each in read["streams"])
            inputs = tuple((str(name), tuple(map(str, paths))) for name, paths in read["inputs"].items())
            return cls(str(read["to"]), int(read["shards"]), streams, inputs, str(read["nonce"]))
        except (ValueError, TypeError, KeyError, AttributeError, pa.ArrowInvalid, OSError) as error:
            raise _unreadable("queries/streams.json of the checkpoint", error) from error

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
        "newest": stream.newest,
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
        newest=bool(read["newest"]),
    )


_OWN = "_upstream"


def pinned(name: str, location: str, storage: Mapping[str, str] | None = None) -> Stream:
    """Return a stored relation over a Delta table's current version.

    The object store's options in `storage` do not become part of it. Raises SchemaError if a column has a type unknown
    to Spark, or all columns are UpStream's own.
    """
    from ..operators.tables.lookup import pinned_table  # brings Spark

    version, columns = pinned_table(location, storage or {})
    own = pa.schema([field.with_nullable(True) for field in columns if not field.name.startswith(_OWN)])
    if not own.names:
        raise SchemaError(f"the table at {location} has no column", expected="a table with columns")
    table = StoredTable(location, version.table, version.number)
    return Stream(name, own.remove_metadata(), static=True, table=table)


def change_to(relation: Stream) -> Change:
    """Return the change that makes queries read a stored relation as it is given."""
    return Change("table", relation.name, stream=stream_to_json(relation))


def relation_of(change: Change) -> Stream:
    """Return the stored relation of a change; raise CheckpointError if it is damaged."""
    try:
        return stream_from_json(change.stream or {})
    except (ValueError, TypeError, KeyError, pa.ArrowInvalid, OSError) as error:
        raise _unreadable(f"the relation '{change.name}' of the registry", error) from error


# No path separator, no `=` (a partition's folder), nothing that an address escapes. Readers skip folders that
# begin with a dot or an underscore.
_NAME = re.compile(r"[^\W_][\w-]*")
_LONGEST = 100


def check_name(name: object, what: str) -> str:
    """Return a name of `what`, such as ``"a query"``; raise OptionError if it cannot name a table's folder."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.isdigit() or len(name.encode()) > _LONGEST:
        raise OptionError(
            f"{name!r} cannot name {what}",
            expected=f"letters, digits, '_' and '-'; a letter or a digit first, not digits alone, at most {_LONGEST} "
            "bytes",
            hint="choose another name: it also names a table's folder",
        )
    return name


def found(name: str, names: Iterable[str]) -> str | None:
    """Return the name as spelled among the known ones, ignoring case; None if it is not there."""
    lowered = name.lower()
    return next((each for each in names if each.lower() == lowered), None)


def known_name(name: object, names: Iterable[str], what: str) -> str:
    """Return the name as spelled among the known ones; raise OptionError with similar names if there is none."""
    known = list(names)
    spelled = found(name, known) if isinstance(name, str) else None
    if spelled is None:
        hint = near(str(name), known, all_of="there are") or f"create a {what} first"
        raise OptionError(f"there is no {what} '{name}'", expected=f"the name of a registered {what}", hint=hint)
    return spelled


def whole_view(view: str) -> str:
    """Return the query of all rows of a view. It checks the view: errors point into the view's own text."""
    return f"SELECT * FROM `{view}`"  # noqa: S608 a checked name


_FOLDER = "queries"
_CHANGES = "queries/changes"
_SETTINGS = "streams.json"


class Journal:
    """The changes of a registry, as :class:`NumberedFiles`: the newest number is the registry's version."""

    def __init__(self, checkpoint: str) -> None:
        self._folder = TableFolder(checkpoint_location(checkpoint), durable=True)
        self._files = NumberedFiles(self._folder, _CHANGES, "the queries")

    @property
    def location(self) -> str:
        return self._folder.location

    @property
    def is_local(self) -> bool:
        """True on a disk, where looking for changes is cheap."""
        return self._folder.is_local

    def version(self) -> int:
        return self._files.version()

    def read(self, versions: Iterable[int]) -> list[Change]:
        """Return changes by number, in the given order; raise CheckpointError if one is missing or damaged."""
        return [Change.from_json(content) for content in self._files.read(versions)]

    def times_us(self) -> dict[int, int]:
        """Return when each change was written."""
        return self._files.times_us()

    def put(self, version: int, change: Change) -> bool:
        """Write a change under the next number; return False if another process has. See :meth:`NumberedFiles.put`."""
        return self._files.put(version, change.to_json())

    def settings(self) -> Settings | None:
        """Return the shared settings; None before any are written."""
        with self._folder.guarded(), contextlib.suppress(FileNotFoundError):
            return Settings.from_json(self._folder.read(f"{_FOLDER}/{_SETTINGS}"))
        return None

    def write_settings(self, settings: Settings) -> None:
        """Replace the shared settings; raise CheckpointError if the job has run, which fixes them."""
        if self.started():
            raise CheckpointError(
                "the streams of a checkpoint are fixed once its job has run",
                expected="the streams, the folder of tables and the shards of the first run",
                hint="use a new checkpoint for other streams; queries can change at any time",
            )
        content = settings.to_json()

        def write(stream: Any) -> None:
            stream.write(content)

        with self._folder.guarded():
            try:
                self._files.make()
                write_whole(self._folder.below(_FOLDER), _SETTINGS, write)
            except OSError as error:
                raise self._files.unwritable(error) from error

    def started(self) -> bool:
        """Return whether the job has planned a batch."""
        with self._folder.guarded():
            return any(not each.startswith(".") for each in self._folder.names("offsets"))
