"""Tables of texts that are refused."""

from collections.abc import Callable

import pytest
from kit.continuous import refused


def refusals(*rows: tuple[str, str, str], of: str = "{}") -> Callable[[str, str, str], None]:
    """Test texts, each with a part of what is said and the piece that it points at; they may be parts of a query."""

    @pytest.mark.parametrize(("text", "part", "at"), rows)
    def refusal(text: str, part: str, at: str) -> None:
        refused(of.format(text), part, at=at)

    return refusal
