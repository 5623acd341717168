"""From the text of a query to its changes, through the language, its expressions and the engine."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from upstream.conf.errors import QueryError
from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.computing import computed
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.streams import TOMBSTONE
from upstream.queries.deltas.zsets import BEGINNING
from upstream.queries.expressions.nodes import Field
from upstream.queries.language.binder import bind
from upstream.queries.language.catalog import Catalog
from upstream.queries.relations.nodes import Stream

MOMENT = pa.timestamp("us", "UTC")
BUSES = Stream(
    "buses",
    pa.schema({"vehicle_id": pa.string(), "route_id": pa.string(), "speed": pa.float64(), "t": MOMENT}),
    key=("vehicle_id",),
    event_time="t",
    updates=True,
)
REQUESTS = Stream(
    "requests",
    pa.schema({"client": pa.string(), "domain": pa.string(), "url": pa.string(), "t": MOMENT}),
    event_time="t",
)
DOMAINS = Stream("domains", pa.schema({"domain": pa.string(), "type": pa.string()}), static=True)
CATALOG = Catalog().with_stream(BUSES).with_stream(REQUESTS).with_stream(DOMAINS)


def rows(stream, values, dead=()):
    frame = pl.DataFrame(values, schema=stream.schema.names, orient="row", infer_schema_length=None)
    frame = frame.with_columns(pl.col("t").cast(pl.Datetime("us", "UTC")))
    return frame.with_columns(pl.Series(TOMBSTONE, [place in dead for place in range(len(values))]))


def evaluation(**texts):
    made = Evaluation(DictStore(), computed)
    for name, text in texts.items():
        made.add(name, bind(text, CATALOG).plan)
    return made


def test_an_expression_is_evaluated_over_the_columns_that_it_names():
    found = computed(Field("v", pa.int64()), pa.schema({"v": pa.int64()}))
    assert found.columns == frozenset({"v"})
    assert found.series(pl.DataFrame({"v": [4]}), "x").to_list() == [4]


def test_example_3_a_bus_leaves_one_group_and_enters_another():
    made = evaluation(q="SELECT route_id, COUNT(*) AS n, AVG(speed) AS v FROM LATEST(buses) GROUP BY route_id")
    buses = [("a", "1", 10.0, 1), ("b", "1", 20.0, 2), ("a", "2", 4.0, 3), ("b", None, None, 5)]
    changes = made.step({"buses": rows(BUSES, buses, dead={3})}, 6).changes["q"]
    assert sorted(changes.rows()) == sorted(
        [
            ("1", 1, 10.0, 1, 1),
            ("1", 1, 10.0, 2, -1),
            ("1", 2, 15.0, 2, 1),
            ("1", 2, 15.0, 3, -1),
            ("2", 1, 4.0, 3, 1),
            ("1", 1, 20.0, 3, 1),
            ("1", 1, 20.0, 5, -1),
        ]
    )


def test_example_1_as_it_is_written():
    made = evaluation(
        inside="SELECT COUNT(*) FROM requests [PARTITION BY client ROWS 2 WHERE domain = 'st'] WHERE url LIKE 'cs%'",
        after="SELECT COUNT(*) FROM requests [PARTITION BY client ROWS 2] WHERE domain = 'st' AND url LIKE 'cs%'",
    )
    requests = [
        ("A", "st", "cs/1", 1),
        ("A", "st", "ee/1", 2),
        ("B", "com", "x", 3),
        ("A", "st", "cs/2", 4),
        ("B", "st", "cs/3", 5),
        ("A", "com", "y", 6),
        ("A", "com", "z", 7),
    ]
    changes = made.step({"requests": rows(REQUESTS, requests[::-1])}, 8).changes
    assert changes["inside"].rows()[0] == (0, BEGINNING, 1)
    last = {name: [row[0] for row in found.rows() if row[2] > 0][-1] for name, found in changes.items()}
    assert last == {"inside": 2, "after": 1}


def test_the_papers_stream_of_sampled_commerce_has_no_other_rows():
    text = (
        "SELECT T.url FROM (SELECT client, url FROM requests S, domains R WHERE S.domain = R.domain "
        "AND R.type = 'commerce') T SAMPLE({}) WHERE T.client BETWEEN '1' AND '5'"
    )
    made = evaluation(all=text.format(100), some=text.format(50))
    requests = [(str(n % 10), "shop" if n % 2 else "st", f"u{n}", n) for n in range(200)]
    domains = pl.DataFrame({"domain": ["shop", "st"], "type": ["commerce", "school"]})
    changes = made.step({"requests": rows(REQUESTS, requests), "domains": domains}, 500).changes
    expected = {f"u{n}" for n in range(200) if n % 2 and "1" <= str(n % 10) <= "5"}
    assert set(changes["all"]["url"]) == expected
    assert 10 < changes["some"].height < 50
    assert set(changes["some"]["url"]) < expected


def test_a_value_that_cannot_be_computed_fails_its_query_alone():
    made = evaluation(q="SELECT vehicle_id, 1 / speed AS x FROM LATEST(buses)", p="SELECT COUNT(*) FROM LATEST(buses)")
    outcome = made.step({"buses": rows(BUSES, [("a", "1", 0.0, 1)])}, 2)
    assert isinstance(outcome.failed["q"], QueryError)
    assert list(outcome.changes) == ["p"]
