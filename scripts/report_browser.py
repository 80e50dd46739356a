#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw pages of `spillway report --html` in a headless Chromium, and judge them.

Usage: scripts/report_browser.py [-q] [-o FOLDER] FILE.html...

Needs Chromium (apt-get install chromium) and nothing else; exit status 77 where there is none. Each file is drawn at 1400 and
at 700 pixels, light and dark (-q: dark at 1400 and light at 700 alone); the pictures, for people to look at, go to FOLDER if one is given. A page fails when it loads
anything, when the console says anything, when something is wider than the window or cut off, when an axis does not end where
the data do, when totals differ from section to section, when parts of the run overlap, or when what costs most is not first.
"""
import argparse
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

WIDTHS = (1400, 700)
SCHEMES = ("light", "dark")
AXIS_MOST = 1.1  # an axis ends at most a tenth above the data

# Runs in the page, after it is drawn. Says what is wrong, a line each, and how much was looked at.
PROBE = r"""
/* A browser without a screen does not always draw frames, above all while its time is not the real one. */
window.requestAnimationFrame = draw => setTimeout(() => draw(performance.now()), 16);
window.addEventListener("error", event => { window.probe_errors = (window.probe_errors || []).concat(event.message); });
const probe = () => {
	const wrong = [], data = JSON.parse(document.getElementById("data").textContent);
	const runs = Array.isArray(data) ? data : [data], places = [...document.querySelectorAll(".run")];
	let looked = 0;
	const must = (good, what) => { looked++; good || wrong.push(what); };
	const near = (a, b) => Math.abs(a - b) <= 1e-6 * Math.max(Math.abs(a), Math.abs(b), 1);
	must(performance.getEntriesByName("report-ready").length, "the page is not drawn");
	must(places.length === runs.length, places.length + " runs are drawn, of " + runs.length);
	must(performance.getEntriesByType("resource").length === 0, "something was loaded");
	(window.probe_errors || []).forEach(error => must(false, "the console: " + error));

	/* ---- names of places in the program ---- */
	for (const [name, levels] of [["gpt.py:39 in forward", ["gpt.py", "forward", "line 39"]], ["a b.py in <module>", ["a b.py", "<module>"]],
		["train.py:7 in step [libcublas.so.13]", ["train.py", "step", "line 7", "[libcublas.so.13]"]],
		["train.py:7 in step [backward]", ["train.py", "step", "line 7", "[backward]"]],
		["libmodel.so:load_weights+0x1c", ["libmodel.so", "load_weights", "+0x1c"]], ["libmodel.so+0x4711", ["libmodel.so", "+0x4711"]],
		["lib.so:ns::f(int)+0x1", ["lib.so", "ns::f(int)", "+0x1"]], ["backward", ["backward"]], ["(not known)", ["(not known)"]], ["?", ["?"]]])
		must(flame.levels(name).join("|") === levels.join("|"), "levels of " + name + " are " + flame.levels(name).join("|"));

	must(flame.chain("a.py:3 in f", ["b.py:4 in g", "b.py:9 in main", "..."]).join("|") === "(further callers)|b.py:9 in main|b.py:4 in g|a.py:3 in f", "a chain is not drawn from the outside in");
	must(flame.chain("a.py:3 in f", []).join("|") === "a.py:3 in f" && flame.chain("a.py:3 in f", null).length === 3, "no callers are not drawn as such");

	/* ---- widths ---- */
	must(document.documentElement.scrollWidth <= innerWidth, "the page is " + document.documentElement.scrollWidth + " wide, of " + innerWidth);
	for (const element of document.querySelectorAll("body *")) {
		const box = element.getBoundingClientRect(), name = element.tagName + "." + element.className + " " + element.textContent.slice(0, 40);
		if (!box.width || element.closest(".scroll table, .flame"))
			continue;
		must(box.left >= 0 && box.right <= innerWidth + .5, "it leaves the window: " + name);
		if (!element.matches(".scroll, .row, .split, .meter, canvas") && getComputedStyle(element).overflowX === "visible")
			must(element.scrollWidth <= element.clientWidth + 1 || !element.clientWidth, "its text runs out: " + name);
	}
	for (const scroll of document.querySelectorAll(".scroll"))
		must(scroll.scrollWidth <= scroll.clientWidth + 1, "a table is " + scroll.scrollWidth + " wide, of " + scroll.clientWidth);

	runs.forEach((run, i) => {
		const $ = part => places[i].querySelector('[data-part="' + part + '"]');
		const all = key => run.devices.reduce((sum, device) => sum + device[key], 0);

		/* ---- axes ---- */
		for (const canvas of places[i].querySelectorAll("canvas[data-most]")) {
			const most = +canvas.dataset.most, axis = +canvas.dataset.axis, label = canvas.getAttribute("aria-label").slice(0, 30);
			must(most === 0 || (axis >= most * .999 && (runs.length > 1 || axis <= most * AXIS_MOST)), "an axis ends at " + axis + ", the data at " + most + ": " + label);
		}

		/* ---- totals ---- */
		const pieces = [...$("split").querySelectorAll(".split span")].map(piece => +piece.dataset.ns);
		must(!pieces.length || near(pieces.reduce((a, b) => a + b, 0), run.run_ns), "the parts of the run are " + pieces + ", of " + run.run_ns);
		const sums = {wait_ns: all("wait_ns"), bytes_in: all("bytes_in"), bytes_out: all("bytes_out")};
		for (const tab of $("tables").children) {
			tab.click();
			const foot = $("table").querySelector("tfoot tr:last-child");
			if (!["Rule", "Site"].includes(tab.textContent))
				continue;
			must(foot, "table " + tab.textContent + " has no sum");
			for (const td of foot ? foot.children : [])
				if (td.dataset.key in sums)
					must(near(+td.dataset.value, sums[td.dataset.key]), tab.textContent + ": " + td.dataset.key + " is " + td.dataset.value + ", of devices " + sums[td.dataset.key]);
		}
		const totals = {Waited: sums.wait_ns, Moved: sums.bytes_in + sums.bytes_out, Spilled: run.total.on_host + sums.bytes_out,
			"Brought back": run.total.managed_back};
		const order = [...$("measures").children];
		must(!run.sites.some(site => site.wait_ns) || order[0].textContent === "Waited", "the page does not open with waiting");
		must(!run.total.managed_back || order.some(tab => tab.textContent === "Brought back"), "nothing says what the CPU brought back");
		const chosen = order.find(tab => tab.getAttribute("aria-selected") === "true");
		for (const tab of order) {
			tab.click();
			const rows = [...$("flame").children], boxes = [...rows[0].children, ...(rows[1] ? rows[1].children : [])];
			must(rows.length > 1, tab.textContent + ": nothing is drawn on the whole");
			if (tab.textContent in totals)
				must(near(+$("flame").dataset.total, totals[tab.textContent]), tab.textContent + " is " + $("flame").dataset.total + ", not " + totals[tab.textContent]);
			const widths = boxes.slice(1).map(box => parseFloat(box.style.width));
			must(widths.reduce((a, b) => a + b, 0) <= 100.01, tab.textContent + ": boxes are wider than what they stand on");
		}
		if (chosen)
			chosen.click();

		/* ---- the table answers ---- */
		if ($("tables").children.length) {
			$("tables").children[0].click();
			const lines = () => $("table").querySelectorAll("tbody tr").length, before = lines();
			$("table").querySelectorAll("th button")[1]?.click();
			must($("table").querySelectorAll("th[aria-sort]").length === 1, "a column does not sort");
			$("filter").value = "no such name at all";
			$("filter").dispatchEvent(new Event("input"));
			must(lines() === 0, "the filter does not filter");
			$("filter").value = "";
			$("filter").dispatchEvent(new Event("input"));
			must(lines() === before, "the filter does not let go");
		}

		/* ---- what costs most is first ---- */
		const known = run.costs.map(cost => cost.ns ?? 0);
		must(known.every((ns, k) => !k || ns <= known[k - 1]), "the costs are not in order");
		must($("costs").children.length === run.costs.length, "a cost is missing");
		must($("lines").compareDocumentPosition($("over-time")) & 4, "what costs most does not stand before the charts");
	});
	return {wrong, looked};
};
setTimeout(function wait() {
	if (!performance.getEntriesByName("report-ready").length)
		return setTimeout(wait, 50);
	const out = document.createElement("pre");
	out.id = "probe";
	out.hidden = true;
	try {
		out.textContent = JSON.stringify(probe());
	} catch (error) {
		out.textContent = JSON.stringify({wrong: [String(error.stack)], looked: 0});
	}
	document.body.append(out);
}, 50);
"""

def chromium(folder, width, height, scheme, *arguments):
    command = [shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1",
               "--virtual-time-budget=20000", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr",
               f"--user-data-dir={folder}/profile", f"--window-size={width},{height}",
               f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=True)


def with_probe(text):
    """The file with the probe in it."""
    at = text.rindex("<script>")  # before the page's own script, so that its errors are heard
    return text[:at] + f"<script>const AXIS_MOST = {AXIS_MOST};{PROBE}</script>" + text[at:]


def judge(path, pictures, folder, quick):
    """Returns how many things were wrong."""
    text, failed = path.read_text(errors="replace"), 0
    for scheme in SCHEMES:
        for width in WIDTHS:
            if quick and (scheme == "dark") != (width == WIDTHS[0]):
                continue
            page = pathlib.Path(folder) / "page.html"
            page.write_text(with_probe(text))
            run = chromium(folder, width, 900, scheme, "--dump-dom", page.as_uri())
            found = re.search(r'<pre id="probe"[^>]*>(.*?)</pre>', run.stdout, re.S)
            result = json.loads(html.unescape(found[1])) if found else {"wrong": ["the page was not drawn"], "looked": 0}
            said = re.findall(r"CONSOLE.*?\] \"(.*?)\", source", run.stderr)
            wrong = result["wrong"] + ["the console: " + line for line in said] + ([] if result["looked"] else ["nothing was looked at"])
            print(f"{path.name} {width} px {scheme}: {result['looked']} checks, {len(wrong)} failed")
            for line in wrong[:20]:
                print("  FAILED: " + line)
            failed += len(wrong)
            if pictures:
                picture = pictures / f"{path.stem}-{width}-{scheme}.png"
                chromium(folder, width, 3600, scheme, f"--screenshot={picture}", path.resolve().as_uri())
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-q", action="store_true", help="half of it: dark at 1400, light at 700 pixels")
    parser.add_argument("-o", metavar="FOLDER", type=pathlib.Path, help="for the pictures")
    parser.add_argument("file", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    if not shutil.which("chromium"):
        print("there is no Chromium here: the pages were not looked at")
        return 77
    if arguments.o:
        arguments.o.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        failed = sum(judge(path, arguments.o and arguments.o.resolve(), folder, arguments.q) for path in arguments.file)
    return 1 if failed else 0


sys.exit(main())
