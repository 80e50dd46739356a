#!/usr/bin/env python3
"""Load a page of `spillway report --html` in a headless Chromium, without a network, and judge it.

Usage: scripts/report_browser.py PAGE.html [FOLDER for screenshots]

Needs Chromium (apt-get install chromium) and Playwright (pip install playwright), so it is no part of `make test`. Fails
when the page asks for anything from a network, when the console has an error, when a part is missing, or when the page is
not drawn and does not answer within a second of its load. Screenshots are for people to look at.
"""
import json
import pathlib
import shutil
import sys

from playwright.sync_api import sync_playwright

INTERACTIVE_MS = 1000
READY = "performance.getEntriesByName('report-ready').length > 0"
LOAD = "performance.timing.loadEventEnd - performance.timing.navigationStart"


def complain(problems, good, what):
    print(("ok      " if good else "FAILED  ") + what)
    if not good:
        problems.append(what)


def measure(page):
    """Milliseconds from the start of the load to drawn, and from there to the answer to a pointer."""
    ready = page.evaluate("performance.getEntriesByName('report-ready')[0].startTime")
    parsed = page.evaluate("performance.timing.domInteractive - performance.timing.navigationStart")
    answer = page.evaluate("""() => new Promise(done => {
        const canvas = document.querySelector('#charts canvas'), box = canvas.getBoundingClientRect(), from = performance.now();
        canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 20}));
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - from)));
    })""")
    return ready, parsed, answer


def play(page, problems):
    """What people do: point, drag, choose tables, sort, filter."""
    canvas = page.locator("#charts canvas").first
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] * .5, box["y"] + 40)
    page.wait_for_timeout(100)
    complain(problems, page.locator(".legend b").first.inner_text() != "", "pointing at a chart shows figures")
    page.mouse.move(box["x"] + box["width"] * .4, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * .6, box["y"] + 40, steps=4)
    page.mouse.up()
    complain(problems, page.locator("#whole").is_visible(), "dragging looks closer")
    page.locator("#whole").click()
    complain(problems, not page.locator("#whole").is_visible(), "and a button goes back")
    for tab in page.locator("#tables button").all():
        tab.click()
        complain(problems, page.locator("#table tbody tr").count() > 0, "table " + tab.inner_text() + " has lines")
    page.locator("#tables button").first.click()
    before = page.locator("#table tbody tr").count()
    page.locator("#table th button").nth(1).click()
    complain(problems, page.locator("#table th[aria-sort]").count() == 1, "a column sorts")
    page.locator("#filter").fill("no such thing at all")
    complain(problems, page.locator("#table tbody tr").count() == 0, "the filter filters")
    page.locator("#filter").fill("")
    complain(problems, page.locator("#table tbody tr").count() == before, "and lets go")


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    path = pathlib.Path(sys.argv[1]).resolve()
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    problems, asked, errors = [], [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        print("browser", browser.version)
        for scheme in ("light", "dark"):
            context = browser.new_context(color_scheme=scheme, viewport={"width": 1360, "height": 900}, offline=True)
            page = context.new_page()
            page.on("request", lambda request: asked.append(request.url))
            page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(path.as_uri())
            page.wait_for_function(READY, timeout=20000)
            ready, parsed, answer = measure(page)
            print(json.dumps({"scheme": scheme, "drawn_ms": round(ready), "parsed_ms": round(parsed), "answer_ms": round(answer, 1),
                              "bytes": path.stat().st_size}))
            complain(problems, ready - parsed <= INTERACTIVE_MS and ready <= 2 * INTERACTIVE_MS and answer <= INTERACTIVE_MS,
                     f"{scheme}: drawn and answering within {INTERACTIVE_MS} ms of its load")
            if scheme == "light":
                play(page, problems)
            wide = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            complain(problems, wide, "nothing is wider than the window")
            if folder:
                page.mouse.move(700, 620)
                page.wait_for_timeout(150)
                page.screenshot(path=folder / f"report-{scheme}.png", full_page=True)
            context.close()
        narrow = browser.new_context(viewport={"width": 390, "height": 800}, offline=True)
        page = narrow.new_page()
        page.goto(path.as_uri())
        page.wait_for_function(READY, timeout=20000)
        complain(problems, page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits a telephone")
        if folder:
            page.screenshot(path=folder / "report-narrow.png", full_page=True)
        browser.close()
    complain(problems, asked == [path.as_uri()] * len(asked), "nothing was asked for but the page: " + str(len(asked)))
    complain(problems, not errors, "the console is quiet" + "".join("\n          " + error for error in errors))
    print(f"{len(problems)} failed")
    return 1 if problems else 0


sys.exit(main())
