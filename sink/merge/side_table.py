"""A Delta table beside the main one, to which commits append figures or side rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.errors import TableError
from ...delta_format.column_mapping import ids_in
from ..maintenance.runner import commit_hooks, maintain
from ..spec.maintenance_rules import is_ours, retention_properties
from ..spec.options import SinkTarget
from ..table.mapped_table import change_columns, make_table
from ..table.own_files import check_free
from ..table.table import load_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["SideTable"]


class SideTable:
    """A table beside the main one, which several queries may share. `unusable` makes its errors.

    Appends use the same means as the main table's commits: a writer with a query engine takes three times as
    long.
    """

    def __init__(self, place: SinkTarget, schema: pa.Schema, unusable: Callable[[object], TableError]) -> None:
        self._place = place
        self._schema = schema
        self._unusable = unusable

    def load(self) -> DeltaTable | None:
        """Load the table as it is now; return None if there is none."""
        from deltalake.exceptions import DeltaError

        try:
            found = load_table(self._place)
            if found is None:
                check_free(self._place.folder)
        except (DeltaError, OSError, TableError) as error:
            raise self._unusable(error) from error
        return found

    def ready(self) -> DeltaTable:
        """Return the table with all columns; create it, or add columns, if necessary."""
        from deltalake import Schema
        from deltalake.exceptions import DeltaError

        found = self.load()
        if found is None:
            try:
                self._make()
            except (DeltaError, OSError) as error:
                if self.load() is None:  # else somebody else has just made it
                    raise self._unusable(error) from error
            found = self.load()
            assert found is not None
        held = {field.name for field in found.schema().fields}
        new = [field for field in Schema.from_arrow(self._schema).fields if field.name not in held]
        if not new:
            return found
        schema = json.loads(found.schema().to_json())
        schema["fields"] += [json.loads(field.to_json()) for field in new]
        try:
            if (ids := ids_in(found, schema)) is not None:
                change_columns(self._place, found, schema, ids)  # whether we did, or somebody else, is seen below
            else:
                found.alter.add_columns(new)
        except (DeltaError, OSError) as error:
            raise self._unusable(error) from error
        return self.ready()

    def _make(self) -> None:
        from deltalake import DeltaTable, Schema

        schema = json.loads(Schema.from_arrow(self._schema).to_json())
        configuration = retention_properties(self._place.options.maintenance_rules({}))
        if (ids := ids_in(None, schema)) is not None:
            make_table(self._place, schema, ids, [], configuration)
            return
        DeltaTable.create(
            self._place.location,
            self._schema,
            configuration=configuration,
            storage_options=dict(self._place.storage) or None,
            raise_if_key_not_exists=False,
        )

    def append(
        self, table: DeltaTable, files: Mapping[str, tuple[int, str]], written_ms: int, transaction: tuple[str, int]
    ) -> bool:
        """Append files, and return True; return False if another writer has taken the version.

        `files` has the size and the statistics by path; `transaction` is an application and its number.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction

        before = table.version()
        adds: list[Any] = [AddAction(path, size, {}, written_ms, True, stats) for path, (size, stats) in files.items()]
        try:
            table.create_write_transaction(
                adds,
                "append",
                table.schema(),
                [],
                commit_properties=CommitProperties(
                    # Retrying by itself, it would not look again at what is recorded by then.
                    max_commit_retries=0,
                    app_transactions=[Transaction(*transaction)],
                ),
                post_commithook_properties=commit_hooks(
                    on=self._place.options.maintenance == "off" or not is_ours(table.metadata().configuration)
                ),
            )
        except (DeltaError, OSError) as error:
            after = self.load()
            recorded = None if after is None else after.transaction_version(transaction[0])
            if recorded is not None and recorded >= transaction[1]:
                return True  # it took place although it seemed to fail
            if after is not None and after.version() > before:
                return False
            raise self._unusable(error) from error
        # Its log grows by an entry a commit, as the main table's does.
        maintain(self._place, table, compact=lambda _: 0)
        return True
