"""What is reported of malformed rows."""

from typing import Any


class Reported(list[dict[str, Any]]):
    """Malformed rows, as they were reported."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        self.append({"text": text, "place": place, "line": line, "reason": reason})

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self]

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Each row's place, and what is wrong with it."""
        return [(row["place"], row["reason"]) for row in self]


class NoneExpected:
    """For rows of which none is malformed."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        raise AssertionError((text, place, line, reason))
