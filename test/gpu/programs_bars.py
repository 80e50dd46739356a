"""What people run, on a real GPU: python programs_bars.py --build BUILD --log FILE [PART...]. The jobs are programs_jobs.py's, whose head says what they do.

  chain    a chain without a pool in CuPy: plain, with CuPy's pool, cudaMallocAsync and RMM's pool, and plain under the library
  tight    the same at 1 / --ratio of what it needs, natively with only so much memory free: which of them end?
  finder   the batch that accelerate's and Lightning's finders settle on with a budget and spill.limit: 25%, and the sizes that
           they try, beside the same with a budget of 5/4 and spill.mode: off

Rows and exit status: parts.py.
"""
import statistics

import parts
from harness import UNITS

MODES = ["static", "exact", "fast"]
POOLS = ["pool", "async", "rmm"]
PLAIN_BAR, POOL_BAR = 0.5, 1.1


def times_of(output):
    """{rows: ms} of a chain, by its lines "each ROWS MS"."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "each":
            found.setdefault(int(words[1]), []).append(float(words[2]))
    return {rows: statistics.median(ms) for rows, ms in found.items()}


class Programs(parts.Parts):
    PARTS = {"chain": 60, "tight": 60, "finder": 80}
    DEFAULT = list(PARTS)

    def __init__(self, options):
        super().__init__(options)
        self.plain = None

    def good(self, what, good, text):
        self.add(what, float(good), 1, text, least=True)

    # ---- a chain without a pool ----

    def chain_of(self, allocator, rows, settings=None, leave=0):
        """(harness.Run, {rows: ms})"""
        command = self.python("programs_jobs.py", "chain", allocator, "--rows", ",".join(map(str, rows)), "--leave", leave)
        name = f"chain, {allocator}, {settings or 'natively'}"
        result, _ = self.run(name, command, settings, {"CUPY_CACHE_DIR": self.folder.name})
        return result, times_of(result.output)

    def natively_plain(self):
        """(harness.Run, {rows: ms}), measured once."""
        if not self.plain:
            self.plain = self.chain_of("plain", self.options.rows)
        return self.plain

    def chain(self):
        first, plain = self.natively_plain()
        if first.status != "ok":
            self.failed("natively, plain", 1, first, least=True)
            return
        for rows, ms in plain.items():
            self.add(f"{rows} rows: natively, plain", ms, None, unit=" ms")
        best = {}
        for allocator in POOLS:
            result, best[allocator] = self.chain_of(allocator, self.options.rows)
            self.beside(f"natively, {allocator}", result, best[allocator])
        for mode in MODES:
            result, ms = self.chain_of("plain", self.options.rows, {"spill.mode": mode})
            self.beside(f"under Spillway, plain, {mode}", result, ms, PLAIN_BAR)
            for rows in ms.keys() & best["pool"].keys():
                self.add(f"{rows} rows: under Spillway, plain, {mode} / CuPy's pool", ms[rows] / best["pool"][rows], POOL_BAR)

    def beside(self, what, result, ms, bar=None):
        """Rows of a chain / natively plain."""
        first, plain = self.natively_plain()
        if result.status != "ok":
            self.failed(what, bar, result)
            return
        wanted = {name: text for name, text in first.checks.items() if name in result.checks}
        self.good(f"{what}: tables equal", bool(wanted) and wanted == result.checks, f"{len(wanted)} of {len(result.checks)}")
        for rows in ms:
            self.add(f"{rows} rows: {what} / natively plain", ms[rows] / plain[rows], bar, f"{ms[rows]:.1f} ms")

    def tight(self):
        rows = self.options.rows[-1:]
        counted, _ = self.chain_of("count", rows)
        if self.natively_plain()[0].status != "ok" or not counted.need:
            self.failed("natively: what it needs", 1, counted, least=True)
            return
        budget = int(counted.need / self.options.ratio)
        self.add("what is alive at most, GiB", counted.need / UNITS["GiB"], None, f"budget {budget >> 20} MiB")
        for allocator in ["plain", *POOLS]:
            result, ms = self.chain_of(allocator, rows, leave=budget)
            self.ended(f"natively, {allocator}, {budget >> 20} MiB free", result, ms, None)
        for mode in MODES:
            result, ms = self.chain_of("plain", rows, parts.settings(mode, counted.need, self.options.ratio))
            self.ended(f"under Spillway, plain, {mode}", result, ms, 1)

    def ended(self, what, result, ms, bar):
        self.add(f"{what}: ended", float(result.status == "ok"), bar, f"{result.status}, spilled {result.spilled}", least=True)
        if result.status == "ok":
            self.beside(what, result, ms)

    # ---- out of memory as an answer ----

    def finder(self):
        size = self.options.budget
        for name in ("accelerate", "lightning"):
            native, _ = self.finds(name, {"device.budget": f"{size * 5 // 4}MiB", "spill.mode": "off"})
            if native.status != "ok":
                self.failed(f"{name}, {size * 5 // 4} MiB, off", 1, native, least=True)
                continue
            self.add(f"{name}: batch with {size * 5 // 4} MiB, off", float(native.checks["found"]), None, native.checks["tries"])
            for mode in MODES:
                limited = {"device.budget": f"{size}MiB", "spill.limit": "25%", "spill.mode": mode}
                result, _ = self.finds(name, limited)
                same = result.status == "ok" and result.checks == native.checks
                self.good(f"{name}: {size} MiB, spill.limit 25%, {mode}: the same batch by the same tries", same,
                          f"{result.status}, {result.checks.get('found')}, {result.checks.get('tries')}, spilled {result.spilled}")

    def finds(self, name, settings):
        return self.run(f"{name}, {settings}", self.python("programs_jobs.py", "finder", name), settings)


def main():
    arguments = parts.parser()
    arguments.add_argument("--rows", type=lambda text: [int(word) for word in text.split(",")], default=[1 << 20, 1 << 22, 1 << 24])
    arguments.add_argument("--ratio", type=float, default=1.5)
    arguments.add_argument("--budget", type=int, default=20 << 10, help="of the finder, MiB")
    parts.main(Programs, arguments)


if __name__ == "__main__":
    main()
