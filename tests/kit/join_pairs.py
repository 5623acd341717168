"""What a join must give, by comparing each row with each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = tuple[Any, int, int]
"""Key, time, number."""


def expected(
    left: Sequence[Row], right: Sequence[Row], meets: Callable[[Row, Row], bool], how: str
) -> list[tuple[int, int]]:
    """Return pairs of numbers, -1 for no row; of semi and anti joins the left's number and -1.

    Outer joins leave rows without a key out.
    """
    pairs = [
        (one[2], two[2]) for one in left for two in right if one[0] is not None and one[0] == two[0] and meets(one, two)
    ]
    met = {one for one, _ in pairs}, {two for _, two in pairs}
    alone = [(one[2], -1) for one in left if one[2] not in met[0] and (one[0] is not None or how == "anti")]
    if how == "semi":
        return sorted((one, -1) for one in met[0])
    if how == "anti":
        return sorted(alone)
    if how in ("left", "full"):
        pairs += alone
    if how in ("right", "full"):
        pairs += [(-1, two[2]) for two in right if two[2] not in met[1] and two[0] is not None]
    return sorted(pairs)
