"""Options of the form NAME=VALUE, and options of every command that starts Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from .failures import Failure

__all__ = ["Log", "Master", "SparkConf", "StorageOptions", "name_values", "storage_options", "with_pairs_of_the_file"]

_PREFIX = "storage."


def with_pairs_of_the_file(
    context: typer.Context, parameter: typer.CallbackParam, given: list[str] | None
) -> list[str] | None:
    """Return the pairs of ``upstream.toml``, overridden by those of the command line."""
    return [*(context.lookup_default(parameter.name or "") or []), *(given or [])] or None


def name_values(given: Sequence[str] | None, name: str) -> dict[str, str]:
    """Return the pairs of a repeatable option, or raise a Failure with the option's `name`."""
    pairs: dict[str, str] = {}
    for each in given or []:
        left, equals, right = each.partition("=")
        if not equals or not left.strip():
            raise Failure(f"{name} {each!r} is not NAME=VALUE.", 2)
        pairs[left.strip()] = right
    return pairs


def storage_options(given: Sequence[str] | None) -> dict[str, str]:
    """Return the options of an object store, without the prefix of their names, or raise a Failure."""
    pairs = name_values(given, "--option")
    for name in pairs:
        if not name.startswith(_PREFIX):
            raise Failure(
                f"--option {name!r} is not an option of an object store. Write --option storage.NAME=VALUE.", 2
            )
    return {name.removeprefix(_PREFIX): value for name, value in pairs.items()}


Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Spark's master, such as 'local[4]'.  [dim]\\[default: all cores of this machine][/dim]"
    ),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", callback=with_pairs_of_the_file, help="Set a Spark property. Repeatable."
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="storage.NAME=VALUE",
        callback=with_pairs_of_the_file,
        help="Set an option of the object store. Repeatable.",
    ),
]
Log = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Where Spark's output and the details of an error go.  "
        "[dim]\\[default: a file in the temporary folder, named when needed][/dim]",
    ),
]
