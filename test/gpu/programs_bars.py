# SPDX-License-Identifier: Apache-2.0
"""What people run, on a real GPU: python programs_bars.py --build BUILD --log FILE [PART...]. The jobs are
programs_jobs.py's and, of the last part, released_jobs.py's, whose heads say what they do.

  chain    a chain without a pool in CuPy: plain, with CuPy's pool, cudaMallocAsync and RMM's pool, and plain under the library
  tight    the same at 1 / --ratio of what it needs, natively with only so much memory free: which of them end?
  finder   the batch that accelerate's and Lightning's finders settle on with a budget and spill.limit: 25%, and the sizes that
           they try, beside the same with a budget of 5/4 and spill.mode: off
  llama    llama.cpp with a random model of 7.7 GiB: natively, with room for all, in each mode at 1 / --ratio, with as many
           layers on the GPU by its own -ngl as fit that; with a smaller model also with its unified memory, of which no more
           than 4 GiB are taken. Tokens/s; perplexity and greedy tokens beside native ones; its own offload computes on the
           CPU, and so differently. Its tools (llama-bench, llama-perplexity, llama-completion) and their libraries are ready
           in the folder --llama
  graphs   EMOGI's BFS and PageRank over a random graph of 400 million edges (3.2 GB on disk, 1.6 GB on the GPU): its way of
           plain memory natively, in each mode at 1 / --ratio and with no mode named, beside its own zero copy, which is managed
           memory that stays on the host. Its programs (bfs_32, pagerank_32) are ready in the folder --emogi
  meters   gpu-burn, which compares its products, and nvbandwidth, which compares what it copies: natively, with room for all
           and in each mode at 1 / --ratio. gpu_burn, compare.fatbin and nvbandwidth are ready in the folder --meters
  released the --programs twice natively, then in each mode at 1 / --ratio of what they need for --work seconds: losses and
           digests beside native ones. --at-once runs share the GPU, and so no times are compared

Rows and exit status: parts.py.
"""
import concurrent.futures
import json
import os
import re
import statistics

import bars
import harness
import parts
import released_jobs
from harness import UNITS

MODES = ["static", "exact", "fast"]
POOLS = ["pool", "async", "rmm"]
PLAIN_BAR, POOL_BAR = 0.5, 1.1
LAYERS, SMALL, PROMPT, TOKENS = 22, 9, 512, 32  # of llama.cpp's models
LAYER_BYTES = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 11008)
ALL_LAYERS = 99  # any number beyond what there are
NATIVE_SECONDS, START_SECONDS = 20, 150  # of a released program's steps; and what may come before them
LEAST_STEPS = 5
VERTICES, EDGES = 12_000_000, 400_000_000  # of EMOGI's graph
EMOGI = {"BFS, 64 searches": ["bfs_32", "-i", "64"],  # its authors, too, search from 64 sources
         "PageRank, 30 iterations": ["pagerank_32", "-i", "30"],
         "PageRank, 300 iterations": ["pagerank_32", "-i", "300", "-l", "0"]}
PLAIN_MEMORY, ZERO_COPY = "0", "2"  # what EMOGI's -m may be
BURN_MIB, BURN_SECONDS, BURN_ENDS = 1100, 12, 3  # of gpu-burn: its products, its work, and what it waits for a process then
BANDWIDTH_MIB = 512  # a buffer of nvbandwidth, which has three
BANDWIDTHS = ["host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "host_to_device_memcpy_sm", "device_to_host_memcpy_sm",
              "host_to_device_bidirectional_memcpy_ce", "device_local_copy"]


def times_of(output):
    """{rows: ms} of a chain, by its lines "each ROWS MS"."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "each":
            found.setdefault(int(words[1]), []).append(float(words[2]))
    return {rows: statistics.median(ms) for rows, ms in found.items()}


def rates_of(output):
    """(tokens/s of prompt, of decode), None where it is not known: of llama-bench -o jsonl."""
    found = {}
    for line in output.splitlines():
        if line.startswith("{"):
            said = json.loads(line)
            found[said["n_gen"] > 0] = said["avg_ts"]
    return found.get(False), found.get(True)


def layers_that_fit(need, budget):
    """What -ngl may be for a model that needs so much with all layers; its last layer, of which -ngl counts, is the output."""
    rest = need - LAYERS * LAYER_BYTES
    return max(0, min(LAYERS, int((budget - rest) / LAYER_BYTES))) + 1


def burnt(output):
    """(were all products of gpu-burn right, Gflop/s): of its last line of progress, and of what it says last."""
    lines = re.findall(r"proc'd: (-?\d+) \((\d+) Gflop/s\) +errors: (-?\d+)", output)
    wrong = [line for line in lines if int(line[0]) < 0 or int(line[2])]
    return bool(lines) and not wrong and "GPU 0: OK" in output, f"{len(lines)} lines, {lines[-1][1] if lines else 'no'} Gflop/s"


def worked_seconds(steps):
    """Of those after the first, in which the program loads."""
    return sum(steps.ms[released_jobs.WARM:]) / 1e3


def as_natively(natives, mode, run):
    """(is a released program's run equal to native ones, or stopped as fast may do, how). Runs: (harness.Run, bars.Steps)"""
    result, steps = run
    if mode == "fast" and harness.stopped(result):
        return True, "stopped, and told why"
    good, text = bars.losses_equal([native.losses for _, native in natives], steps.losses)
    first, second = (native.checks for native, _ in natives)
    wrong = [name for name in first.keys() & second.keys() & result.checks.keys()
             if first[name] == second[name] != result.checks[name]]
    text = f"{result.status}, {len(steps.losses)} steps, {text}, {', '.join(wrong) or 'no digest'} differs"
    return good and not wrong and result.status == "ok" and len(steps.losses) >= LEAST_STEPS, text


class Programs(parts.Parts):
    PARTS = {"chain": 60, "tight": 60, "finder": 300, "llama": 260, "graphs": 300, "meters": 200, "released": 3600}
    DEFAULT = ["chain", "tight", "finder"]

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

    # ---- llama.cpp ----

    def llama(self):
        folder = self.options.llama
        if not folder:
            self.add("llama.cpp", None, 0, "--llama says where it is")
            return
        model, text = (os.path.join(self.options.models, name) for name in ("spillway-test.gguf", "spillway-test.txt"))
        with open(text, "w") as file:
            file.write("".join(f"{number * number} of {number}. " for number in range(400)))
        try:
            self.run("model", self.python("programs_jobs.py", "model", model, "--layers", LAYERS), limit=60)
            self.with_model(model, text)
            self.run("model", self.python("programs_jobs.py", "model", model, "--layers", SMALL), limit=60)
            native = self.tools(model, text, "natively, small")
            self.compared(native, {"natively, small": native,
                                   "its own unified memory, small": self.tools(model, text, "unified, small", unified=True)})
        finally:
            for path in (model, text):
                if os.path.exists(path):
                    os.remove(path)

    def with_model(self, model, text):
        native = self.tools(model, text, "natively")
        if not native["perplexity"] or not native["tokens"]:
            self.add("llama.cpp natively", None, 0, native["status"])
            return
        sides = {"natively": native}
        ample = self.tools(model, text, "with room for all", {"spill.mode": "exact"})
        sides["exact, with room for all"] = ample
        need = ample["need"] or 0
        budget = need / self.options.ratio
        self.add("llama.cpp: device memory at most, GiB", need / UNITS["GiB"], None, f"budget {int(budget) >> 20} MiB")
        for mode in MODES if need else []:
            sides[mode] = self.tools(model, text, mode, parts.settings(mode, need, self.options.ratio))
        layers = layers_that_fit(need, budget)
        sides[f"its own offload, -ngl {layers}"] = self.tools(model, text, "offload", layers=layers)
        sides["natively again"] = self.tools(model, text, "again", rates=False)
        self.compared(native, sides)

    def compared(self, native, sides):
        for side, found in sides.items():
            own = side.startswith("its own offload")
            if found is not native:
                for what in ("perplexity", "tokens"):
                    self.add(f"llama.cpp, {side}: {what} as natively", float(found[what] == native[what]), None if own else 1,
                             f"{found[what]} for {native[what]}, {found['status']}", least=True)
        head = ["llama.cpp", "prompt, tokens/s", "decode, tokens/s", "perplexity", "greedy tokens", "spilled", "status"]
        harness.table([head] +
                      [[side, *found["rates"], found["perplexity"], found["tokens"][:8], found["spilled"], found["status"]]
                       for side, found in sides.items()])

    def tools(self, model, text, name, settings=None, layers=ALL_LAYERS, unified=False, rates=True):
        """What llama.cpp's tools say: perplexity and the digest of greedy tokens, "" where there is none, and rates."""
        own = ["-m", model, "-ngl", str(layers), "-t", str(os.cpu_count())]
        environment = {"LD_LIBRARY_PATH": self.options.llama + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
        if unified:
            environment["GGML_CUDA_ENABLE_UNIFIED_MEMORY"] = "1"

        def tool(which, *arguments, before=()):
            command = [*before, os.path.join(self.options.llama, which), *own, *arguments]
            return self.run(f"{which}, {name}", command, settings, environment, limit=self.options.tool_seconds)[0]

        measured = tool("llama-perplexity", "-f", text, "-c", "512", "-b", "512", "--chunks", "4", "-fit", "off")
        perplexity = re.search(r"Final estimate: PPL = (\S+)", measured.output)
        digest = ["bash", "-c", 'set -o pipefail; "$0" "$@" </dev/null | sha256sum']
        said = tool("llama-completion", "-p", "A long way", "-n", "64", "--temp", "0", "-no-cnv", "--ignore-eos", "-c", "512",
                    "-fit", "off", "-lv", "0", before=digest)
        tokens = re.search(r"^([0-9a-f]{64})  -$", said.output, re.MULTILINE)
        runs = [measured, said]
        found = {"rates": ("", "")}
        if rates:
            runs.append(tool("llama-bench", "-p", str(PROMPT), "-n", str(TOKENS), "-r", "3", "-o", "jsonl"))
            found["rates"] = tuple("n/a" if rate is None else f"{rate:.1f}" for rate in rates_of(runs[-1].output))
        bad = [run.status for run in runs if run.status != "ok"]
        return {**found, "perplexity": perplexity[1] if perplexity else "", "spilled": measured.spilled,
                "tokens": tokens[1] if tokens and said.status == "ok" else "", "need": bars.device_peak(measured.output),
                "status": ", ".join(bad) or "ok"}

    # ---- EMOGI ----

    def graphs(self):
        if not self.options.emogi:
            self.add("EMOGI", None, 0, "--emogi says where it is")
            return
        path = os.path.join(self.options.models, "spillway-test.bel")
        try:
            self.run("graph", self.python("programs_jobs.py", "graph", path, "--vertices", VERTICES, "--edges", EDGES), limit=60)
            for what, command in EMOGI.items():
                self.on_graph(what, path, *command)
        finally:
            for end in ".col", ".dst":
                if os.path.exists(path + end):
                    os.remove(path + end)

    def on_graph(self, what, path, program, *arguments):
        def side(name, memory, settings=None):
            """(iterations of each run, its ms, harness.Run)"""
            command = [os.path.join(self.options.emogi, program), "-f", path, "-t", "1", "-m", memory, *arguments]
            result, _ = self.run(f"{what}, {name}", command, settings, limit=60)
            found = re.findall(r"iteration +(\d+), time +([\d.]+) ms", result.output) if result.status == "ok" else []
            return [count for count, _ in found], [float(ms) for _, ms in found], result

        native, ms, result = side("natively", PLAIN_MEMORY)
        if not native:
            self.failed(f"{what}: natively", 1, result, least=True)
            return
        need = bars.device_peak(side("with room for all", PLAIN_MEMORY, {})[2].output) or 0
        sides = {"its zero copy": side("its zero copy", ZERO_COPY)}
        for name, settings in [(mode, parts.settings(mode, need, self.options.ratio)) for mode in MODES] + \
                [("no mode named", {"device.budget": f"{int(need / self.options.ratio) >> 20}MiB"})]:
            sides[name] = side(name, PLAIN_MEMORY, settings)
        for name, (counts, took, result) in sides.items():
            told = f"{sum(map(int, counts))} in {len(counts)} runs, {took[0]:.1f} to {took[-1]:.1f} ms" if counts else result.status
            self.good(f"{what}, {name}: as many iterations", counts == native, f"{told}, {sum(took):.1f} ms in all, "
                      f"natively {sum(ms):.1f}, spilled {result.spilled or 'n/a'}")
        times = {name: sum(took) for name, (counts, took, _) in sides.items() if counts}
        if {"its zero copy", "static"} <= times.keys():
            self.add(f"{what}: EMOGI's zero copy / static", times["its zero copy"] / times["static"], 0.95, least=True)
        if {"no mode named", *MODES} <= times.keys():
            best = min(MODES, key=times.get)
            self.add(f"{what}: no mode named / the best mode", times["no mode named"] / times[best], 1.10, best)

    # ---- meters ----

    def meters(self):
        folder = os.path.abspath(self.options.meters or "meters")
        burn = [os.path.join(folder, "gpu_burn"), "-c", os.path.join(folder, "compare.fatbin"),
                *map(str, ("-m", BURN_MIB, "-stts", BURN_ENDS, BURN_SECONDS))]
        self.metered("gpu-burn: no wrong product", burn, burnt)
        bandwidth = [os.path.join(folder, "nvbandwidth"), "-b", str(BANDWIDTH_MIB), "-t", *BANDWIDTHS]
        self.metered("nvbandwidth: what it copies is right", bandwidth, lambda output: (
            "Error" not in output and len(re.findall(r"^SUM ", output, re.MULTILINE)) == len(BANDWIDTHS),
            " ".join(re.findall(r"^SUM \S+ +([\d.]+)", output, re.MULTILINE))))

    def metered(self, what, command, judge):
        """judge: of what it prints, (is it right, rates)."""
        need = None
        for name in ("natively", "with room for all", *MODES):
            settings = None if name == "natively" else parts.settings(name, need, self.options.ratio) if need else {}
            result, _ = self.run(f"{what}, {name}", command, settings, limit=60)
            good, rates = judge(result.output)
            self.good(f"{what}, {name}", good and result.status == "ok",
                      f"{result.status}; {rates}; spilled {result.spilled or 'n/a'}")
            need = need or (bars.device_peak(result.output) if settings == {} else None)

    # ---- released programs ----

    def released(self):
        table = [["program", "needs, GiB", "native runs", *MODES, "least seconds"]]
        with concurrent.futures.ThreadPoolExecutor(self.options.at_once) as pool:
            firsts = {name: pool.submit(self.works, name) for name in self.options.programs}
            others = {}
            for name, first in firsts.items():
                need = first.result()[0].need
                sides = {"natively": None, **{mode: parts.settings(mode, need, self.options.ratio) for mode in MODES}}
                others[name] = {side: pool.submit(self.works, name, settings) for side, settings in sides.items()} if need else {}
            for name, runs in others.items():
                table.append(self.beside_native(name, firsts[name].result(), {side: run.result() for side, run in runs.items()}))
        harness.table(table)

    def works(self, name, settings=None):
        """(harness.Run, bars.Steps)"""
        seconds = self.options.work if settings else NATIVE_SECONDS
        command = self.python("released_jobs.py", name, "--seconds", seconds)
        return self.run(f"{name}, {settings or 'natively'}", command, settings, {"CUPY_CACHE_DIR": self.folder.name},
                        seconds + START_SECONDS)

    def beside_native(self, name, first, runs):
        """Adds a program's rows. Returns that of the table."""
        if not runs or runs["natively"][0].status != "ok":
            self.failed(f"{name}: natively", 1, (runs.get("natively") or first)[0], least=True)
            return [name, *6 * ["n/a"]]
        natives = [first, runs.pop("natively")]
        version = re.search(r"^version (.*)$", first[0].output, re.MULTILINE)
        row = [version[1] if version else name, f"{first[0].need / UNITS['GiB']:.1f}",
               bars.losses_equal([first[1].losses] * 2, natives[1][1].losses)[1]]
        for mode, (result, steps) in runs.items():
            good, text = as_natively(natives, mode, (result, steps))
            spills = result.spilled not in ("", "none")
            moved = " and ".join(f"{size / UNITS['GiB']:.0f}" for size in (bars.moved(result.output) or ())[:2])
            text += f", spilled {result.spilled or 'unknown'}, moved {moved or '0'} GiB in and out"
            self.good(f"{name}, {mode}: as natively", good and (spills or result.status != "ok"), text)
            self.add(f"{name}, {mode}: seconds of steps, {self.options.at_once} runs at once", worked_seconds(steps),
                     None if harness.stopped(result) else self.options.work, f"{len(steps.ms)} steps", least=True)
            row.append(("equal" if good else "DIFFERS") + f" {len(steps.losses)}, {result.spilled or result.status}")
        return [*row, f"{min(worked_seconds(steps) for _, steps in runs.values()):.0f}"]


def main():
    arguments = parts.parser()
    arguments.add_argument("--rows", type=lambda text: [int(word) for word in text.split(",")], default=[1 << 20, 1 << 22, 1 << 24])
    arguments.add_argument("--ratio", type=float, default=1.5)
    arguments.add_argument("--budget", type=int, default=20 << 10, help="of the finder, MiB")
    arguments.add_argument("--llama", default="", help="the folder of llama.cpp's tools")
    arguments.add_argument("--emogi", default="", help="the folder of EMOGI's programs")
    arguments.add_argument("--meters", default="", help="the folder of gpu-burn and nvbandwidth")
    arguments.add_argument("--models", default="/dev/shm", help="where the model and the graph are written")
    arguments.add_argument("--tool-seconds", type=float, default=45, help="for a tool of llama.cpp")
    arguments.add_argument("--programs", type=lambda text: text.split(","), default=list(released_jobs.PROGRAMS))
    arguments.add_argument("--work", type=float, default=60, help="s of a released program's steps in each mode")
    arguments.add_argument("--at-once", type=int, default=3, help="runs of released programs")
    parts.main(Programs, arguments)


if __name__ == "__main__":
    main()
