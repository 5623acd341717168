"""Stored relations of continuous queries: Delta tables beside the streams."""

from __future__ import annotations

import os

from ..conf.arguments import path_argument
from ..conf.locations import absolute_location
from ..queries.hosting.merging import GivenForTables
from ..queries.registry.changes import Change
from ..queries.registry.declaring import declare, refresh
from ..queries.registry.editing import record
from ..queries.registry.registry import registry_now

__all__ = ["StoredRelations"]


class StoredRelations:
    """What :class:`~.queries.Queries` has for stored relations."""

    checkpoint: str
    _given: GivenForTables

    def relation(self, name: str, table: str | os.PathLike[str]) -> None:
        """Let queries name a Delta table as it is now. If the relation is there already, nothing changes.

        Parameters
        ----------
        name
            The relation's name in queries.
        table
            The table's folder or address. It may be a table that UpStream keeps.

        Raises
        ------
        OptionError
            The name cannot be one or is taken, or there is a relation of this name over another table.
        TableError
            There is no table, or it cannot be opened.
        SchemaError
            A column has a type that Spark does not have.

        Notes
        -----
        Guarantee: queries read the version that the table has now, until :meth:`refresh` brings a later one. A batch
        that runs again reads the same rows. The options of an object store are those with which the queries were
        opened, here and where the job runs.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="relation_cp", to="lake")
        >>> queries.stream("buses", stream)
        >>> queries.relation("models", "vehicles")
        >>> queries.register("known", "SELECT * FROM LATEST(buses) WHERE vehicle_id IN (SELECT vehicle_id FROM models)")
        """
        declare(self.checkpoint, name, absolute_location(path_argument("table", table)), self._given.storage)

    def refresh(self, name: str) -> None:
        """Let queries read the rows that a relation's table has now. Those that read the relation begin again.

        Parameters
        ----------
        name
            The relation's name.

        Raises
        ------
        OptionError
            There is no relation of this name, or a query that reads it does not fit the table as it is now.
        TableError
            The table is gone, or cannot be opened.

        Notes
        -----
        If the table has no other version than before, nothing changes.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="refresh_cp", to="lake")
        >>> queries.relation("models", "vehicles")
        >>> queries.refresh("models")
        """
        refresh(self.checkpoint, name, self._given.storage)

    def drop_relation(self, name: str) -> None:
        """Forget a relation that no query and no view names. Its table stays as it is.

        Parameters
        ----------
        name
            The relation's name.

        Raises
        ------
        OptionError
            There is no relation of this name, or it is in use.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="drop_relation_cp", to="lake")
        >>> queries.relation("models", "vehicles")
        >>> queries.drop_relation("models")
        """
        record(self.checkpoint, Change("drop_relation", name))

    def relations(self) -> dict[str, str]:
        """Return the stored relations by name, each with its table and the version that queries read.

        Returns
        -------
        dict of str to str

        Examples
        --------
        >>> us.queries(checkpoint="relations_cp", to="lake").relations()
        {}
        """
        return {name: str(each.table) for name, each in registry_now(self.checkpoint).catalog.relations.items()}
