"""Which plans need no low-watermark: those over newest rows and stored relations alone."""

from __future__ import annotations

import pytest
from kit.continuous import CATALOG, FORMS

from upstream.queries.language import bind
from upstream.queries.relations.clocks import on_arrival
from upstream.queries.relations.nodes import Latest, Unbounded, Windowed, walk
from upstream.queries.relations.sharing import shareable

NEWEST = (
    "SELECT * FROM LATEST(buses)",
    "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id",
    "SELECT a.vehicle_id FROM LATEST(buses) AS a JOIN LATEST(buses) AS b ON a.route_id = b.route_id",
    "SELECT b.vehicle_id, d.type FROM LATEST(buses) AS b JOIN Domains AS d ON b.route_id = d.domain",
    "ISTREAM(SELECT vehicle_id FROM LATEST(buses))",
    "SELECT domain FROM Domains",
)
WAITING = (
    "SELECT vehicle_id FROM buses [RANGE 1 HOUR]",
    "SELECT vehicle_id FROM buses [PARTITION BY vehicle_id ROWS 2]",
    "SELECT b.vehicle_id FROM LATEST(buses) AS b JOIN trade [RANGE 1 HOUR] AS t ON b.route_id = t.sym",
    "SELECT vehicle_id FROM LATEST(buses) WHERE route_id IN (SELECT sym FROM quote [NOW])",
    "SELECT COUNT(*) AS n FROM (ISTREAM(SELECT vehicle_id FROM LATEST(buses))) [RANGE 1 HOUR]",
)


@pytest.mark.parametrize("text", NEWEST)
def test_newest_rows_do_not_wait(text):
    plan = bind(text, CATALOG).plan
    assert on_arrival(plan)
    assert on_arrival(shareable(plan))


@pytest.mark.parametrize("text", WAITING)
def test_every_other_window_waits_also_beside_newest_rows(text):
    plan = bind(text, CATALOG).plan
    assert not on_arrival(plan)
    assert not on_arrival(shareable(plan))


@pytest.mark.parametrize("text", FORMS)
def test_the_clock_of_each_form_follows_from_its_windows(text):
    plan = bind(text, CATALOG).plan
    kinds = {type(each.window) for each in walk(plan) if isinstance(each, Windowed)}
    over_changes = any(isinstance(each, Windowed) and each.origin.inputs for each in walk(plan))
    assert on_arrival(plan) == (kinds <= {Latest} and not over_changes) or kinds == {Latest, Unbounded}
