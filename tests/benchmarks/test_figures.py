"""The figures of the papers in short: each comes out, and has its shape."""

import pytest
from kit.programs import run_benchmark

REPORT = ["5", "7", "9", "12", "13", "13b", "14", "16", "17", "window-memory", "theory"]
THESIS = ["6-11", "6-12", "7-7", "8-7", "8-8", "8-9", "8-10", "8-11"]
OTHERS = ["bai-7", "bai-8", "bai-join", *(f"hammad-{number}" for number in range(5, 11))]
# Each takes 20 s or more on two cores.
LONG = {
    "bai-join", "hammad-9", "hammad-10", "tr620-5", "thesis-7-7", "thesis-8-7", "thesis-8-8", "thesis-8-9",
    "thesis-8-10", "thesis-8-11", "tr620-16",
}  # fmt: skip
NAMES = [*(f"tr620-{name}" for name in REPORT), *(f"thesis-{name}" for name in THESIS), *OTHERS]


@pytest.fixture(scope="module")
def drawn_once(tmp_path_factory):
    """Where the first test of a figure leaves what it drew."""
    return tmp_path_factory.mktemp("figures")


@pytest.fixture
def draw(benchmark_module, capsys):
    """Draws a figure in this process: one of its own takes longer to start than most figures do."""

    def run(*given):
        status = benchmark_module("figures").main([*map(str, given)])
        return status, capsys.readouterr().out

    return run


def test_names_one_a_line(draw):
    _, listed = draw("--list")
    assert {*NAMES, "slack-ais"} <= set(listed.splitlines())


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in NAMES])
def test_shape_is_that_of_the_paper(name, draw, drawn_once):
    status, printed = draw(name, "--quick", "--out", drawn_once / name)
    assert status == 0, printed
    assert "shape: as in the paper" in printed
    assert all(drawn.stat().st_size < 100_000 for drawn in (drawn_once / name).glob("*"))


@pytest.mark.parametrize("name", ["tr620-12", "bai-7"])
def test_the_same_is_drawn_by_each_process(name, draw, drawn_once, tmp_path):
    first = drawn_once / name
    if not first.exists():
        draw(name, "--quick", "--out", first)
    run_benchmark("figures", name, "--quick", "--out", tmp_path)
    one, other = ({each.name: each.read_bytes() for each in folder.iterdir()} for folder in (first, tmp_path))
    assert one
    assert one == other


@pytest.mark.parametrize("name", ["thesis-6-15", "thesis-6-19", "thesis-7-6"])
def test_shape_holds_where_processor_time_is_drawn_too(name, tmp_path):
    done = run_benchmark("figures", name, "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "shape: as in the paper" in done.stdout


def test_the_figure_that_differs_is_reported(draw):
    """Where it is otherwise than in the thesis is on the page, and its other checks hold."""
    status, printed = draw("thesis-6-10", "--quick")
    assert status == 1
    assert printed.count("shape differs") == 1


@pytest.mark.parametrize("name", ["slack-ais", "slack-dns", "adaptive"])
def test_recorded_streams_are_drawn_or_skipped_with_a_reason(name, draw):
    status, printed = draw(name, "--quick")
    assert status == 0, printed
    assert "shape: as in the paper" in printed or "is not there" in printed


def test_unknown_figure_is_refused_by_name(draw, capsys):
    with pytest.raises(SystemExit) as stopped:
        draw("tr620-6")
    assert stopped.value.code == 2
    assert "tr620-7" in capsys.readouterr().err
