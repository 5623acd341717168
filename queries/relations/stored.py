"""A version of the Delta table behind a stored relation."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoredTable"]


@dataclass(frozen=True)
class StoredTable:
    """A version of a Delta table."""

    location: str  # An absolute folder or an address.
    id: str  # Delta's id of the table: a new table in the same place has another one.
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.location}"
