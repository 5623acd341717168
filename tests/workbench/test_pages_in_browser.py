"""Every page in a real Chromium: without errors, narrow and wide, light and dark, and with each commit at once."""

import os
import threading
from pathlib import Path

import pytest
from kit.browser import WorkbenchServer, browser_program, chromium
from kit.scenes import Scene, every_state, hosted_job
from kit.sink import Sink
from kit.waiting import wait_for
from starlette.routing import Route

from upstream.conf.process_identity import Process
from upstream.core.feedback.checkpoint_layout import SparkApplication
from upstream.storage.folder import TableFolder
from upstream.workbench.server import create_app
from upstream.workbench.watch import Watch

PROGRAM = browser_program()
PAGES = (
    "tables",
    "overview",
    "freshness",
    "inputs",
    "plan",
    "why",
    "queries",
    "top",
    "table",
    "whatif",
    "control",
    "letters",
)
ROWS = 1_000_000
WAIT = 300_000  # ms: a busy machine is no reason to fail

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def live(folder):
    """A table to which a thread commits."""
    every_state(folder, batches=8)
    hosted_job(folder / "job")
    large = Sink(folder / "large", system=False, options={"key": "k", "eventTime": "t", "buckets": "16"})
    for batch in range(2):
        keys = range(batch * ROWS // 2, (batch + 1) * ROWS // 2)
        large.batch(batch, [large.rows([(key, key, "v") for key in keys])])
    hostile = Sink(folder / "hostile", query_id="query-2")
    text = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    hostile.batch(0, [hostile.rows([(1, 1, text)], feed="<b>feed</b>")])
    return Scene(folder, name="positions", query_id="live").history(8).hold(lease_s=3600)


@pytest.fixture(scope="module")
def server(folder, live):
    server = WorkbenchServer(folder).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def browser():
    with chromium(PROGRAM) as browser:
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, server):
    """Opens a page of a table, and fails the test if the browser's console has an error."""
    contexts, errors = [], []

    def opened(name, table="positions", width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(server.address)
        page.goto(f"http://127.0.0.1:{server.port}/#/{name}?table={table}")
        page.wait_for_selector(f"[data-page={name}][data-ready]", timeout=WAIT)
        return page

    opened.errors = errors
    yield opened
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def committing(live):
    """Lets the table have a commit each half second."""
    done = threading.Event()

    def commit():
        while not done.wait(0.5):
            live.now_us += 500_000
            live.step()

    thread = threading.Thread(target=commit)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.mark.parametrize(("width", "scheme"), [(420, "dark"), (1280, "light")])
def test_every_page_has_its_content_and_no_error_while_commits_come(opened, committing, width, scheme):
    page = opened("overview", width=width, scheme=scheme)
    present = [each.get_attribute("data-page") for each in page.query_selector_all("#pages a")]
    assert {"overview", "freshness", "inputs", "top", "table", "whatif", "letters"} <= {*present} <= {*PAGES}
    for name in present:
        page.click(f"#pages a[data-page={name}]")
        page.wait_for_selector(f"main [data-page={name}][data-ready]", timeout=WAIT)
        assert page.query_selector("main .problem") is None, page.inner_text("main")
        assert len(page.inner_text(f"main [data-page={name}]")) > 40, name
        across = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert across <= 0, f"{name} is wider than the screen"
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(15, 19, 23)") == (scheme == "dark")


def test_spark_has_a_link_on_each_page_while_it_runs_and_nothing_else_is_a_link(opened, live):
    checkpoint = TableFolder(str(live.checkpoint))
    SparkApplication("app", "http://127.0.0.1:4040/", (Process.of(os.getpid()),)).write(checkpoint)
    page = opened("inputs")
    page.wait_for_selector("#spark[href]", timeout=WAIT)
    assert page.get_attribute("#spark", "href") == "http://127.0.0.1:4040/"
    other = {"spark": "javascript:alert(1)"}
    page.route("**/api/v1/overview*", lambda route: route.fulfill(json={**route.fetch().json(), **other}))
    page.route("**/api/v1/events*", lambda route: route.abort())
    page.reload()
    page.wait_for_selector("[data-page=inputs][data-ready]", timeout=WAIT)
    page.wait_for_function("document.getElementById('place').textContent", timeout=WAIT)
    assert (page.get_attribute("#spark", "href"), page.is_visible("#spark")) == (None, False)
    opened.errors.clear()  # the events that were kept from it


def test_rows_of_an_edge_of_the_plan_come_with_the_batch_that_takes_the_request(opened, committing):
    page = opened("plan")
    page.wait_for_selector(".flame .unmeasured", state="attached", timeout=WAIT)
    page.press("[data-to='table:positions']", "Enter")
    page.click(".plan-sample:last-child button")
    page.wait_for_selector(".plan-sample:last-child td", timeout=WAIT)
    assert "speed" in page.inner_text(".plan-sample:last-child thead")
    assert "requested by change 1" in page.inner_text(".plan-sample:last-child")


def test_a_part_of_hosted_queries_has_its_cost_and_is_asked_for_rows(opened):
    page = opened("queries", table="routes")
    page.click("td a:text-is('fast')")
    page.wait_for_selector("text=its share of", timeout=WAIT)
    assert "Dropping the query frees nothing." in page.inner_text(".query-detail")
    page.wait_for_selector(".query-results td[title='16.099999999999998']:text-is('16.1')", timeout=WAIT)
    page.click(".query-detail a:text-is('plan')")
    page.wait_for_selector(".flame .depth-3", state="attached", timeout=WAIT)
    page.press("[data-to='query:fast']", "Enter")
    page.click(".plan-sample button")
    page.wait_for_selector("text=The next batch with rows takes the request.", timeout=WAIT)


def test_each_state_is_told_in_words(opened):
    page = opened("overview")
    for state in ("running", "late", "overloaded", "failed", "ended"):
        page.evaluate(f"location.hash = '#/overview?table={state}'")
        page.wait_for_selector(f".verdict[data-state={state}]", timeout=WAIT)
        assert page.inner_text("#state") == state
        assert page.inner_text(".verdict .sentence").endswith(".")
        if state in ("failed", "ended"):  # its figures are of the past: grey, and none is good
            assert page.locator(".tile.past").count()
            assert not page.locator(".tile.good").count()


def test_a_commit_is_on_the_page_at_once_and_none_is_missed_while_the_server_is_away(opened, live, server):
    page = opened("overview")
    page.wait_for_selector("body[data-live=live]", timeout=WAIT)

    def shown():
        cells = page.query_selector_all("main tbody td:first-child")
        return [int(each.inner_text().replace(",", "")) for each in cells]

    def commit():
        live.now_us += 1_000_000
        live.step()
        return live.version()

    version = commit()
    page.wait_for_selector(f"body[data-version='{version}']", timeout=WAIT)
    assert shown()[0] == version
    server.kill()
    page.wait_for_selector("body[data-live=offline]", timeout=WAIT)
    opened.errors.clear()  # the browser reports each attempt that finds no server
    missed = [commit() for _ in range(3)]
    server.start()
    page.wait_for_selector("body[data-live=refused]", timeout=WAIT)
    page.context.new_page().goto(server.address)
    page.wait_for_selector("body[data-live=live]", timeout=WAIT)
    page.wait_for_selector(f"body[data-version='{missed[-1]}']", timeout=WAIT)
    assert shown()[:4] == [*reversed(missed), version]
    opened.errors.clear()
    assert commit() == missed[-1] + 1
    page.wait_for_selector(f"body[data-version='{missed[-1] + 1}']", timeout=WAIT)


def test_a_page_that_is_open_before_there_is_a_table_shows_it(browser, tmp_path):
    server, errors = WorkbenchServer(tmp_path).start(), []
    page = browser.new_page()
    page.on("console", lambda message: message.type == "error" and errors.append(message.text))
    try:
        page.goto(server.address)
        page.wait_for_selector("text=No table yet", timeout=WAIT)
        page.wait_for_selector("body[data-live=live]", timeout=WAIT)
        Scene(tmp_path).history(2).hold(lease_s=3600)
        page.wait_for_selector(".verdict[data-state=running]", timeout=WAIT)
    finally:
        page.close()
        server.kill()
    assert errors == []


@pytest.mark.parametrize("width", [420, 1280])
def test_the_first_page_lists_the_tables_and_a_filter_leads_to_one(opened, live, width):
    page = opened("tables", table="", width=width)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.wait_for_selector("thead + tbody .state-failed", timeout=WAIT)
    assert "Process 4711 has ended." in page.inner_text("thead + tbody")
    assert [each.inner_text() for each in page.query_selector_all("#pages a:visible")] == ["Tables"]
    page.press("body", "t")
    page.keyboard.type("fai")
    page.keyboard.press("Enter")
    page.wait_for_selector("main [data-page=overview][data-ready]", timeout=WAIT)
    assert page.inner_text("#table") == "failed"
    page.wait_for_selector("#state .state-failed", timeout=WAIT)
    page.evaluate("scrollTo(0, 400)")
    page.click("#table")
    page.wait_for_selector("main [data-page=tables][data-ready]", timeout=WAIT)
    assert page.evaluate("scrollY") == 0
    page.focus("a:text-is('positions')")
    page.keyboard.press("Enter")
    page.wait_for_selector("main [data-page=overview][data-ready]", timeout=WAIT)
    assert page.inner_text("#table") == "positions"


def test_keys_lead_to_pages_and_a_pause_holds_updates(opened, live):
    page = opened("overview")
    page.keyboard.press("?")
    assert "Freshness" in page.inner_text("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="hidden", timeout=WAIT)
    page.keyboard.press("f")
    page.wait_for_selector("main [data-page=freshness][data-ready]", timeout=WAIT)
    page.keyboard.press("[")
    page.wait_for_selector("main [data-page=overview][data-ready]", timeout=WAIT)
    page.keyboard.press(".")
    page.wait_for_selector("body[data-live=paused]", timeout=WAIT)
    live.now_us += 1_000_000
    live.step()
    page.keyboard.press(".")
    wait_for(lambda: page.inner_text("main .grid tbody td") == str(live.version()))


def test_a_table_of_a_million_keys_is_looked_into(opened):
    page = opened("table", table="large/table")
    page.fill("#where", "k = 700001 OR t = 3")
    page.press("#where", "Enter")
    wait_for(lambda: "700001" in page.query_selector_all("main .grid")[0].inner_text())
    assert "2 rows of 1.00 M" in page.inner_text("main")
    page.fill("#key", "999999")
    page.press("#key", "Enter")
    wait_for(lambda: "999999" in page.query_selector_all("main .grid")[1].inner_text())


def test_whatever_is_opened_the_server_stays_small(server, folder):
    routes = create_app(Watch([str(folder)], {}), token="t").routes
    plain = [each.path for each in routes if isinstance(each, Route) and "GET" in (each.methods or ())]
    plain = [each for each in plain if "{" not in each and each != "/api/v1/events"]
    assert len(plain) > 20
    large = [f"table/{each}" for each in ("keys?key=k=7", "rows?where=v>'a' AND k>7")] + ["why?key=k=7"]
    queries = ("queries/fast", "queries/fast/results", "plan?job=cp&root=query:fast")
    for path in (
        *(f"{each}?table=positions&text=SELECT speed FROM LATEST(buses)" for each in plain),
        *(f"/api/v1/{each}&table=large/table" for each in large),
        *(f"/api/v1/{each}" for each in queries),
    ):
        answer = server.get(path)
        assert answer.status_code == 200 or path.startswith("/healthz"), f"{path}: {answer.text}"
    process = Path(f"/proc/{server.process.pid}")
    held = (process / "smaps_rollup").read_text()
    assert int(held.partition("Rss:")[2].split()[0]) < 130_000, held
    mapped = (process / "maps").read_text()
    assert [each for each in ("pyarrow", "polars", "deltalake", "pandas") if f"/{each}" in mapped] == ["pyarrow"]


def test_text_of_a_table_is_never_markup(opened):
    page = opened("table", table="table")
    assert "<script>" in page.inner_text("main")
    assert page.query_selector("main img, main script, main b") is None


def test_a_query_is_created_changed_and_dropped_and_another_browser_follows(opened):
    page, other = opened("queries"), opened("queries")
    page.click("button:text-is('new query')")
    page.fill("input[aria-label=name]", "mean")
    page.type("textarea", "SELECT AVG(spe")
    page.keyboard.press("Tab")
    page.type("textarea", ") AS mean FROM LATEST(bus")
    page.keyboard.press("Tab")
    assert page.input_value("textarea") == "SELECT AVG(speed) AS mean FROM LATEST(buses"
    page.type("textarea", ") WHERE sped > 1")
    page.click("button:text-is('create')")
    page.wait_for_selector("text=Line 1, column 52", timeout=WAIT)
    page.keyboard.type("speed")  # the mistake is selected
    opened.errors.clear()  # the console has the refused request
    page.click("button:text-is('explain')")
    page.wait_for_selector(".plan-picture svg", timeout=WAIT)
    page.click("button:text-is('create')")
    page.wait_for_selector("h2:text-is('mean')", timeout=WAIT)
    other.click("td a:text-is('mean')", timeout=WAIT)
    page.fill(".query-detail [aria-label=weight]", "3")
    page.click("button:text-is('set')")
    page.wait_for_selector("text=The next batch takes the weight.", timeout=WAIT)
    other.wait_for_selector("text=It has changed.", timeout=WAIT)
    assert other.input_value(".query-detail [aria-label=weight]") == "3"
    other.click("button:text-is('pause the query')")
    page.wait_for_selector("button:text-is('resume the query')", timeout=WAIT)
    page.click("button:text-is('drop')")
    page.click("dialog button:text-is('drop')")
    for each in (page, other):
        each.wait_for_selector("text=mean was dropped.", timeout=WAIT)
    opened.errors[:] = [each for each in opened.errors if "404" not in each]  # the last look for its results
