"""A job's file against a registry, and its application as one change."""

import polars as pl
import pytest
from kit.registries import begun

from upstream.conf.errors import OptionError, QueryRefusedError
from upstream.hosting.edits import record
from upstream.hosting.job_file import apply, created, definitions, differences, refuse_changes
from upstream.hosting.journal import Change, Journal
from upstream.hosting.registry import registry_now
from upstream.hosting.shared_parts import explain_among
from upstream.language.layout import layout
from upstream.language.statements import script

FILE = """
CREATE VIEW dear AS SELECT sym, px FROM trade [NOW] WHERE px > 10;
CREATE MATERIALIZED VIEW n WITH (weight = 2) AS SELECT sym, COUNT(*) AS n FROM dear GROUP BY sym;
CREATE MATERIALIZED VIEW top AS SELECT MAX(px) AS px FROM trade [NOW];
"""


def lines(checkpoint: str, text: str, *, write: bool = True) -> list[str]:
    wanted, registry = definitions([*script(text)]), registry_now(checkpoint)
    there = apply(checkpoint, wanted, {}, None, change=True) if write else differences(wanted, registry, {}, None)
    return [str(each).partition(":")[0] for each in there]


@pytest.fixture
def checkpoint(tmp_path):
    return begun(tmp_path)


def test_a_file_is_applied_by_one_change_and_then_there_is_nothing_to_change(checkpoint):
    made = ["+ create view dear", "+ create materialized view n", "+ create materialized view top"]
    assert lines(checkpoint, FILE, write=False) == made
    assert Journal(checkpoint).version() == 0
    assert lines(checkpoint, FILE) == made
    assert Journal(checkpoint).version() == 1
    registry = registry_now(checkpoint)
    assert [(each.name, each.weight, each.active) for each in registry.queries.values()] == [
        ("n", 2.0, True),
        ("top", 1.0, True),
    ]
    assert lines(checkpoint, FILE) == []
    assert Journal(checkpoint).version() == 1


def test_what_reads_an_edited_view_restarts_and_the_rest_goes_on(checkpoint):
    lines(checkpoint, FILE)
    before = registry_now(checkpoint).queries
    edited = FILE.replace("px > 10", "px > 20").replace("weight = 2", "weight = 3").replace("top AS", "best AS")
    assert lines(checkpoint, edited) == [
        "- drop materialized view top",
        "~ alter view dear",
        "~ alter materialized view n",
        "~ restart materialized view n",
        "+ create materialized view best",
    ]
    after = registry_now(checkpoint).queries
    assert after["n"].id > before["n"].id
    assert after["n"].weight == 3
    assert after["n"].bound is not None
    assert before["n"].bound is not None
    assert after["n"].bound.plan != before["n"].bound.plan
    assert set(after) == {"n", "best"}
    assert len({each.id for each in after.values()}) == 2


def test_a_view_and_its_readers_change_together_though_neither_fits_the_others_old_text(checkpoint):
    lines(checkpoint, FILE)
    renamed = FILE.replace("SELECT sym, px FROM trade", "SELECT sym AS s, px FROM trade")
    renamed = renamed.replace(
        "SELECT sym, COUNT(*) AS n FROM dear GROUP BY sym", "SELECT s, COUNT(*) AS n FROM dear GROUP BY s"
    )
    assert lines(checkpoint, renamed) == ["~ alter view dear", "~ alter materialized view n"]
    assert registry_now(checkpoint).active["n"].query.plan.schema.names == ["s", "n"]


def test_a_paused_view_stays_paused_and_a_name_may_become_another_kind(checkpoint):
    lines(checkpoint, FILE)
    record(checkpoint, Change("deactivate", "top"))
    assert lines(checkpoint, FILE) == []
    assert not registry_now(checkpoint).queries["top"].active
    swapped = (
        "CREATE VIEW top AS SELECT px FROM trade [NOW]; CREATE MATERIALIZED VIEW dear AS SELECT MAX(px) AS px FROM top"
    )
    assert len(lines(checkpoint, swapped)) == 5
    registry = registry_now(checkpoint)
    assert (list(registry.catalog.views), list(registry.active)) == (["top"], ["dear"])


def test_tables_come_with_what_reads_them_and_keep_their_version(checkpoint, tmp_path):
    place = tmp_path / "names"
    pl.DataFrame({"sym": ["a"]}).write_delta(str(place))
    text = f"CREATE TABLE names FROM '{place}'; CREATE MATERIALIZED VIEW known AS SELECT * FROM names;"
    assert len(lines(checkpoint, text)) == 2
    pl.DataFrame({"sym": ["b"]}).write_delta(str(place), mode="append")
    assert lines(checkpoint, text) == []
    with pytest.raises(OptionError, match=r"the file has .*elsewhere"):
        lines(checkpoint, text.replace(str(place), str(tmp_path / "elsewhere")))
    assert lines(checkpoint, "CREATE VIEW v AS SELECT sym FROM trade [NOW]")[:2] == [
        "- drop table names",
        "- drop materialized view known",
    ]


def test_a_source_may_change_in_what_its_checkpoint_does_not_fix(checkpoint):
    buses = "CREATE SOURCE buses FROM '{}' WITH (key = 'Vehicle_id', event_time = 'timestamp'{});"
    assert lines(checkpoint, buses.format("a/", "")) == ["+ create source buses"]
    assert lines(checkpoint, buses.format("b/", ", queue = 'append', max_files_per_trigger = 2, updates = true")) == [
        "~ alter source buses"
    ]
    for text, error in (
        (buses.format("b/", ", queue = 'in-place'"), "has queue, or coalesce = true.*neither queue nor"),
        (buses.format("b/", ", coalesce = TRUE"), "neither queue nor"),
        (buses.format("b/", ", updates = false"), "updates = 'false'.*updates = 'true'"),
        (buses.format("b/", "").replace("Vehicle_id", "route_id, Vehicle_id"), "key = 'vehicle_id'"),
        (buses.format("b/", "").replace("'timestamp'", "'t'"), "event_time = 'timestamp'"),
    ):
        with pytest.raises(OptionError, match=error):
            lines(checkpoint, text)


SCORE = "CREATE FUNCTION score(x DOUBLE) RETURNS DOUBLE AS 'kit.python_functions:doubled';"
SCORED = (
    FILE.replace("px > 10", "score(px) > 10")
    + "CREATE MATERIALIZED VIEW s AS SELECT MAX(score(px)) AS s FROM trade [NOW];"
)


def test_what_calls_a_changed_function_restarts_also_through_a_view(checkpoint):
    assert lines(checkpoint, SCORE + SCORED)[:2] == ["+ create function score", "+ create view dear"]
    assert lines(checkpoint, SCORE.replace("(x", "( x") + SCORED) == ["~ rewrite function score"]
    assert lines(checkpoint, SCORE.replace("doubled", "Functions.same") + SCORED) == [
        "~ alter function score",
        "~ restart materialized view n",
        "~ restart materialized view s",
    ]
    plans = [str(each.query.plan) for each in registry_now(checkpoint).active.values()]
    assert [("Functions.same" in plan, "doubled" in plan) for plan in plans] == [
        (True, False),
        (False, False),
        (True, False),
    ]
    assert created("SCORE", registry_now(checkpoint)) == SCORE.replace("doubled", "Functions.same")
    assert lines(checkpoint, FILE)[:2] == ["- drop function score", "- drop materialized view s"]
    assert registry_now(checkpoint).catalog.functions == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT sym FROM trade [NOW]", "CREATE statements only"),
        (SCORE.replace("doubled", "labelled") + SCORED, "takes 1 array"),
        (SCORE.replace("kit.", "kite.") + SCORED, "'kite.python_functions:doubled' cannot be imported"),
        (SCORE + SCORED.replace("score(px) >", "score(sym, px) >"), r"score\(DOUBLE\)"),
        (SCORE.replace("score", "top") + FILE, "the name 'top' is taken|defines 'top' twice"),
        (
            "CREATE VIEW v AS SELECT sym FROM trade [NOW]; CREATE VIEW V AS SELECT px FROM trade [NOW]",
            "defines 'V' twice",
        ),
        ("CREATE SOURCE s FROM 'x' WITH (key = 'k')", "no source 's'"),
        ("CREATE MATERIALIZED VIEW trade AS SELECT sym FROM quote [NOW]", "'trade' is taken"),
        (FILE.replace("AVG", "").replace("weight = 2", "buckets = 2"), "has buckets = 1, and the file has 2"),
        ("CREATE VIEW a AS SELECT nothing FROM trade [NOW]", "nothing"),
        (FILE.replace("MAX(px)", "MAX(py)"), "py"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_of_the_file_is_applied(checkpoint, text, error):
    lines(checkpoint, FILE)
    with pytest.raises((OptionError, QueryRefusedError), match=error):
        lines(checkpoint, text)
    assert Journal(checkpoint).version() == 1


def test_the_statements_shown_make_the_same_registry(checkpoint, tmp_path):
    place = tmp_path / "it's"
    pl.DataFrame({"sym": ["a"]}).write_delta(str(place))
    escaped = str(place).replace("'", "\\'")
    text = f"CREATE TABLE `na-mes` FROM '{escaped}';" + FILE.replace("COUNT(*) AS n", "COUNT(*) AS n /* of all; */")
    lines(checkpoint, text)
    shown = "\n".join(created(name, registry_now(checkpoint)) for name in ("na-mes", "DEAR", "n", "top"))
    assert "/* of all; */" in shown
    assert lines(checkpoint, shown) == []
    with pytest.raises(OptionError, match="no definition 'nothing'"):
        created("nothing", registry_now(checkpoint))


COMMENTED = """\
-- The dear ones.
CREATE VIEW dear /* v */ AS -- above ten
  select sym, px from trade [now] where px > 10 -- dollars
;
create materialized view n /* of */ with (weight = 2) as
  -- by symbol
  select sym, count(*) as n from dear group by sym;
"""


def test_statements_are_kept_and_shown_as_they_are_written(checkpoint):
    lines(checkpoint, COMMENTED)
    registry = registry_now(checkpoint)
    assert "\n".join(created(name, registry) for name in ("dear", "n")) + "\n" == COMMENTED
    record(checkpoint, Change("alter", "n", weight=3.0))
    shown = created("n", registry_now(checkpoint))
    assert shown.startswith("CREATE MATERIALIZED VIEW n WITH (weight = 3) AS\nselect sym,")


def test_what_means_the_same_is_rewritten_and_nothing_restarts(checkpoint):
    lines(checkpoint, COMMENTED)
    before = registry_now(checkpoint).queries["n"]
    laid = layout(COMMENTED.replace("The dear ones", "Above ten"))
    rewritten = ["~ rewrite view dear", "~ rewrite materialized view n"]
    assert sorted(lines(checkpoint, laid, write=False), reverse=True) == rewritten
    refuse_changes(differences(definitions([*script(laid)]), registry_now(checkpoint), {}, None))
    lines(checkpoint, laid)
    assert lines(checkpoint, laid) == []
    registry = registry_now(checkpoint)
    assert registry.queries["n"].id == before.id
    assert "-- Above ten" in created("dear", registry)
    assert "GROUP BY" in created("n", registry)
    assert lines(checkpoint, laid.replace("COUNT(*)", "SUM(px)")) == ["~ alter materialized view n"]
    assert registry_now(checkpoint).queries["n"].id > before.id


def test_a_rewritten_text_keeps_the_time_zone_of_its_query(checkpoint):
    hours = "CREATE MATERIALIZED VIEW h AS SELECT HOUR(t) AS h FROM trade [NOW]"
    apply(checkpoint, definitions([*script(hours)]), {}, "Europe/Berlin", change=True)
    assert lines(checkpoint, hours.replace("HOUR(t)", "hour( t )")) == ["~ rewrite materialized view h"]
    assert registry_now(checkpoint).queries["h"].time_zone == "Europe/Berlin"


def test_a_query_keeps_its_lateness_with_another_text_and_its_statement_has_it(checkpoint):
    text = "SELECT sym, COUNT(*) AS n FROM trade GROUP BY sym"
    record(checkpoint, Change("create", "kept", text, lateness_us=300_000_000))
    record(checkpoint, Change("alter", "kept", f"{text} HAVING COUNT(*) > 1"))
    registry = registry_now(checkpoint)
    assert created("kept", registry).startswith("CREATE MATERIALIZED VIEW kept WITH (lateness = '5 minutes') AS\n")
    assert "Stream trade (time t, lateness 5 minutes)" in explain_among("kept", registry)
    assert "lateness" not in explain_among(text, registry)
    with pytest.raises(OptionError, match="lateness = 5 minutes, and the file has 6 minutes"):
        lines(checkpoint, created("kept", registry).replace("5 minutes", "6 minutes"))
    assert lines(checkpoint, created("kept", registry)) == ["~ rewrite materialized view kept"]
    with pytest.raises(QueryRefusedError, match="lateness of a query whose results cannot be corrected"):
        record(checkpoint, Change("alter", "kept", f"ISTREAM({text})"))
    with pytest.raises(OptionError, match="0 seconds or more"):
        record(checkpoint, Change("create", "before", text, lateness_us=-1))
