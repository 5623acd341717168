"""The Delta table behind a stored relation, at the version of which its rows are."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoredTable"]


@dataclass(frozen=True)
class StoredTable:
    """A version of a Delta table.

    Parameters
    ----------
    location : str
        The table's absolute folder, or its address.
    id : str
        Delta's id of the table: a table that is made anew at the same place has another one.
    version : int
    """

    location: str
    id: str
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.location}"
