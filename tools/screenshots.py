"""Draw the pictures of the workbench: ``make screenshots [PAGES=queries]`` writes docs/figures/workbench-*.png.

Tables in the states of a query are made without Spark, and Chromium opens a page of each.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from kit.browser import WorkbenchServer, browser_program, chromium
from kit.scenes import Scene, every_state, hosted_job

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
PICTURES = {
    "tables": "",
    "overview": "overloaded",
    "freshness": "running",
    "inputs": "late",
    "plan": "running",
    "why": "running",
    "top": "overloaded",
    "table": "running",
    "whatif": "overloaded",
    "control": "running",
    "letters": "running",
    "queries": "running",
}
STATIC = Path(__file__).resolve().parents[1] / "workbench" / "static" / "pages"
DARK = {"freshness", "inputs"}
SIZE = {"width": 1100, "height": 700}
TALL = {"queries": 1000}
COLOURS = 64


def draw(folder: Path, program: str, wanted: Collection[str]) -> None:
    """Make the tables in a folder, and a picture of each page, or of the `wanted` ones."""
    states = every_state(folder, batches=90)
    hosted_job(folder / "job")
    done = threading.Event()
    thread = threading.Thread(target=_commit, args=(states["running"], [states["late"], states["overloaded"]], done))
    thread.start()
    server = WorkbenchServer(folder).start()
    try:
        with chromium(program) as browser:
            present = {page.stem for page in STATIC.glob("*.js")}
            for name, table in PICTURES.items():
                if name not in present or (wanted and name not in wanted):
                    continue
                scheme = "dark" if name in DARK else "light"
                _picture(browser, server, name, table, scheme)
    finally:
        done.set()
        thread.join()
        server.kill()


def _commit(scene: Scene, others: Sequence[Scene], done: threading.Event) -> None:
    while not done.wait(1):
        scene.now_us += 1_000_000
        scene.step()
        for each in (scene, *others):
            each.hold()


def _picture(browser: Any, server: WorkbenchServer, name: str, table: str, scheme: str) -> None:
    context = browser.new_context(viewport={**SIZE, "height": TALL.get(name, SIZE["height"])}, color_scheme=scheme)
    page = context.new_page()
    page.goto(server.address)
    query = f"?table={table}&vehicle_id=1&name=routes" if table else ""
    page.goto(f"http://127.0.0.1:{server.port}/#/{name}{query}")
    page.wait_for_selector(f"main [data-page={name}][data-ready]")
    page.wait_for_timeout(1_500)  # charts and transitions
    page.evaluate("scrollTo(0, 0)")
    file = FIGURES / f"workbench-{name}.png"
    file.write_bytes(page.screenshot())
    _reduce(file)
    print(f"{file.name}: {file.stat().st_size / 1024:.0f} KiB, {scheme}")
    context.close()


def _reduce(file: Path) -> None:
    """Reduce a picture to a palette; matplotlib brings Pillow."""
    from PIL import Image

    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


def main() -> None:
    """Draw all, or end with a sentence."""
    program = browser_program()
    if program is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    folder = Path(tempfile.mkdtemp())
    try:
        draw(folder, program, sys.argv[1:])
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
