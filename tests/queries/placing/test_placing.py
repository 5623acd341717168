"""How plans are divided."""

from __future__ import annotations

from kit.continuous import relation

from upstream.queries.placing.placing import placed


def test_a_plan_that_cannot_be_divided_is_gathered() -> None:
    plan = relation("SELECT COUNT(*) AS n FROM trade [ROWS 5] CROSS JOIN quote [NOW]")
    placement = placed(plan)
    assert placement.second is None
    (fragment,) = placement.fragments
    assert fragment.plan == plan and fragment.onward is None
    assert [(each.stream, each.by) for each in fragment.routes] == [("quote", ()), ("trade", ())]
