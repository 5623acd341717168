"""Keys: the columns that identify a row, or that order the rows of one, from a user's argument to a table's schema."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, cast

from ...conf.column_names import Tree, columns_of, listed, path_name, resolved, split_list
from ...conf.errors import OptionError, SchemaError
from ...conf.options import names_argument, parsed


class Key(tuple[str, ...]):
    """Names of columns, and paths (:func:`~upstream.conf.column_names.path_name`) of fields of structs, in order.

    As JSON it is a list, and as an option its :attr:`text`.
    """

    __slots__ = ()

    @classmethod
    def given(cls, value: object, name: str = "key") -> Key:
        """Return the names in a user's argument `name`; raise OptionError if there are none."""
        found = names_argument(name, value)
        if not found:
            raise OptionError(
                f"{name}={value!r}", expected="the name of a column, or a list of several", hint=f"name the {name}"
            )
        return cls((found,) if isinstance(found, str) else found)

    @classmethod
    def optional(cls, value: object, name: str = "key") -> Key | None:
        """Return the names in a user's argument, as :meth:`given`; None without it."""
        return None if value is None else cls.given(value, name)

    @classmethod
    def split(cls, text: str) -> Key:
        """Return the names in an option's text; raise ValueError if it has none."""
        return cls(split_list(text))

    @property
    def text(self) -> str:
        """The names as an option, the inverse of :meth:`split`."""
        return listed(self)

    def resolved(self, columns: Tree, role: str = "key") -> Key:
        """Return the names as a schema spells them; raise SchemaError for one that it lacks. `role` is the option."""
        absent = self.absent(columns)
        if absent:
            raise SchemaError(
                f"the {role} column {absent[0]!r} is not among the columns {', '.join(columns)}",
                expected="one of these, or a field of one",
                hint=f"correct {role}, or keep the column in the select",
            )
        return Key(path_name(resolved(name, columns) or (name,)) for name in self)

    def absent(self, columns: Tree) -> list[str]:
        """Return the names that a schema lacks."""
        return [name for name in self if resolved(name, columns) is None]

    def fields(self, columns: Container[str]) -> list[str]:
        """Return the names that are fields, and no columns."""
        return [name for name in self if name not in columns]

    def columns(self, columns: Container[str]) -> list[str]:
        """Return the column of each name; a field's is its struct."""
        return columns_of(self, columns)


NO_KEY = Key()

BY_ARRIVAL = Key(("_arrival",))
"""The order of rows in ``sequenceBy`` that is no column's: the later arrival is newer."""

KEY_OPTION = parsed("one or more column names, separated by commas", Key.split)
"""The parser of an option; backticks enclose a name with a comma."""


def json_tree(fields: Sequence[Mapping[str, Any]]) -> Tree:
    """Return the names in Spark's JSON of a schema's fields, with those of the fields of structs."""

    def inside(kind: Any) -> Tree | None:
        return json_tree(kind["fields"]) if isinstance(kind, dict) and cast("Any", kind)["type"] == "struct" else None

    return {field["name"]: inside(field["type"]) for field in fields}
