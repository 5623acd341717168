"""Which plans need no low-watermark: those over newest rows and stored relations alone."""

import pytest
from kit.continuous import bound

from upstream.operators.relations.plan.properties import on_arrival


@pytest.mark.parametrize(
    ("text", "newest"),
    [
        ("SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id", True),
        ("SELECT a.vehicle_id FROM LATEST(buses) AS a JOIN LATEST(buses) AS b ON a.route_id = b.route_id", True),
        ("SELECT b.vehicle_id, d.type FROM LATEST(buses) AS b JOIN Domains AS d ON b.route_id = d.domain", True),
        ("ISTREAM(SELECT vehicle_id FROM LATEST(buses))", True),
        ("SELECT domain FROM Domains", True),
        ("SELECT * FROM buses", False),
        ("SELECT vehicle_id FROM buses [RANGE 1 HOUR]", False),
        ("SELECT vehicle_id FROM buses [PARTITION BY vehicle_id ROWS 2]", False),
        ("SELECT vehicle_id FROM LATEST(buses) AS b JOIN trade [NOW] AS t ON b.route_id = t.sym", False),
        ("SELECT vehicle_id FROM LATEST(buses) WHERE route_id IN (SELECT sym FROM quote [NOW])", False),
        ("SELECT COUNT(*) AS n FROM (ISTREAM(SELECT vehicle_id FROM LATEST(buses))) [RANGE 1 HOUR]", False),
    ],
)
def test_newest_rows_alone_do_not_wait(text, newest):
    assert on_arrival(bound(text).plan) == newest
