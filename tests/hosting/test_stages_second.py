from unittest.mock import patch

import pyarrow as pa
from kit.hosting import Versions, result_table, windows_first

from upstream.core.rows.frames import to_frame
from upstream.hosting import host_plan
from upstream.hosting.host_plan import HostPlans
from upstream.hosting.messages import Command, control_of
from upstream.hosting.output import OutputControl
from upstream.hosting.stages import SecondStage
from upstream.operators.relations.zsets import BEGINNING, TIME, WEIGHT
from upstream.operators.state.store import DictStore

COUNT = "SELECT sym, COUNT(*) AS n FROM trade [RANGE 10 MINUTES] GROUP BY sym"
RATIO = "SELECT sym, SUM(1 / n) AS ratio FROM trade [RANGE 10 MINUTES] GROUP BY sym"
VERSIONS = Versions({1: {"q": (1, COUNT)}, 2: {"q": (1, COUNT), "r": (2, RATIO)}, 3: {}})


class Shard:
    """The shard that computes the query, behind two shards of the first stage."""

    def __init__(self):
        self.store = DictStore()
        self.plans = HostPlans(VERSIONS, (0, 1))
        with patch.object(host_plan, "placed", windows_first):
            (self.query,) = self.plans(1).queries.values()
            self.plans(2)
        assert self.query.shard is not None
        self.number = self.query.shard
        (self.piece,) = self.query.fragments

    def run(self, rows, version=1):
        stage = SecondStage(Command(0, version), self.plans)
        left = stage.batch(self.number, self.store, rows)
        if left is None:
            return []
        return [
            (OutputControl.of(row["control"]), {} if row["frame"] is None else result_table(row["frame"]).to_pydict())
            for row in left.to_pylist()
        ]

    def heard(self, shard, low, first=50, whole=BEGINNING):
        domains = {self.query.domain.name: [low, first, None]}
        whole_of = {f"{self.piece.name}@1": whole}
        return self.number, None, control_of("heard", shard=shard, domains=domains, now=90, whole=whole_of)

    def changes(self, shard, *rows, version=1):
        schema = self.piece.plan.schema
        size = len(rows)
        columns: dict[str, pa.Array] = {each.name: pa.nulls(size, each.type) for each in schema}
        columns["sym"] = pa.array([sym for sym, _, _ in rows], pa.string())
        columns["n"] = pa.array([0] * size, pa.int64())
        columns |= {TIME: pa.array([time for _, time, _ in rows]), WEIGHT: pa.array([one for _, _, one in rows])}
        control = control_of("changes", job=f"{self.piece.name}@{version}", shard=shard)
        return self.number, to_frame(pa.table(columns)), control


def test_changes_of_all_shards_meet_below_the_least_low_watermark():
    shard = Shard()
    rows = [
        shard.changes(0, ("a", 3, 1), ("a", 6, 1)),
        shard.changes(1, ("a", 4, 1)),
        shard.heard(0, 9, first=40),
        shard.heard(1, 6),
    ]
    found = shard.run(rows)
    assert [each.kind for each, _ in found] == ["begun", "rows", "reached"]
    assert (found[1][1]["n"], found[2][0].complete_to) == ([2], 6)
    assert found[1][1]["_upstream"][0]["first_arrival"].timestamp() * 1e6 == 40
    found = shard.run([shard.heard(0, 9), shard.heard(1, 8)])
    assert found[0][1]["n"] == [3]
    assert not any("waiting" in kind for kind, _ in shard.store.values)


def test_it_waits_until_all_shards_have_spoken():
    shard = Shard()
    assert shard.run([shard.changes(0, ("a", 3, 1)), shard.heard(0, 9)]) == []
    assert shard.run([shard.heard(1, None)]) == []
    assert [each.kind for each, _ in shard.run([shard.heard(1, 9)])] == ["begun", "rows", "reached"]


def test_it_is_whole_when_what_it_is_given_is():
    for sinces, expected in (((5, 7), 7), ((BEGINNING, BEGINNING), BEGINNING), ((5, None), None)):
        shard = Shard()
        found = shard.run([shard.heard(at, 9, whole=since) for at, since in enumerate(sinces)])
        assert [each.complete_from for each, _ in found if each.kind == "begun"] == [expected]


def test_a_query_that_begins_later_is_given_all_again():
    shard = Shard()
    both = [shard.heard(0, 9), shard.heard(1, 9)]
    shard.run([shard.changes(0, ("a", 3, 1)), *both])
    found = shard.run([shard.changes(0, ("a", 3, 1), version=2), *both], version=2)
    assert [(each.kind, each.query) for each, _ in found] == [("failed", 2), ("reached", -1)]
    assert "divi" in found[0][0].reason.lower()


def test_nothing_is_kept_of_queries_that_are_gone():
    shard = Shard()
    shard.run([shard.changes(0, ("a", 3, 1), ("a", 30, 1)), shard.heard(0, 9), shard.heard(1, 9)])
    assert len({kind for kind, _ in shard.store.values}) > 2
    shard.run([shard.heard(0, 9), shard.heard(1, 9)], version=3)
    assert {kind for kind, _ in shard.store.values} == {"head"}
