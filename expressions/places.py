"""Places of errors in a query's text, and hints with similar names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from ..conf.errors import QueryRefusedError, UpstreamError
from .nodes import Call, Constant, Expression


def near(name: str, names: Iterable[str], *, all_of: str = "") -> str:
    """Return a hint with the known names most similar to an unknown one, or up to ten of them after ``all_of``."""
    known = sorted(set(names))
    lowered = {each.lower(): each for each in known}
    found = [lowered[each] for each in get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)]
    if found:
        return "did you mean " + " or ".join(repr(each) for each in found) + "?"
    if not all_of or not known:
        return ""
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    return f"{all_of}: {', '.join(known[:10])}{more}"


def span(node: Any) -> tuple[int, int]:
    """Return the first and last character of a syntax node, as the grammar has recorded them."""
    meta = node.meta
    return meta.get("start", 0), meta.get("end", 0)


class Text:
    """A text, to point at places in it. ``view`` is the view that it defines, if any."""

    def __init__(self, sql: str, view: str = "") -> None:
        self.sql = sql
        self.view = view
        self.constants: dict[Expression, tuple[int, int]] = {}
        """The places of calls without columns."""
        self._constants: dict[int, Expression] = {}

    def noted(self, expression: Expression, node: Any) -> Expression:
        """Record the place of a call without columns, and return the expression."""
        if isinstance(expression, Call) and all(map(self._is_constant, expression.arguments)):
            self.constants.setdefault(expression, span(node))
            self._constants[id(expression)] = expression
        return expression

    def _is_constant(self, part: Expression) -> bool:
        if isinstance(part, Constant) or id(part) in self._constants:
            return True
        return isinstance(part, Call) and all(isinstance(each, Constant) for each in part.arguments)  # a cast

    def error(self, at: Any, problem: str, *, expected: str = "", hint: str = "") -> UpstreamError:
        """Return an error that points at a node, or at a pair of positions in the text."""
        start, end = at if isinstance(at, tuple) else span(at)
        start = min(max(start, 0), len(self.sql))
        before = self.sql[:start].replace("\r\n", " \n").replace("\r", "\n")
        line = before.count("\n") + 1
        column = start - (before.rfind("\n") + 1) + 1
        shown = (self.sql.replace("\r\n", " \n").replace("\r", "\n").split("\n") or [""])[line - 1]
        width = max(1, min(end + 1 - start, len(shown) - column + 1))
        # Long lines are shown around the place only.
        cut = max(0, column - 60)
        part = shown[cut : cut + 110]
        lead = "..." if cut else ""
        caret = " " * (len(lead) + column - 1 - cut) + "^" * max(1, min(width, 110 - (column - 1 - cut)))
        if self.view:
            problem = f"in the view '{self.view}': {problem}"
        excerpt = f"    {lead}{part}\n    {caret}".replace("\t", " ")
        return QueryRefusedError(problem, expected=expected, hint=hint, line=line, column=column, excerpt=excerpt)

    def unknown(self, at: Any, problem: str, *, expected: str = "", hint: str = "") -> UpstreamError:
        """Return the error of a name that means no column."""
        return self.error(at, problem, expected=expected, hint=hint)

    def written(self, node: Any) -> str:
        """Return a node as it is written."""
        start, end = span(node)
        return self.sql[start : end + 1]
