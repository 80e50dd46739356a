#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""picture.py FOLDER: draws the table of jobs that need more memory than they may have, of docs/results.md: how many times
its native time a step takes in each mode. Writes FOLDER/larger-light.svg and larger-dark.svg."""
import sys
from html import escape
from pathlib import Path

HEAD = "| job, PART | natively | limit | `fast` | `exact` | bar |"
COLORS = {"light": dict(back="#ffffff", text="#1f2328", line="#636c76", fast="#0072b2", exact="#d55e00"),
          "dark": dict(back="#0d1117", text="#e6edf3", line="#9198a1", fast="#56b4e9", exact="#e69f00")}
WIDTH, LEFT, TOP, ROW, UNIT = 760, 20, 66, 68, 56  # pixels; UNIT: of once the native time


def jobs():
    """For each row of the table: what it is, whether it fits natively, and its times in ms, as they stand there."""
    lines = (Path(__file__).parent.parent / "docs/results.md").read_text().splitlines()
    for line in lines[lines.index(HEAD) + 2:]:
        if not line.startswith("|"):
            return
        job, *times = [cell.strip() for cell in line.split("|")[1:6]]
        yield job.split("`")[0].rstrip(", "), "natively by halves" not in job, *times


def drawn(color, rows):
    def text(x, y, words, fill="text", size=13):
        return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color[fill]}">{escape(words)}</text>'

    def line(x, y, dashes=""):
        return f'<path d="M{x:.1f} {y}v38" stroke="{color["text" if dashes else "line"]}" stroke-width="2"{dashes}/>'

    height = TOP + ROW * len(rows) + 12
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
           'font-family="system-ui, sans-serif"><title>Jobs that need more memory than they may have</title>')
    yield f'<rect width="{WIDTH}" height="{height}" fill="{color["back"]}"/>'
    yield text(LEFT, 26, "Jobs that need more memory than they may have: time of a step, native = 1", size=16)
    yield text(LEFT, 50, "■ fast", "fast")
    yield text(LEFT + 70, 50, "■ exact", "exact")
    yield text(LEFT + 150, 50, "│ native", "line")
    yield text(LEFT + 230, 50, "┊ the least that memory and link allow")
    for n, (job, fits, native, limit, *modes) in enumerate(rows):
        y = TOP + ROW * n
        yield text(LEFT, y + 12, job + ("" if fits else "; natively out of memory, 1 is extrapolated"))
        for i, (mode, time) in enumerate(zip(("fast", "exact"), modes)):
            ratio = float(time) / float(native)
            yield f'<rect x="{LEFT}" y="{y + 19 + 18 * i}" width="{UNIT * ratio:.1f}" height="15" fill="{color[mode]}"/>'
            yield text(LEFT + round(UNIT * ratio) + 6, y + 31 + 18 * i, f"{ratio:.2f} ({time} ms)", size=12)
        yield line(LEFT + UNIT, y + 17)
        yield line(LEFT + UNIT * float(limit) / float(native), y + 17, ' stroke-dasharray="4 3"')
    yield "</svg>"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = list(jobs())
    for scheme, color in COLORS.items():
        Path(sys.argv[1], f"larger-{scheme}.svg").write_text("\n".join(drawn(color, rows)) + "\n")


main()
