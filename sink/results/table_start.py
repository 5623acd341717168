"""The state in which a batch meets a query's table: absent, to be replaced, continued, or refused."""

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
from ..table.own_files import check_free
from .result_table import layout_of, target_of

if TYPE_CHECKING:
    from ...delta_format.column_mapping import Ids
    from ..spec.layout import Layout
    from .begun_tables import Begun
    from .known_table import KnownTable
    from .result_table import ResultTable

__all__ = ["INCARNATION_PREFIX", "TAKEN_OVER", "Start", "start_of"]

INCARNATION_PREFIX = "upstream.incarnation-"
"""Begins the application of the transaction that holds which incarnation of a query the table is of."""

TAKEN_OVER = 1 << 62
"""The incarnation of a query whose table another job has taken over."""


class Start(NamedTuple):
    """The work of a batch on a table beside its rows."""

    begins: bool  # True for the first batch of an incarnation, which creates the table or replaces all rows
    ids: Ids | None  # column mapping ids; None if the columns need none
    actions: list[dict[str, Any]]  # those that create the table or change its columns


def start_of(table: ResultTable, known: KnownTable, writer: str, begun: Begun | None) -> Start:
    """Return the state in which a batch meets the table; refuse a table of others, or one that lost commits.

    `known` is up to date, and `begun` is the commit that the checkpoint remembers.
    """
    layout = layout_of(table)
    recorded = known.log.transactions.get(INCARNATION_PREFIX + writer)
    if known.exists and recorded in (None, TAKEN_OVER):
        _check_may_be_taken(table, known, begun)
        recorded = begun = None
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
    check_free(target.folder)
    configuration = layout.properties() | retention_properties(target.options.maintenance_rules({}))
    refusal = target.folder.puts_refused()
    if refusal is not None:
        raise refusal
    return first_actions(target, layout.plain_schema(), ids, [BUCKET], configuration)


def _check_may_be_taken(table: ResultTable, known: KnownTable, begun: Begun | None) -> None:
    of_query = any(name.startswith(INCARNATION_PREFIX) for name in known.log.transactions)
    if table.overwrite and of_query and (begun is None or begun.table_id == known.table_id):
        return
    made = "a query of another checkpoint" if of_query else "another program"
    take = "let this job take it over by us.queries(…, overwrite=True), which replaces its rows"
    raise TableError(
        f"there is a table at {table.location} already, and the query {table.name!r} of this job has not made it, but "
        f"{made}",
        expected="no table, or the one that this job has made for the query",
        hint=f"give the queries another folder; or {take if of_query else 'delete the table, if nobody needs it'}",
    )
