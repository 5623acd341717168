"""Locations: every path from a user is resolved here, so that all parts agree on its place."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from .errors import OptionError
from .secrets import check_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A word of at least two letters, so that no drive of Windows is one.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
# The stores that the library of the sink reaches, by the names that Hadoop and the library give them.
_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")
# Two names of one store.
_ALIASES = {"s3a": "s3", "abfss": "abfs", "azure": "az", "adl": "az"}
_MAGIC = re.compile(r"[*?\[{]")

Place = tuple[str, str]
"""A description for people, and the path or the address."""


def scheme_of(path: str) -> str:
    """Return the scheme of an address in lower case; an empty text for a path, also where ``file:`` precedes it."""
    found = _SCHEME.match(path.strip())
    scheme = found.group(1).lower() if found else ""
    return "" if scheme == "file" else scheme


def is_remote(path: str) -> bool:
    """Return whether an address names something else than a folder or a file that this machine has mounted."""
    return scheme_of(path) != ""


def absolute_location(path: str) -> str:
    """Return a local path as absolute, since tasks may run in another folder, and a store's address as it is."""
    path = path.strip()
    return check_address(path).rstrip("/") if is_remote(path) else local_path(path)


def local_path(path: str) -> str:
    """Return the absolute path of a path or a ``file:`` address; raise OptionError for another machine's."""
    if not path.lower().startswith("file:"):
        return os.path.abspath(path)
    rest = path[5:]
    if rest.startswith("//") and not rest.startswith("///"):
        host, _, below = rest[2:].partition("/")
        if host and host.lower() != "localhost":
            raise OptionError(
                f"the address {path!r} names the machine {host!r}",
                expected="a local path, or an address such as file:///data",
                hint=f"write file:///{host}/{below} if {host!r} is a folder; mount the folder if it is a machine",
            )
        rest = "/" + below
    return os.path.abspath("/" + unquote(rest).lstrip("/"))


def is_client(spark: SparkSession) -> bool:
    """Return whether a session is a client of Spark Connect, and so has no JVM in its process to call."""
    return getattr(spark, "_jsparkSession", None) is None


def path_on_server(spark: SparkSession, path: str) -> str:
    """Return a path for the driver; a client's becomes absolute, since its server has another working directory."""
    if not is_client(spark) or is_remote(path) or path.startswith("file:"):
        return path
    return os.path.abspath(os.path.expanduser(path))


def checkpoint_location(path: str) -> str:
    """Return a checkpoint's location; raise OptionError if it is out of reach, or if Spark would look elsewhere."""
    scheme = scheme_of(path)
    if scheme and scheme not in _STORES:
        raise OptionError(
            f"the checkpoint {path!r} is on {scheme}, which this package cannot read",
            expected="a local or mounted folder, or an object store: s3a://bucket/folder, gs://…, abfss://…",
            hint="choose an address in an object store, or mount the file system on every machine and give the path "
            "with file: before it",
        )
    if not scheme and path.strip().lower().startswith("file:") and _ESCAPED.search(path):
        raise OptionError(
            f"the checkpoint {path!r} has escaped characters, which Spark takes literally",
            hint=f"write {local_path(path.strip())!r}",
        )
    return absolute_location(path)


def real_location(path: str) -> str:
    """Return a location without symbolic links before its first wildcard, or an address under one name of its store."""
    place = absolute_location(os.path.expanduser(path.strip()))
    if scheme := scheme_of(place):
        return f"{_ALIASES.get(scheme, scheme)}:{place.partition(':')[2]}"
    if os.path.lexists(place):
        return os.path.realpath(place)
    parts = place.split("/")
    plain = next((number for number, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    return os.path.join(os.path.realpath("/".join(parts[:plain]) or "/"), *parts[plain:])


def relation_of_places(one: str, other: str) -> str:
    """Return the place's relation to another, which may be a pattern: ``at``, ``inside``, ``above``, or nothing."""
    mine, theirs = real_location(one).split("/"), real_location(other).split("/")
    if mine[-1] == "" or theirs[-1] == "":  # the root of the disk
        mine, theirs = [[part for part in parts if part] for parts in (mine, theirs)]
    if not all(map(_matches, mine, theirs)):
        return ""
    return "at" if len(mine) == len(theirs) else "inside" if len(mine) > len(theirs) else "above"


def _matches(part: str, pattern: str) -> bool:
    return part == pattern or "{" in pattern or "**" in pattern or fnmatch.fnmatchcase(part, pattern)


def check_apart(ours: Iterable[Place], others: Iterable[Place] = ()) -> None:
    """Raise OptionError if a folder in which files are deleted (`ours`) is at, inside or above one of `others`."""
    wanted, known = list(ours), list(others)
    for number, (name, place) in enumerate(wanted):
        for other, there in (*wanted[:number], *known):
            met = relation_of_places(place, there)
            if met == "at":
                problem = f"{other} and {name} are both {_shown(place)}"
            elif met:
                problem = f"{name}, {_shown(place)}, is {met} {other}, {_shown(there)}"
            else:
                continue
            raise OptionError(
                problem,
                expected="a folder of its own for each table, beside checkpoints and what is read: UpStream makes and "
                "deletes files in it",
                hint=f"choose another folder for {name}, for example beside {there}",
            )


def _shown(place: str) -> str:
    real = real_location(place)
    return place if is_remote(place) or real == absolute_location(place) else f"{place} (which is {real})"


_KAFKA = "kafka://"
_LATEST = "latest:"


def format_option(options: Mapping[str, str]) -> str:
    """Return the option of a source that names the format of its files, or of its messages."""
    return "valueFormat" if options.get("connector") == "kafka" else "fileFormat"


def source_address(source: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the path, if `source` is one, and the options that an address implies.

    Addresses are ``kafka://host:port,host:port/topic,topic``, and ``latest:`` with the path of a table that another
    query writes.
    """
    if source is not None and source.startswith(_LATEST):
        return source[len(_LATEST) :], {"connector": "latest"}
    if source is None or not check_address(source).startswith(_KAFKA):
        return source, {}
    servers, _, topics = source[len(_KAFKA) :].partition("/")
    if not servers or not topics.strip("/"):
        raise OptionError(
            f"the source {source!r}",
            expected="kafka://host:port/topic",
            hint="name a broker and a topic; several of either are separated by commas",
        )
    return None, {"connector": "kafka", "kafka.bootstrap.servers": servers, "subscribe": topics.strip("/")}
