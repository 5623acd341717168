"""What an operator does, as the plan sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Specification", "described"]

_SHOWN_ELSEWHERE = ("key", "time", "shards")


class Specification(Protocol):
    """What an operator does, in its own terms."""

    def identity(self) -> Mapping[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        ...

    def changeable(self) -> Mapping[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        ...


def described(name: str, specification: Specification, hidden: tuple[str, ...] = ()) -> str:
    """Return what an operator does, in a line."""
    said = {
        word: value
        for word, value in {**specification.identity(), **specification.changeable()}.items()
        if word not in _SHOWN_ELSEWHERE and word not in hidden and value
    }
    return ", ".join([name, *(f"{word} {value}" for word, value in said.items())])
