"""The choice of deletion vectors for a table, recorded in its property `delta.enableDeletionVectors`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ...conf.errors import TableError
from .log_entry import VECTORS_ENABLED

__all__ = ["WORTH_MARKING", "advise", "check_allowed", "marks_allowed", "marks_from_the_start", "say_chosen"]

WORTH_MARKING = 100_000
"""From so many rows of a bucket on, marking costs so much less than writing it anew that slower reads are worth it
(docs/decisions/0006).
"""

_LOG = logging.getLogger("upstream.sink")
_REFUSING = "Daft, pandas and pyarrow over deltalake's dataset, and plain Parquet readers do not read such a table"
_advised: set[str] = set()


def marks_from_the_start(engine: str, expected_keys: int | None, buckets: int) -> bool:
    """Return True if a new table gets deletion vectors; with `engine=auto`, only if it is large by `expectedKeys`.

    Not every reader supports them. So a table without them stays without, however large it becomes.
    """
    return engine == "vectors" or (
        engine == "auto" and expected_keys is not None and expected_keys >= WORTH_MARKING * buckets
    )


def marks_allowed(configuration: Mapping[str, str]) -> bool:
    """Return True if a table has deletion vectors, by its properties."""
    return str(configuration.get(VECTORS_ENABLED)).lower() == "true"


def check_allowed(configuration: Mapping[str, str], location: str) -> None:
    """Refuse `engine=vectors` if a table's property forbids deletion vectors."""
    if str(configuration.get(VECTORS_ENABLED)).lower() == "false":
        raise TableError(
            f"the table at {location} forbids deletion vectors ({VECTORS_ENABLED} is false), and the option engine is "
            "vectors",
            expected="engine auto or rewrite, which write touched parts anew",
            hint=f"leave the option engine out; or allow them: ALTER TABLE delta.`{location}` SET TBLPROPERTIES "
            f"('{VECTORS_ENABLED}' = 'true')",
        )


def say_chosen(location: str) -> None:
    """Log that a new table gets deletion vectors although no option names them."""
    _LOG.warning(
        "the new table at %s gets deletion vectors, since expectedKeys says that it becomes large: a batch costs what "
        "it changes. %s; "
        "for a table that everybody reads, set engine=rewrite before it is made",
        location,
        _REFUSING,
    )


def advise(table: str, location: str, configuration: Mapping[str, str], largest: Callable[[], int]) -> bool:
    """Log once per process that deletion vectors would pay off in a table; return True if it was logged now.

    `table` is the id in its metadata; `largest` returns the number of rows of its largest bucket.
    """
    if table in _advised or VECTORS_ENABLED in configuration:
        return False
    most = largest()
    if most < WORTH_MARKING:
        return False
    _advised.add(table)
    _LOG.warning(
        "the table at %s has up to %s rows in a bucket, and each batch writes the buckets that it touches anew. With "
        "engine=vectors, once, a batch would "
        "cost what it changes; but %s. More buckets (`upstream rebucket`) make less to write, too. To keep it as it is "
        "and hear no more of it, set the table's property %s to false",
        location,
        f"{most:,}",
        _REFUSING,
        VECTORS_ENABLED,
    )
    return True
