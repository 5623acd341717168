"""What people see of a registry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .names import found, known_name
from .registry import Registry

if TYPE_CHECKING:
    import polars as pl

__all__ = ["listed", "text_of"]

_WORD = re.compile(r"[\w.-]+")


def listed(registry: Registry) -> pl.DataFrame:
    """Return a row for each query, in the order in which they were registered."""
    import polars as pl

    rows = [(each.name, each.text, each.weight, each.active, each.reason) for each in registry.queries.values()]
    columns = {"name": pl.String, "text": pl.String, "weight": pl.Float64, "active": pl.Boolean, "reason": pl.String}
    return pl.DataFrame(rows, columns, orient="row")


def text_of(query: str, registry: Registry) -> str:
    """Return the text of a query.

    Parameters
    ----------
    query : str
        The name of a registered query or of a view, or a text, which is returned as it is.
    registry : Registry
        What is registered.

    Raises
    ------
    OptionError
        It is one word, and there is no query and no view of this name.
    """
    name = found(query, registry.queries)
    if name is not None:
        return registry.queries[name].text
    view = registry.catalog.view(query)
    if view is not None:
        return f"SELECT * FROM `{view[0]}`"  # noqa: S608 a checked name
    if _WORD.fullmatch(query.strip()):
        known_name(query.strip(), [*registry.queries, *registry.catalog.views], "query")
    return query
