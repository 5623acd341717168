"""What an operator does, as the plan sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Specification", "described", "in_words_of_today"]

_SHOWN_ELSEWHERE = ("key", "time", "shards")
_WORDS = {"emit": "output"}
_VALUES = {
    ("emit", "lazy"): "latest",
    ("emit", "early"): "latest, early=True",
    ("emit", "all+early"): "all, early=True",
}


class Specification(Protocol):
    """What an operator does, in its own terms."""

    def identity(self) -> Mapping[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        ...

    def changeable(self) -> Mapping[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        ...


def in_words_of_today(settings: Mapping[str, str]) -> dict[str, str]:
    """Return an operator's settings as its user writes them: in checkpoints they have the words of earlier releases."""
    return {_WORDS.get(word, word): _VALUES.get((word, value), value) for word, value in settings.items()}


def described(name: str, specification: Specification, hidden: tuple[str, ...] = ()) -> str:
    """Return what an operator does, in a line."""
    said = {
        word: value
        for word, value in {**in_words_of_today(specification.identity()), **specification.changeable()}.items()
        if word not in _SHOWN_ELSEWHERE and word not in hidden and value
    }
    return ", ".join([name, *(f"{word} {value}" for word, value in said.items())])
