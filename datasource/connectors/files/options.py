"""Options of the `files` connector, named as Spark's own file sources name theirs."""

from __future__ import annotations

import dataclasses
import json

from ....conf.errors import OptionError
from ....conf.options import boolean, bytes_, one_of, option, parsed, positive_int, text
from .store import check_scheme

_ESCAPES = {"\\t": "\t", "tab": "\t", "space": " "}


def _one_byte(value: str) -> str:
    mark = _ESCAPES.get(value.lower() if len(value) > 1 else value, value)
    if len(mark) != 1 or not mark.isascii() or mark in "\r\n":
        raise ValueError
    return mark


def _encoding(value: str) -> str:
    if value.strip().lower().replace("_", "-") not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise ValueError("convert the files to UTF-8 first, for example with iconv")
    return "utf-8"


def _path_list(value: str) -> tuple[str, ...]:
    paths = json.loads(value)
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths) or not paths:
        raise ValueError
    return tuple(paths)


@dataclasses.dataclass(frozen=True)
class FilesOptions:
    """The options of the `files` connector; see each option's documentation."""

    path: str | None = option(
        "path",
        text(),
        None,
        "Set what to read: a file, a directory, or a glob (*, ?, [ab], {a,b}, **). It can also be in a store "
        "that supports the S3 protocol (`s3://bucket/folder/*.csv`); options of the store begin with "
        "`storage.`.",
    )
    paths: tuple[str, ...] = option(
        "paths", parsed("a JSON list of paths", _path_list), (), "Set several paths, as `load([…])` does."
    )
    file_format: str | None = option(
        "fileFormat",
        one_of("csv", "json", "parquet", "zeek", "debezium"),
        None,
        "Set the format of the files. If it is not set, the extension determines it: .csv .tsv .json .jsonl "
        ".ndjson .parquet, and .log for Zeek. A further .gz or .zst means compression. JSON has one object "
        "per line. `debezium`: JSON lines with Debezium's change events, each alone or as the member `value` "
        "beside `key`. Without `key` and `eventTime`, UpStream takes the fields of the message's key, and orders "
        "the changes by their position in the source (`_position`).",
    )
    header: bool = option("header", boolean(), True, "For CSV: read column names from the first line of each file.")
    sep: str | None = option(
        "sep",
        parsed("one character", _one_byte),
        None,
        r"For CSV: set the separator of fields. If it is not set: a comma, and in .tsv files a tab (\t).",
    )
    quote: str = option(
        "quote",
        parsed("one character", _one_byte),
        '"',
        "For CSV: set the character around fields that contain separators.",
    )
    multi_line: bool = option(
        "multiLine",
        boolean(),
        False,
        "For CSV: allow line ends in quoted fields. If so, one task at a time reads a file, and no file is split.",
    )
    max_row_bytes: int = option(
        "maxRowBytes",
        bytes_(),
        1 << 20,
        "For CSV: set the maximum size of the header, and with `multiLine` of a row of several lines. If a line's "
        "quote is still open after that many bytes, the line is malformed, and reading continues with the next line. "
        "The same holds if a quote is open and the file has not changed for a minute.",
    )
    null_value: str = option(
        "nullValue", parsed("text", str), "", "For CSV: set the unquoted text that means null. Empty text always does."
    )
    recursive: bool = option("recursiveFileLookup", boolean(), False, "Search directories at any depth.")
    name_filter: str | None = option(
        "pathGlobFilter", text(), None, "Read only files whose names match this pattern, such as *.csv."
    )
    encoding: str = option(
        "encoding", parsed("UTF-8, the only encoding read", _encoding), "utf-8", "Set the encoding of the files."
    )
    max_files: int = option(
        "maxFilesPerTrigger", positive_int(), 1000, "Set the maximum number of files that one batch reads rows from."
    )
    split_bytes: int = option(
        "splitBytes",
        bytes_(),
        16 << 20,
        "Set the size of the ranges into which plain files are split, so that tasks can share a file.",
    )
    feeds: str = option(
        "feeds",
        one_of("path", "file"),
        "path",
        "Choose what a feed is, with a low-watermark of its own. `path`: each path that you give, with its "
        "files in the order of arrival. `file`: each file, for example one per sensor.",
    )
    last_line: str = option(
        "lastLine",
        one_of("auto", "terminated", "complete"),
        "auto",
        "Choose whether a last line without a line end is a row. `terminated`: never. `complete`: always. "
        "`auto`: if the run ends with the present data (batch, availableNow). The file must also be unchanged "
        "for 10 seconds, or a batch must read all of it.",
    )

    def given(self) -> tuple[str, ...]:
        """Return the paths to read, each once; raise OptionError for none, or for an unsupported file system."""
        paths = (*((self.path,) if self.path else ()), *self.paths)
        if not paths:
            raise OptionError("no path is given", hint='set the option "path" to a file, a directory or a glob')
        for path in paths:
            check_scheme(path)
        return tuple(dict.fromkeys(paths))
