"""The specification of an operator, as the plan uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

__all__ = ["EMISSIONS", "Emit", "Output", "Specification", "described", "in_words_of_today"]

_SHOWN_ELSEWHERE = ("key", "time", "shards")

Emit = Literal["all", "lazy", "eager", "early", "all+early"]
"""The windows that give a result, in the words of checkpoints. ``all``: every window with a row, when it closes.
``lazy``: each key's latest complete window. ``eager``: its latest started window, and no other until that closes.
``early``: ``lazy``, with interim results of the open window; ``all+early`` likewise."""

Output = Literal["latest", "all", "eager"]
"""The windows that give a result, in the user's words; early results are a setting of their own."""

EMISSIONS: Mapping[Emit, tuple[Output, bool]] = {
    "lazy": ("latest", False),
    "all": ("all", False),
    "eager": ("eager", False),
    "early": ("latest", True),
    "all+early": ("all", True),
}
"""The user's words, and whether there are early results, by the word of checkpoints."""

_TODAY = {emit: output + (", early=True" if early else "") for emit, (output, early) in EMISSIONS.items()}


class Specification(Protocol):
    """The settings of an operator."""

    def identity(self) -> Mapping[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        ...

    def changeable(self) -> Mapping[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        ...


def in_words_of_today(settings: Mapping[str, str]) -> dict[str, str]:
    """Return an operator's settings in the user's words: checkpoints keep the words of earlier releases."""
    return dict(
        ("output", str(_TODAY.get(value, value))) if word == "emit" else (word, value)
        for word, value in settings.items()
    )


def described(name: str, specification: Specification, hidden: tuple[str, ...] = ()) -> str:
    """Return an operator's name and settings in one line."""
    said = {
        word: value
        for word, value in {**in_words_of_today(specification.identity()), **specification.changeable()}.items()
        if word not in _SHOWN_ELSEWHERE and word not in hidden and value
    }
    return ", ".join([name, *(f"{word} {value}" for word, value in said.items())])
