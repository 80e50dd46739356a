#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""picture.py FOLDER: draws two tables. FOLDER/larger-light.svg and larger-dark.svg: the jobs that need more memory than they
may have, of docs/results.md, and how many times its native time a step takes in each mode. growth-light.svg and
growth-dark.svg: what it takes to make an array on the GPU twice as long, in three ways."""
import sys
from html import escape
from math import log2
from pathlib import Path

HEAD = "| job, PART | natively | limit | `fast` | `exact` | bar |"
GROWTH = "docs/lab/2026-11-27-measurements.md"
GROWTH_HEAD = "| to | `spillway_grow` | the program's own, natively (under Spillway) | allocate, copy, free, natively (under Spillway) |"
COLORS = {"light": dict(back="#ffffff", text="#1f2328", line="#636c76", fast="#0072b2", exact="#d55e00"),
          "dark": dict(back="#0d1117", text="#e6edf3", line="#9198a1", fast="#56b4e9", exact="#e69f00")}
WIDTH, LEFT, TOP, ROW, UNIT = 760, 20, 66, 68, 56  # pixels; UNIT: of once the native time


def table(path, head):
    """The rows of the table with this head, as lists of cells."""
    lines = (Path(__file__).parent.parent / path).read_text().splitlines()
    for line in lines[lines.index(head) + 2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.split("|")[1:-1]]


def picture(color, height, title, inside):
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
           f'font-family="system-ui, sans-serif"><title>{escape(title)}</title>')
    yield f'<rect width="{WIDTH}" height="{height}" fill="{color["back"]}"/>'
    yield text(color, LEFT, 26, title, size=16)
    yield from inside
    yield "</svg>"


def text(color, x, y, words, fill="text", size=13):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color[fill]}">{escape(words)}</text>'


# ---- jobs that need more memory than they may have ----


def jobs():
    """For each row of the table: what it is, whether it fits natively, and its times in ms, as they stand there."""
    for job, *times in table("docs/results.md", HEAD):
        yield job.split("`")[0].rstrip(", "), "natively by halves" not in job, *times[:4]


def larger(color):
    rows = list(jobs())

    def line(x, y, dashes=""):
        return f'<path d="M{x:.1f} {y}v38" stroke="{color["text" if dashes else "line"]}" stroke-width="2"{dashes}/>'

    def inside():
        yield text(color, LEFT, 50, "■ fast", "fast")
        yield text(color, LEFT + 70, 50, "■ exact", "exact")
        yield text(color, LEFT + 150, 50, "│ native", "line")
        yield text(color, LEFT + 230, 50, "┊ the least that memory and link allow")
        for n, (job, fits, native, limit, *modes) in enumerate(rows):
            y = TOP + ROW * n
            yield text(color, LEFT, y + 12, job + ("" if fits else "; natively out of memory, 1 is extrapolated"))
            for i, (mode, time) in enumerate(zip(("fast", "exact"), modes)):
                ratio = float(time) / float(native)
                yield f'<rect x="{LEFT}" y="{y + 19 + 18 * i}" width="{UNIT * ratio:.1f}" height="15" fill="{color[mode]}"/>'
                yield text(color, LEFT + round(UNIT * ratio) + 6, y + 31 + 18 * i, f"{ratio:.2f} ({time} ms)", size=12)
            yield line(LEFT + UNIT, y + 17)
            yield line(LEFT + UNIT * float(limit) / float(native), y + 17, ' stroke-dasharray="4 3"')

    return picture(color, TOP + ROW * len(rows) + 12, "Jobs that need more memory than they may have: time of a step, native = 1", inside())


# ---- an array that grows ----


def growth(color):
    """Both axes are logarithmic."""
    rows = [row for row in table(GROWTH, GROWTH_HEAD) if row[0] != "all of them"]
    ways = ("fast", "spillway_grow", 0), ("line", "the program's own virtual memory", 140), ("exact", "allocate, copy, free", 400)
    left, bottom = LEFT + 60, TOP + 210

    def x(n):
        return left + n * (WIDTH - left - 180) / (len(rows) - 1)

    def y(us):
        return bottom - 22 * (log2(us) - log2(16))

    def inside():
        for us in (16, 64, 256, 1024, 4096):
            yield f'<path d="M{left} {y(us):.1f}H{x(len(rows) - 1):.1f}" stroke="{color["line"]}" stroke-width="0.5"/>'
            yield text(color, LEFT, y(us) + 4, f"{us} us", "line", 12)
        for n, row in enumerate(rows):
            yield text(color, x(n) - 20, bottom + 20, row[0], "line", 12)
        for i, (fill, what, at) in enumerate(ways):
            times = [float(row[1 + i].split()[0]) for row in rows]
            points = " ".join(f"{x(n):.1f},{y(us):.1f}" for n, us in enumerate(times))
            yield f'<polyline points="{points}" fill="none" stroke="{color[fill]}" stroke-width="2.5"/>'
            yield text(color, LEFT + at, 50, f"■ {what}", fill)
            yield text(color, x(len(rows) - 1) + 8, y(times[-1]) + 4, f"{times[-1]:g} us", fill, 12)

    return picture(color, bottom + 36, "An array on the GPU is made twice as long: time for one growth to that length", inside())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for drawn in larger, growth:
        for scheme, color in COLORS.items():
            Path(sys.argv[1], f"{drawn.__name__}-{scheme}.svg").write_text("\n".join(drawn(color)) + "\n")


main()
