"""The options reference, rendered from the declarations themselves: docs/options.md, and `upstream options`."""

from __future__ import annotations

from ..conf.options import OptionDoc, documented
from ..conf.units import format_duration_us
from ..datasource.options import SourceOptions
from ..datasource.registry import CONNECTORS

__all__ = ["options_reference"]

_INTRODUCTION = """\
# Options

Names are case-insensitive. Unknown names are refused with the nearest known one, and every problem is reported at once.
This page is printed by `upstream options`; a test keeps it true.
"""

_CONNECTORS = {
    "files": "Files that are there and files that come: CSV, JSON lines, Parquet, Zeek; plain, gzip or zstd.",
    "kafka": "Kafka topics; each partition is a feed (`topic/3`). Besides the value's own columns a schema may name "
    "`_key`, `_topic`, `_partition`, `_offset`, `_timestamp`, `_timestampType` and `_headers`, which the message says; "
    "`key` and `time` may name them without a schema. Needs the extra `kafka`.",
    "latest": "A table that this package's sink writes: what each commit delivers, after the table as the first run "
    "finds it. `key` and `time` are the table's own unless given; with its own time `progress` is `embedded`, which "
    "passes on what the table's commits promise.",
    "replay": "A recorded file played against the clock.",
    "synthetic": "Seeded feeds made to measure.",
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
        '### Batches: `df.write.format("upstream")`\n\nThe same, apart from `checkpointLocation`, and what names a '
        "write, so that it is recognised when it is repeated.\n\n" + _table(documented(BatchOptions))
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
