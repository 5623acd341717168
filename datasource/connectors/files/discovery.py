"""Discovery of files in complete passes over the paths, inline or in the background; the schema from first rows."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from ....conf.errors import FeedChangedError, SchemaError
from ....conf.locations import is_remote
from .content import codec_of, compressed_blocks, footer, line_ends
from .formats.lines import Head, LineFormat
from .store import FileAccess, Folders, Seen, kind_by_name, natural_key, new_in

# A pass that takes longer than this goes to the background, at a tenth of one core.
_QUICK_SECONDS = 0.05
# Few files are passed over at once even so: a pass over them is slow only while the machine is busy with something
# else.
_FEW_FILES = 1_000
_BEARABLE_SECONDS = 1.0
_REST = 9
# Between passes, folders whose time of change has moved are looked through for new names.
_LOOK_SECONDS = 0.2
# Files that changed last are looked at each time, so that a growing file in a vast folder is followed without delay.
_HOT = 128

_ON_DISKS = FileAccess()

Changes = tuple[dict[str, Seen], set[str]]


class Discovery:
    """The files under some paths, followed over time. A file under two of them belongs to the first."""

    def __init__(
        self, roots: Sequence[str], *, recursive: bool, name_filter: str | None, access: FileAccess = _ON_DISKS
    ) -> None:
        self._roots = tuple(roots)
        self._recursive = recursive
        self._filter = name_filter
        self._access = access
        self._files: dict[str, Seen] = {}
        self._changed: dict[str, Seen] = {}
        self._gone: set[str] = set()
        self._hot: dict[str, None] = {}
        self._looked: set[str] = set()
        self._folders: Folders = {}
        self._frozen = False
        self._passed = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._state = threading.Lock()
        self._passing = threading.Lock()
        self.seconds = 0.0

    def freeze(self) -> None:
        """Make one complete pass, and keep its result."""
        self._frozen = False
        self._pass()
        self._frozen = True
        self._stop.set()

    def changes(self) -> Changes:
        """Return new and changed files, and files gone, since the last call; the first call returns all as new."""
        self._refresh()
        with self._state:
            found, gone = self._changed, self._gone
            self._changed, self._gone = {}, set()
        return found, gone

    def everything(self) -> dict[str, Seen]:
        """Return all files known now, and forget what :meth:`changes` would return."""
        self._refresh()
        with self._state:
            self._changed, self._gone = {}, set()
            return dict(self._files)

    def _refresh(self) -> None:
        if self._frozen:
            return
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        bearable = _BEARABLE_SECONDS if len(self._files) < _FEW_FILES else _QUICK_SECONDS
        if not self._passed or self.seconds < bearable:
            self._pass()
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=_follow, args=(weakref.ref(self), self._stop), daemon=True)
            self._thread.start()
        self._look_at_hot()

    def _look_at_hot(self) -> None:
        for path in list(self._hot):
            try:
                stat = os.stat(path)
            except FileNotFoundError:
                self._hot.pop(path, None)
                continue
            with self._state:
                known = self._files.get(path)
                if known is None or self._frozen:
                    continue
                seen = (stat.st_size, stat.st_mtime_ns, known[2])
                if seen != known:
                    self._files[path] = self._changed[path] = seen
                    self._looked.add(path)

    def _pass(self) -> None:
        with self._passing:
            began = time.monotonic()
            with self._state:
                self._looked.clear()
            found: dict[str, Seen] = {}
            folders: Folders = {}
            try:
                # The first path above a file names its feed, so the last one is listed first.
                for root in range(len(self._roots) - 1, -1, -1):
                    found.update(
                        self._access.find(
                            self._roots[root], root, folders, recursive=self._recursive, name_filter=self._filter
                        )
                    )
            except OSError as error:
                raise FeedChangedError(
                    f"the files under {', '.join(self._roots)} cannot be listed: {error}",
                    hint="restore access and restart; the query resumes where it stopped",
                ) from error
            with self._state:
                if self._frozen:
                    return
                before = self._files
                changed = {path: seen for path, seen in found.items() if before.get(path) != seen}
                # What was looked at since this pass began is newer than what the pass saw.
                for path in self._looked & found.keys():
                    found[path] = before[path]
                    changed.pop(path, None)
                new = sum(1 for path in changed if path not in before)
                gone = before.keys() - found.keys() if len(found) - new < len(before) else set()
                self._files, self._folders = found, folders
                self._changed.update(changed)
                self._gone = (self._gone | gone) - found.keys() if gone or self._gone else self._gone
                for path in gone:
                    self._changed.pop(path, None)
                for path in [path for path in changed if not is_remote(path)][-_HOT:]:
                    self._hot.pop(path, None)
                    self._hot[path] = None
                while len(self._hot) > _HOT:
                    del self._hot[next(iter(self._hot))]
            self.seconds = time.monotonic() - began
            self._passed = True

    def _look_for_new(self) -> None:
        """Find new files in folders that have changed, without looking at the others' sizes."""
        with self._passing:
            for folder, (changed, root) in list(self._folders.items()):
                try:
                    if os.stat(folder).st_mtime_ns == changed:
                        continue
                    found = dict(new_in(folder, root, self._folders, self._files, name_filter=self._filter))
                except OSError:
                    continue  # the next pass will say so
                with self._state:
                    if self._frozen:
                        return
                    self._files.update(found)
                    self._changed.update(found)
                    self._gone -= found.keys()
                    for path in list(found)[-_HOT:]:
                        self._hot[path] = None


def _follow(reference: weakref.ref[Discovery], stop: threading.Event) -> None:
    # Holds no reference while it rests, so that a forgotten discovery ends its thread.
    rest, due = _LOOK_SECONDS, 0.0
    while not stop.wait(rest):
        discovery = reference()
        if discovery is None:
            return
        began = time.monotonic()
        try:
            if began >= due:
                discovery._pass()  # pyright: ignore[reportPrivateUsage]
                due = time.monotonic() + _REST * discovery.seconds
                rest = _LOOK_SECONDS
            else:
                discovery._look_for_new()  # pyright: ignore[reportPrivateUsage]
                rest = max(_LOOK_SECONDS, _REST * (time.monotonic() - began))
        except BaseException as error:  # noqa: BLE001 - raised where the query can see it
            discovery._error = error  # pyright: ignore[reportPrivateUsage]
            return
        del discovery


_SAMPLE_BYTES = 16 << 20
_SAMPLE_FILES = 16
_GIVE = 'give it with the option `schema`, such as "id BIGINT, name STRING", or wait until there are rows'


class Sampler:
    """Inference of a schema from the first files by arrival: up to 16 MB of text and 16 files.

    A column is text if the sample has only nulls, if its kind differs between files, or if its values do not fit it.
    With `unseen`, columns without a value keep the null type.
    """

    def __init__(
        self,
        format_of: Callable[[str, bytes], LineFormat | None],
        given: Sequence[str],
        access: FileAccess,
        *,
        unseen: bool = False,
    ) -> None:
        self._unseen = unseen
        self._format_of = format_of
        self._given = given
        self._access = access

    def schema(self, files: Mapping[str, Seen]) -> pa.Schema:
        """Return the schema of these files; raise SchemaError if there is no file or row, or if no schema fits."""
        paths = sorted(
            (path for path, seen in files.items() if seen[0]), key=lambda path: (files[path][1], natural_key(path))
        )
        where = ", ".join(map(repr, self._given))
        if not paths:
            raise SchemaError(f"there is no file with data at {where} to infer a schema from", hint=_GIVE)
        found: list[pa.Schema] = []
        left = _SAMPLE_BYTES
        for path in paths[:_SAMPLE_FILES]:
            with self._access.open(path) as file:
                codec = codec_of(file, kind_by_name(path)[1])
                file.seek(0)
                if self._format_of(path, b"" if codec else file.read(64)) is None:
                    foot = footer(file)
                    if foot is not None:
                        found.append(_normal(foot.schema))
                    continue
                start = self._start(path, codec, left)
            schema = self._of_text(path, start)
            if schema is not None:
                found.append(schema)
            left -= len(start)
            if left <= 0:
                break
        if not found:
            raise SchemaError(f"there is no row at {where} to infer a schema from", hint=_GIVE)
        unified = _unified(found)
        return unified if self._unseen else _final(unified)

    def _start(self, path: str, codec: str | None, size: int) -> bytes:
        with self._access.open(path) as file:
            if codec is None:
                return file.read(size)
            pieces: list[bytes] = []
            try:
                for _, block in compressed_blocks(file, codec, size=min(size, 1 << 20)):
                    pieces.append(block)
                    size -= len(block)
                    if size <= 0:
                        break
            except OSError:  # still being written; what there is of it will do
                pass
            return b"".join(pieces)

    def _of_text(self, path: str, start: bytes) -> pa.Schema | None:
        form = self._format_of(path, b"")
        assert form is not None
        try:
            head = form.head(start, complete=True)
            if head is None:
                return None
            sample = start[head.start :]
            sample = sample[: form.last_end(sample) or len(sample)]
            if not sample.strip() and form.name != "zeek":
                return None
            return self._readable(form, head, _normal(form.infer(sample, head)), sample)
        except SchemaError as error:
            raise SchemaError(f"file {path}: {error.problem}", expected=error.expected, hint=error.hint) from error
        except pa.ArrowInvalid as error:
            raise SchemaError(f"file {path} cannot be read as {form.name}: {error}", hint=_GIVE) from error

    def _readable(self, form: LineFormat, head: Head, schema: pa.Schema, sample: bytes) -> pa.Schema:
        """Return the schema, with text for times that the parser cannot read back, such as those with nanoseconds."""
        if form.name == "zeek":
            return schema
        few = sample[: line_ends(sample[: 1 << 20]) or len(sample)]
        for number, field in enumerate(schema):
            if not pa.types.is_timestamp(field.type):
                continue
            try:
                form.parser(head, schema, [field.name]).parse(few)
            except pa.ArrowInvalid:
                schema = schema.set(number, field.with_type(pa.string()))
        return schema


def normal_type(dtype: pa.DataType) -> pa.DataType:
    """Return the nearest type that Spark has, wide enough for every value."""
    types = pa.types
    if types.is_dictionary(dtype):
        return normal_type(dtype.value_type)
    if types.is_timestamp(dtype):
        return pa.timestamp("us", "UTC" if dtype.tz else None)
    if types.is_uint8(dtype):
        return pa.int16()
    if types.is_uint16(dtype):
        return pa.int32()
    if types.is_uint32(dtype):
        return pa.int64()
    if types.is_uint64(dtype):
        return pa.decimal128(20, 0)
    if types.is_float16(dtype):
        return pa.float32()
    if types.is_large_string(dtype) or types.is_string_view(dtype) or types.is_time(dtype):
        return pa.string()
    if types.is_large_binary(dtype) or types.is_fixed_size_binary(dtype) or types.is_binary_view(dtype):
        return pa.binary()
    if types.is_date64(dtype):
        return pa.date32()
    if types.is_duration(dtype):
        return pa.duration("us")
    if types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype):
        return pa.list_(normal_type(dtype.value_type))
    if types.is_struct(dtype):
        return pa.struct([pa.field(field.name, normal_type(field.type)) for field in dtype])
    if types.is_map(dtype):
        return pa.map_(normal_type(dtype.key_type), normal_type(dtype.item_type))
    return dtype


def _normal(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, normal_type(field.type)) for field in schema])


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        pass
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            before = fields.setdefault(field.name, field)
            try:
                fields[field.name] = pa.unify_schemas(
                    [pa.schema([before]), pa.schema([field])], promote_options="permissive"
                )[0]
            except (pa.ArrowTypeError, pa.ArrowInvalid):
                fields[field.name] = pa.field(field.name, pa.string())
    return pa.schema(list(fields.values()))


def _final(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _without_null(field.type)) for field in schema])


def _without_null(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_null(dtype):
        return pa.string()
    if pa.types.is_list(dtype):
        return pa.list_(_without_null(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(field.name, _without_null(field.type)) for field in dtype])
    return dtype
