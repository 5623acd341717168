"""A table's rows, one key, files and dead letters for a browser, within limits of time and rows."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..conf.errors import OptionError
from ..core.rows.buckets import bucket_of
from ..core.rows.event_times import with_python_times
from ..delta_format.append_table import DEAD_LETTERS, dead_letter_table
from ..delta_format.latest_table import BUCKET
from ..delta_format.log import LiveFiles, LogReplay
from ..delta_format.scan import open_table, read_rows, scan_table
from ..sink.admin.erase import text_key
from ..sink.figures.dead_letters import letter_folders
from ..sink.table.contents import recorded_layout

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from deltalake import DeltaTable
    from starlette.requests import Request
    from starlette.routing import Route

    from .bench import Bench
    from .watch import WatchedTable

__all__ = ["json_rows", "key_row", "letters", "matching", "ordered", "routes", "table_files", "table_rows"]

_OURS = "_upstream_"
_SECONDS = 1.3
_LIMIT, _MOST = 100, 500
_CELL = 2_000
_EXACT = 1 << 53  # beyond, a browser's numbers are not exact


def matching(frame: pl.LazyFrame, where: str) -> pl.LazyFrame:
    """Return the rows for which a condition in SQL is true."""
    from ..expressions.bind import OptionText, bind_condition
    from ..expressions.compile import compiled_columns

    schema = _schema(frame)
    condition = bind_condition(OptionText(where, "where"), {"": schema})
    return compiled_columns([("where", condition)], schema).filtered(frame)


def ordered(frame: pl.LazyFrame, order_by: str) -> pl.LazyFrame:
    """Return the rows in an order in SQL, as after ORDER BY."""
    from ..expressions.bind import OptionText, bind_order
    from ..expressions.compile import compiled_columns

    schema = _schema(frame)
    orders = bind_order(OptionText(order_by, "order-by"), schema)
    columns = {f"{_OURS}order_{at}": each.expression for at, each in enumerate(orders)}
    return (
        compiled_columns(list(columns.items()), schema)
        .added(frame)
        .sort(
            *columns,
            descending=[each.descending for each in orders],
            nulls_last=[not each.nulls_first for each in orders],
            maintain_order=True,
        )
        .drop(*columns)
    )


def _schema(frame: pl.LazyFrame) -> pa.Schema:
    import polars as pl
    import pyarrow as pa

    from ..expressions.kinds import plain

    schema = pl.DataFrame(schema=frame.collect_schema()).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    return pa.schema([pa.field(each.name, plain(each.type)) for each in schema])


def json_rows(rows: pa.Table) -> dict[str, Any]:
    """Return rows as JSON: columns with their types, and lists of values. What JSON lacks is text."""
    return {
        "columns": [{"name": field.name, "type": str(field.type)} for field in rows.schema],
        "rows": [
            [_cell(value) for value in row]
            for row in zip(*(each.to_pylist() for each in with_python_times(rows).columns), strict=True)
        ],
    }


def _cell(value: Any) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            return value if -_EXACT <= value <= _EXACT else str(value)
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124 NaN
        case dt.datetime():
            return value.astimezone(dt.timezone.utc).isoformat().replace("+00:00", "Z") if value.tzinfo else str(value)
        case bytes():
            text = "0x" + value[: _CELL // 2].hex()
        case list() | dict() | tuple():
            text = json.dumps(value, default=str, ensure_ascii=False)
        case _:
            text = str(value)
    return text if len(text) <= _CELL else text[:_CELL] + "…"


def table_rows(table: WatchedTable, limit: int, where: str | None, columns: Sequence[str] = ()) -> dict[str, Any]:
    """Return the first rows for which a condition is true; `complete` is false if the time was over earlier."""
    opened = open_table(table.location, table.storage)
    frame = scan_table(opened)
    names = frame.collect_schema().names()
    shown = [name for name in names if not name.startswith(_OURS)]
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise OptionError(f"the table has no column {', '.join(unknown)}", expected="columns among " + ", ".join(shown))
    until = time.monotonic() + _SECONDS
    parts: list[pa.Table] = []
    found = looked = 0
    buckets = list(_parts(opened, frame, names))
    for part in buckets:
        if looked and (found >= limit or time.monotonic() > until):
            break
        wanted = part if where is None or not where.strip() else matching(part, where)
        rows = wanted.select(list(columns) or shown).head(limit - found).collect()
        parts.append(rows.to_arrow())
        found, looked = found + rows.height, looked + 1
    import pyarrow as pa

    answer = json_rows(pa.concat_tables(parts) if parts else frame.select(shown).head(0).collect().to_arrow())
    counts, known = LiveFiles.of(opened).rows, None if table.last is None else table.last.keys
    return {
        **answer,
        "version": opened.version(),
        "rows_in_table": known if known is not None or None in counts else sum(filter(None, counts)),
        "parts_read": looked,
        "parts": len(buckets),
        "complete": looked == len(buckets) and found < limit,
    }


def _parts(opened: DeltaTable, frame: pl.LazyFrame, names: Sequence[str]) -> Iterator[pl.LazyFrame]:
    import polars as pl

    if BUCKET not in names or BUCKET not in opened.metadata().partition_columns:
        yield frame
        return
    for bucket in sorted({each for each in LiveFiles.of(opened).partition(BUCKET) if each is not None}):
        yield frame.filter(pl.col(BUCKET) == bucket)


def key_row(table: WatchedTable, key: Sequence[str]) -> dict[str, Any]:
    """Return the present rows of one key, whose columns come as ``NAME=VALUE``, and its bucket."""
    import polars as pl

    _, opened, layout = recorded_layout(table.location, table.storage)
    values = text_key(layout, table.location, key)
    frame = scan_table(opened)
    wanted = [
        pl.col(name).eq_missing(pl.lit(pl.Series(value)[0], dtype=frame.collect_schema()[name]))
        for name, value in zip(layout.key, values, strict=True)
        if name in frame.collect_schema()
    ]
    if len(wanted) < len(layout.key):
        raise OptionError("the key has fields of structs", expected="a key of columns", hint="look it up by a filter")
    bucket = int(bucket_of(values, layout.buckets)[0])
    rows = frame.filter(pl.col(BUCKET) == bucket, *wanted).collect().to_arrow()
    return {**json_rows(rows), "bucket": bucket, "buckets": layout.buckets, "version": opened.version()}


def key_columns(table: WatchedTable) -> dict[str, Any]:
    """Return the columns of the table's key and of its event time, and the number of buckets."""
    _, _, layout = recorded_layout(table.location, table.storage)
    kinds = [str(each) for each in layout.key_types]
    return {
        "key": [{"name": name, "type": kind} for name, kind in zip(layout.key, kinds, strict=True)],
        "event_time": layout.progress_time,
        "buckets": layout.buckets,
        "history": layout.history.count,
    }


def table_files(table: WatchedTable) -> dict[str, Any]:
    """Return files, bytes and rows by bucket, the protocol, and which readers would refuse the table."""
    opened = open_table(table.location, table.storage)
    live = LiveFiles.of(opened)
    divided = BUCKET in opened.metadata().partition_columns
    buckets = live.partition(BUCKET) if divided else [None] * len(live.paths)
    protocol = opened.protocol()
    features = sorted(protocol.reader_features or ())
    dead: dict[str, int] = {}
    if "deletionVectors" in features:
        log = LogReplay(table.folder)
        log.follow(opened.version())
        dead = {path: vector.cardinality for path, vector in log.vectors().items()}
    found: dict[Any, dict[str, Any]] = {}
    for path, bucket, size, rows in zip(live.paths, buckets, live.sizes, live.rows, strict=True):
        each = found.setdefault(bucket, {"bucket": bucket, "files": 0, "bytes": 0, "rows": 0, "dead": 0, "vectors": 0})
        gone = dead.get(path)
        each["files"] += 1
        each["bytes"] += size
        each["rows"] += (rows or 0) - (gone or 0)
        each["dead"] += gone or 0
        each["vectors"] += gone is not None
    return {
        "version": opened.version(),
        "buckets": sorted(found.values(), key=lambda each: (each["bucket"] is None, each["bucket"])),
        "protocol": {
            "reader": protocol.min_reader_version,
            "writer": protocol.min_writer_version,
            "features": features,
        },
        "readers": _readers(features),
    }


def _readers(features: Sequence[str]) -> list[dict[str, Any]]:
    vectors, mapped = "deletionVectors" in features, "columnMapping" in features
    arrow = "it does not apply deletion vectors" if vectors else "it does not map columns" if mapped else ""
    polars = "it does not map columns; use `LatestTable.scan`" if mapped else ""
    return [
        {"reader": name, "reads": not why, "why": why}
        for name, why in (
            ("Spark with Delta, Trino, DuckDB's Delta extension", ""),
            ("UpStream: LatestTable, upstream show", ""),
            ("Polars scan_delta", polars),
            ("delta-rs to_pyarrow_dataset (DuckDB over Arrow)", arrow),
        )
    ]


def letters(table: WatchedTable, limit: int, offset: int, reason: str = "") -> dict[str, Any]:
    """Return dead letters of the table's query, the newest first, from a number on."""
    import pyarrow as pa
    import pyarrow.compute as pc

    folders = letter_folders(table.location, table.checkpoint, table.storage)
    places = [each for each in folders if each.names("_delta_log")]
    until = time.monotonic() + _SECONDS
    found: list[pa.Table] = []
    total = seen = 0
    complete = True
    for folder in places:
        opened = dead_letter_table(folder).load()
        if opened is None:
            continue
        live = LiveFiles.of(opened)
        total += sum(each or 0 for each in live.rows)
        for at in sorted(range(len(live.paths)), key=lambda each: -live.modified_ms[each]):
            held = live.rows[at]
            if not reason and held is not None and seen + held <= offset:
                seen += held
                continue
            if time.monotonic() > until:
                complete = False
                break
            rows = pa.concat_tables(
                [DEAD_LETTERS.empty_table(), *read_rows(opened, list(DEAD_LETTERS.names), files=[at])]
            )
            if reason:
                rows = rows.filter(pc.match_substring(rows.column("reason"), reason, ignore_case=True))
            rows = rows.take(pa.array(range(rows.num_rows - 1, -1, -1), pa.int64()))
            start = max(offset - seen, 0)
            seen += rows.num_rows
            found.append(rows.slice(start))
            if sum(map(len, found)) >= limit:
                break
    rows = pa.concat_tables([DEAD_LETTERS.empty_table(), *found]).slice(0, limit)
    return {
        **json_rows(rows),
        "total": total,
        "offset": offset,
        "complete": complete,
        "places": [each.location for each in places],
    }


def routes(bench: Bench) -> list[Route]:
    """Return the routes of rows, keys, files and dead letters."""
    from .bench import count_of

    def of_table(work: Callable[[WatchedTable, Request], Any]) -> Callable[[Request], Any]:
        def answer(request: Request) -> Any:
            table = bench.watch.shown(request.query_params.get("table"))
            with table.folder.guarded():
                return work(table, request)

        return answer

    def rows(table: WatchedTable, request: Request) -> dict[str, Any]:
        columns = [each for each in request.query_params.get("columns", "").split(",") if each]
        return table_rows(table, count_of(request, "limit", _LIMIT, _MOST), request.query_params.get("where"), columns)

    def key(table: WatchedTable, request: Request) -> dict[str, Any]:
        given = request.query_params.getlist("key")
        return key_row(table, given) if given else key_columns(table)

    def dead(table: WatchedTable, request: Request) -> dict[str, Any]:
        limit = count_of(request, "limit", _LIMIT, _MOST)
        return letters(table, limit, count_of(request, "offset", 0, 1 << 40), request.query_params.get("reason", ""))

    return [
        bench.endpoint("/api/v1/table/rows", of_table(rows), apart=True, needs="polars"),
        bench.endpoint("/api/v1/table/keys", of_table(key), apart=True, needs="polars"),
        bench.endpoint("/api/v1/table/files", of_table(lambda table, _: table_files(table)), apart=True),
        bench.endpoint("/api/v1/letters", of_table(dead), apart=True),
    ]
