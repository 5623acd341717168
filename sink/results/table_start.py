"""How a batch finds a query's table: absent, to be replaced, going on, or not to be touched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ...conf.errors import SchemaError, TableError
from ...delta_format.latest_table import BUCKET
from ..figures.summary import APP_PREFIX
from ..spec.constraints import check_demands
from ..spec.maintenance_rules import retention_properties
from ..table.log_entry import check_features
from ..table.mapped_table import first_actions, replacing_actions
from .result_table import layout_of, target_of

if TYPE_CHECKING:
    from ...delta_format.column_mapping import Ids
    from ..spec.layout import Layout
    from .begun_tables import Begun
    from .known_table import KnownTable
    from .result_table import ResultTable

__all__ = ["INCARNATION_PREFIX", "Start", "start_of"]

INCARNATION_PREFIX = "upstream.incarnation-"
"""Begins the application of the transaction that holds which incarnation of a query the table is of."""


class Start(NamedTuple):
    """What a batch has to do to a table beside its rows.

    Attributes
    ----------
    begins : bool
        Whether the batch is the first of the query's incarnation: then it makes the table, or replaces all rows.
    ids : mapping or None
        The numbers of the columns; None if they need none.
    actions : list of dict
        Actions that make the table, or give it its new columns; none if it has them.
    """

    begins: bool
    ids: Ids | None
    actions: list[dict[str, Any]]


def start_of(table: ResultTable, known: KnownTable, writer: str, begun: Begun | None) -> Start:
    """Return how a batch finds the table.

    Parameters
    ----------
    table
        The query's table.
    known
        What is there, up to date.
    writer
        Names the query in the table's transactions.
    begun
        What the checkpoint remembers of the table.

    Raises
    ------
    SchemaError
        The table cannot hold the result's columns.
    TableError
        Another program or another job has made the table, it has lost what the query committed, or others have changed
        what it is.
    """
    layout = layout_of(table)
    recorded = known.log.transactions.get(INCARNATION_PREFIX + writer)
    if known.exists and recorded is None:
        raise _foreign(table)
    if recorded is not None and recorded > table.query_id:
        raise TableError(
            f"the table at {table.location} holds the query {table.name!r} as it was started by change {recorded}, and "
            f"the batch is of change {table.query_id}, which is earlier",
            expected="the checkpoint as the job left it",
            hint="put the checkpoint back as it was; or register the query anew",
        )
    if begun is not None and begun.query_id == table.query_id:
        here = known.log.transactions.get(APP_PREFIX + writer) if recorded == table.query_id else None
        begun.check(known, table.location, here, writer, table.name)
    ids = known.ids(layout.plain_schema())
    if not known.exists:
        return Start(True, ids, _first_actions(table, layout, ids))
    log = known.log
    check_features(log, table.location)
    if recorded == table.query_id:
        known.check_once(layout, table.location)
        return Start(False, ids, [])
    check_demands(json.loads(log.metadata["schemaString"])["fields"], log.metadata["configuration"], table.location)
    try:
        layout.check_metadata(log.metadata, table.location)
    except (SchemaError, TableError):  # the query is another one now
        return Start(True, ids, replacing_actions(log, layout.plain_schema(), ids, layout.properties()))
    return Start(True, ids, [])


def _first_actions(table: ResultTable, layout: Layout, ids: Ids | None) -> list[dict[str, Any]]:
    target = target_of(table)
    configuration = layout.properties() | retention_properties(target.options.maintenance_rules({}))
    refusal = target.folder.puts_refused()
    if refusal is not None:
        raise refusal
    return first_actions(target, layout.plain_schema(), ids, [BUCKET], configuration)


def _foreign(table: ResultTable) -> TableError:
    return TableError(
        f"there is a table at {table.location} already, and the query {table.name!r} of this job has not made it",
        expected="no table, or the one that this job has made for the query",
        hint="give the queries another folder; or, if nobody needs the table, delete it",
    )
