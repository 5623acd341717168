import json
from collections import Counter
from datetime import timedelta

import polars as pl
import pytest
from deltalake import DeltaTable
from kit.continuous import CATALOG, EPOCH, QUOTE, TRADE
from kit.hosting import Tables, Versions, frame, run, scanned
from kit.local_host import LocalHost, OutputRow

from upstream.conf.errors import QueryRefusedError
from upstream.core.rows.system_column import DELETED
from upstream.hosting.host_plan import rehearse
from upstream.hosting.late_rows import late_reason, refused_letters
from upstream.hosting.messages import Command
from upstream.hosting.output import outcome_of
from upstream.language import bind
from upstream.operators.relations.streams import TOMBSTONE
from upstream.sink.figures.dead_letters import letter_folders, shown_letters

MINUTE_US = 60_000_000
START_US = int(EPOCH.timestamp()) * 1_000_000
COUNT = "SELECT sym, COUNT(*) AS n FROM trade [RANGE 10 MINUTES] GROUP BY sym"
BY_N = "SELECT n, COUNT(*) AS c FROM trade [RANGE 1 HOUR] GROUP BY n"
JOINED = "SELECT a.sym, COUNT(*) AS c FROM trade [RANGE 1 HOUR] a JOIN quote [RANGE 1 HOUR] b ON a.sym = b.sym GROUP BY a.sym"  # noqa: E501
HOURS = "SELECT DATE_TRUNC('HOUR', t) AS hour, COUNT(*) AS c FROM trade GROUP BY 1"


def trades(minutes, bound, arrival=100):
    rows = frame(TRADE, [("abc"[at % 3], 1.0, at % 2, EPOCH + timedelta(minutes=at)) for at in minutes])
    return scanned(TRADE, rows, range(arrival, arrival + len(minutes)), {"f": START_US + bound * MINUTE_US})


def quotes(bound):
    return scanned(QUOTE, frame(QUOTE, []), [], {"q": START_US + bound * MINUTE_US}, feed="q")


class Host:
    """Queries over three shards, whose late trades are kept."""

    def __init__(self, tmp_path, texts, lateness_us=0):
        catalog = CATALOG.with_lateness(lateness_us)
        versions = Versions(
            {1: {name: (at, text) for at, (name, text) in enumerate(texts.items(), 1)}}, catalog=catalog
        )
        self.place = f"{tmp_path}/dead_letters"
        self.host = LocalHost(versions, 3, letters={"trade": self.place})
        self.tables = Tables(self.host.plan(1))
        self.late: Counter[int] = Counter()
        self.batches = 0

    def run(self, *tasks):
        named = {"trade": [each for each in tasks if "px" in each.column_names]}
        named["quote"] = [each for each in tasks if "bid" in each.column_names]
        left: list[OutputRow] = []
        self.host = run(self.host, Command(self.batches, 1), named, self.tables, left)  # twice, as after a failure
        self.late.update(outcome_of((each.leaving.control(), each.frame) for each in left).late)
        self.batches += 1

    def letters(self):
        rows = DeltaTable(self.place).to_pyarrow_table().to_pylist()
        return Counter((each["batch"], each["reason"], json.loads(each["payload"])["t"][14:16]) for each in rows)


def test_a_late_row_is_one_dead_letter_with_all_queries_that_miss_it_and_each_counts_it_once(tmp_path):
    host = Host(tmp_path, {"hi": COUNT, "by_n": BY_N, "both": JOINED})
    host.run(trades([10, 11], 20), quotes(5))
    host.run(trades([3, 4, 7, 12, 20], 25), quotes(5))
    host.run(trades([24, 24], 25), quotes(30))
    assert host.letters() == {
        (1, late_reason(["both", "by_n", "hi"]), "03"): 1,
        (1, late_reason(["both", "by_n", "hi"]), "04"): 1,
        (1, late_reason(["by_n", "hi"]), "07"): 1,
        (1, late_reason(["by_n", "hi"]), "12"): 1,
        (2, late_reason(["by_n", "hi"]), "24"): 2,
    }
    assert host.late == {1: 6, 2: 6, 3: 2}
    (folder, _) = letter_folders(None, str(tmp_path), {})
    assert shown_letters([folder]).text.startswith("6 rows are dead letters, the first of trade: late for ")


def test_without_late_rows_there_is_no_table(tmp_path):
    host = Host(tmp_path, {"hi": COUNT})
    host.run(trades([10, 11], 10))
    host.run(trades([10], 12))
    assert list(tmp_path.iterdir()) == []


def test_a_refused_deletion_is_marked_as_one():
    rows = pl.DataFrame({"sym": ["a", "b"], TOMBSTONE: [True, False]})
    assert refused_letters(rows, ["q"]).select(["sym", DELETED]).to_pylist() == [
        {"sym": "a", DELETED: True}, {"sym": "b", DELETED: False},
    ]  # fmt: skip


def test_many_queries_are_counted_in_the_reason():
    assert late_reason([*"abcdefg"]).startswith("late for a, b, c, d, e and 2 more: below")


def test_with_lateness_a_result_that_was_complete_is_corrected_and_its_state_is_dropped_later(tmp_path):
    host = Host(tmp_path, {"hours": HOURS, "rows": "SELECT sym, n FROM trade"}, 30 * MINUTE_US)

    def counts():
        return sorted(row[-1] for row in host.tables.contents(1))

    host.run(trades([10], 11))
    host.run(trades([50, 70], 65))
    assert counts() == [2]
    host.run(trades([40, 30], 65))  # the low-watermark stays
    assert counts() == [3]
    assert host.letters() == {(2, late_reason(["hours", "rows"]), "30"): 1}
    host.run(trades([], 85))
    host.run(trades([55], 200))
    assert counts() == [1, 4]
    assert host.late == {1: 1, 2: 1}
    assert host.tables.feeds[2].total() == 5


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sym, COUNT(*) AS c FROM trade [ROWS 5] GROUP BY sym",
        "DSTREAM(SELECT sym FROM trade [RANGE 5 MINUTES])",
        "SELECT sym, COUNT(*) AS c FROM SESSION(trade PARTITION BY sym, t, INTERVAL '5' MINUTES) GROUP BY sym",
        "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id",
    ],
)
def test_lateness_is_refused_where_results_cannot_be_corrected(text):
    with pytest.raises(QueryRefusedError, match="lateness of a query whose results cannot be corrected"):
        rehearse(bind(text, CATALOG.with_lateness(5)).plan, "q", "/t/q", 1)
    rehearse(bind(text, CATALOG).plan, "q", "/t/q", 1)
    for each in (HOURS, COUNT, "SELECT sym FROM trade"):
        rehearse(bind(each, CATALOG.with_lateness(5)).plan, "q", "/t/q", 1)
