"""The reference of all options, rendered from their declarations: docs/options.md, and ``upstream options``."""

from __future__ import annotations

from ..conf.options import OptionDoc, documented
from ..conf.units import format_duration_us
from ..datasource.options import SourceOptions
from ..datasource.registry import CONNECTORS

__all__ = ["options_reference"]

_INTRODUCTION = """\
# Options

Names are case-insensitive. UpStream rejects an unknown name and suggests the nearest known one. It
reports all problems at once. The command `upstream options` prints this page.
"""

_CONNECTORS = {
    "files": "Read present and future files: CSV, JSON lines, Parquet, or Zeek; plain, gzip, or zstd.",
    "kafka": "Read Kafka topics; each partition is a feed (`topic/3`). Besides the columns of the value, a schema can "
    "name fields of the message: `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`, `_timestampType`, and "
    "`_headers`. `key` and `time` can name them without a schema. The connector needs the extra `kafka`.",
    "latest": "Read a table that UpStream's sink writes: first its rows at the start of the first run, then the rows "
    "that each commit applies. `key` and `time` are the table's own unless you set them. With the table's own time, "
    "`progress` is `promised`: the low-watermarks in the table's commits.",
    "replay": "Play recorded files against the clock.",
    "synthetic": "Generate feeds from a seed.",
}


def options_reference() -> str:
    """Return all options of the source, its connectors and the sink, as Markdown."""
    from ..sink.commit.batch_name import BatchOptions
    from ..sink.spec.options import SinkOptions

    sections = [
        _INTRODUCTION,
        '## The source: `spark.readStream.format("upstream")`\n\n' + _table(documented(SourceOptions)),
    ]
    for name, entry in CONNECTORS.items():
        sections.append(f"### `connector={name}`\n\n{_CONNECTORS[name]}\n\n" + _table(documented(entry.group())))
    sections.append(
        '## The sink: `df.writeStream.format("upstream")`\n\n'
        + _table(documented(SinkOptions))
        + "\nOptions that begin with `storage.` go to the object store without that prefix.\n"
    )
    sections.append(
        '### Batches: `df.write.format("upstream")`\n\nThe same options, except `checkpointLocation`. Further options '
        "name a write, so that UpStream recognizes a repeat.\n\n" + _table(documented(BatchOptions))
    )
    return "\n".join(sections)


def _table(docs: list[OptionDoc]) -> str:
    lines = ["| option | takes | default | meaning |", "|---|---|---|---|"]
    for doc in docs:
        cells = (f"`{doc.name}`", doc.expected, _default(doc), doc.doc)
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(doc: OptionDoc) -> str:
    value = doc.default
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and doc.expected.startswith("a duration"):
        return format_duration_us(value)
    if isinstance(value, int) and doc.expected.startswith("a size"):
        for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
            if value % size == 0:
                return f"{value // size} {unit}"
    if isinstance(value, tuple):
        return ", ".join(str(each) for each in value)
    return f"`{value}`" if isinstance(value, str) else str(value)
