"""Options of the `files` connector, named as Spark's own file sources name theirs."""

from __future__ import annotations

import dataclasses
import json

from ....conf.errors import OptionError
from ....conf.options import boolean, bytes_, one_of, option, parsed, positive_int, text
from .store import check_scheme

__all__ = ["FilesOptions"]

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
        "A file, a directory or a glob (*, ?, [ab], {a,b}, **) whose rows are read; or the same in a store that speaks "
        "S3's protocol (`s3://bucket/folder/*.csv`), whose options "
        "begin with `storage.`.",
    )
    paths: tuple[str, ...] = option(
        "paths", parsed("a JSON list of paths", _path_list), (), "Several of them; what load([…]) sets."
    )
    file_format: str | None = option(
        "fileFormat",
        one_of("csv", "json", "parquet", "zeek"),
        None,
        "How the files are written. By default their extension says: .csv .tsv .json .jsonl .ndjson .parquet, .log for "
        "Zeek; "
        ".gz and .zst after it mean compression. JSON is one object a line.",
    )
    header: bool = option("header", boolean(), True, "CSV: whether each file begins with a line of column names.")
    sep: str | None = option(
        "sep",
        parsed("one character", _one_byte),
        None,
        r"CSV: what separates fields; by default a comma, in .tsv a tab (\t).",
    )
    quote: str = option(
        "quote", parsed("one character", _one_byte), '"', "CSV: what encloses fields that hold separators."
    )
    multi_line: bool = option(
        "multiLine",
        boolean(),
        False,
        "CSV: whether quoted fields may hold line ends. A file is then read by one task at a time, not split.",
    )
    max_row_bytes: int = option(
        "maxRowBytes",
        bytes_(),
        1 << 20,
        "CSV with `multiLine`: how long a row of several lines may be. A line whose quote is not closed within so many "
        "bytes is malformed, and the next "
        "line is read on; so is one whose quote is open when the file has not changed for a minute.",
    )
    null_value: str = option(
        "nullValue", parsed("text", str), "", "CSV: unquoted text that means null, besides nothing at all."
    )
    recursive: bool = option("recursiveFileLookup", boolean(), False, "Whether directories are searched at any depth.")
    name_filter: str | None = option(
        "pathGlobFilter", text(), None, "A pattern that file names must match, such as *.csv."
    )
    encoding: str = option(
        "encoding", parsed("UTF-8, the only encoding read", _encoding), "utf-8", "The files' encoding."
    )
    max_files: int = option("maxFilesPerTrigger", positive_int(), 1000, "The most files of which one batch takes rows.")
    split_bytes: int = option(
        "splitBytes",
        bytes_(),
        16 << 20,
        "The size of the ranges that plain files are cut into, so that tasks share a file.",
    )
    feeds: str = option(
        "feeds",
        one_of("path", "file"),
        "path",
        "Whose progress is separate: each path given, with its files in order of arrival, or each file (one per "
        "sensor, say).",
    )
    last_line: str = option(
        "lastLine",
        one_of("auto", "terminated", "complete"),
        "auto",
        "Whether a last line without a line end is a row: `terminated` never, `complete` always; `auto` when reading "
        "what is "
        "there now (batch, availableNow) and the file has not changed for 10 seconds, or is read whole by a batch.",
    )

    def given(self) -> tuple[str, ...]:
        """Return the paths to read, as given, each once.

        Raises
        ------
        OptionError
            No path is given, or one is on a file system that this connector does not read.
        """
        paths = (*((self.path,) if self.path else ()), *self.paths)
        if not paths:
            raise OptionError("no path is given", hint='set the option "path" to a file, a directory or a glob')
        for path in paths:
            check_scheme(path)
        return tuple(dict.fromkeys(paths))
