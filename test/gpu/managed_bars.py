# SPDX-License-Identifier: Apache-2.0
"""Programs with managed memory of their own, on a real GPU: python managed_bars.py --build BUILD --log FILE [PART...].

  programs   each with ample memory on the heap, twice natively, and on the heap with 2/3 of what it used, in `exact` and
             `fast`. Results are compared bit for bit, as far as two native runs are equal. "line": it was stopped with the
             line that says that the CPU used what the GPU has, which is right for programs that need that access.
             --only NAME,...: these programs alone
  reserve    an allocation of twice the card's memory (--card), of which 1 GiB is used by copies and sets; and one of 3 GiB
             that a kernel gets
  times      a training step (gpt.py, its allocator that of managed_samples.cu) in memory: managed on the heap / managed
             natively with all of it prefetched
  over       the same at 1.5, in `fast`: managed / plain memory on the heap; a larger one by --over
  words      the CPU reads a word after each of 1,000 kernels, of 0.1, 1 and 5 ms: on the heap / a copy of it there; and /
             natively

The driver is not to have more than 3 GiB of managed memory, which can hang a GPU: what the heap refuses is refused, and a
program runs natively only if what it takes is known, or its run on the heap has shown it.

Rows and exit status: parts.py; behind them a table of the programs.
"""
import atexit
import concurrent.futures
import contextlib
import os
import re
import statistics
import threading
from dataclasses import dataclass, field

import bars
import harness
import parts
from harness import UNITS

LINE = "THE CPU USED MANAGED MEMORY THAT THE GPU HAS"
POLICY = """version: 1
include: heap
rules:
  - name: managed to heap
    match: {api: managed}
    use: heap
    fallback: deny
"""
AMPLE = {"device.budget": "8GiB"}
MOST_NATIVELY = 3  # GiB
SHAPE = ["768", "6", "2"]  # gpt.py's width, layers and batch
MODES = ["exact", "fast"]
HEAD = ["program", "managed", "natively", "ample", *[f"2/3 {mode}" for mode in MODES]]
SAMPLES = ["vector", "refill", "gradient", "advise"]
XLA = {"TF_FORCE_UNIFIED_MEMORY": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.02"}


@dataclass
class Program:
    command: list
    environment: dict = field(default_factory=dict)
    line: bool = False  # its CPU needs access after the GPU's first use
    gigabytes: int = 1  # at most, natively
    known: bool = True


def on_use(output):
    """(taken, unused at most) of memory that is taken on use, in bytes, by the summary; None: it says nothing of that."""
    found = re.search(r"^spillway: +place: on-use: (.*?) taken, (.*?) unused at most", output, re.MULTILINE)
    return found and tuple(bars.bytes_in(text) for text in found.groups())


def used(output):
    """Bytes of the heap at most, by the summary; 0: it does not say."""
    return (bars.device_peak(output) or 0) + (bars.host_peak(output) or 0)


def why(result):
    """The line that says most about a bad end."""
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    lines = [line for line in lines if re.search("error|refused|in transit|no memory", line, re.IGNORECASE)] or lines
    return f"{result.status}: {lines[-1][:100] if lines else ''}"


def judge(natives, result):
    """(what a cell says, is it right?)"""
    if "ModuleNotFoundError" in result.output:
        return "not installed", True
    if LINE in result.output:
        return "line", True
    if result.status != "ok":
        return f"error: {why(result)}", False
    text = harness.compare(*natives, result)
    return {"bit for bit": "equal"}.get(text, text), not text.startswith(("DIFFERS", "no result"))


class Managed(parts.Parts):
    PARTS = {"programs": 280, "reserve": 45, "times": 120, "over": 240, "words": 70}
    DEFAULT = list(PARTS)

    def __init__(self, options):
        super().__init__(options)
        self.room, self.natively = threading.Condition(), 0
        self.policy = os.path.join(self.folder.name, "managed.yaml")
        with open(self.policy, "w") as file:
            file.write(POLICY)
        self.samples, self.plug = (os.path.join(self.folder.name, name) for name in ("managed_samples", "managed_plug.so"))
        source = os.path.join(options.scripts, "managed_samples.cu")
        for target, more in (self.samples, []), (self.plug, ["-shared", "-Xcompiler", "-fPIC"]):
            self.run("build", [options.nvcc, "-O2", "-arch=native", *more, "-o", target, source])

    def programs_of(self):
        """{name: Program}"""
        found = {}
        for name in SAMPLES:
            found[name] = Program([self.samples, name], line=True)
            found[f"{name}-copied"] = Program([self.samples, f"{name}-copied"])
        for name in ("tasks", "graph", "chains", "variables", "results"):
            found[name] = Program([self.samples, name], line=name == "graph")
        cache = {"CUPY_CACHE_DIR": self.folder.name, "TRITON_CACHE_DIR": self.folder.name}
        for name in ("managed", "pool", "rmm", "rmm-pool"):
            found[f"cupy-{name}"] = Program(self.python("managed_jobs.py", "cupy", name), cache, gigabytes=2)
        found["jax"] = Program(self.python("jax_job.py", 2048, 4, 512, 12), XLA, gigabytes=2, known=False)
        gpt = self.python("managed_jobs.py", "torch", self.plug, "gpt.py", 768, 4, 2, 12, "each", "deterministic")
        found["torch"] = Program(gpt)
        found["torch-kept"] = Program(gpt, {"MANAGED_PLUG_KEEP": "1"})
        for how in ("direct", "copied"):
            ending = "" if how == "direct" else "-copied"
            found[f"paged{ending}"] = Program(self.python("managed_jobs.py", "paged", how), cache, line=how == "direct")
            found[f"numba{ending}"] = Program(self.python("managed_jobs.py", "numba", how), line=how == "direct")
        return {name: program for name, program in found.items() if not self.options.only or name in self.options.only}

    @contextlib.contextmanager
    def room_for(self, gigabytes):
        with self.room:
            self.room.wait_for(lambda: self.natively + gigabytes <= MOST_NATIVELY)
            self.natively += gigabytes
        try:
            yield
        finally:
            with self.room:
                self.natively -= gigabytes
                self.room.notify_all()

    def once(self, name, program, settings=None):
        """A harness.Run in whose checks the losses of steps are, too."""
        environment = {**program.environment, **({"SPILLWAY_POLICY": self.policy} if settings else {})}
        result, steps = self.run(f"{name}, {settings or 'natively'}", program.command, settings, environment, limit=60)
        result.checks.update({f"step{number}": value for number, value in enumerate(steps.losses)})
        result.took = f"{parts.last_median(steps):.1f} ms" if steps.complete else f"{result.seconds:.0f} s"
        return result

    def cell(self, what, natives, result, line=False, spills=False):
        """What the table says. A row if it is wrong."""
        text, good = judge(natives, result)
        if text == "line" and not line:
            good = False
        if text == "equal" and spills and result.spilled in ("", "none", "0 B"):
            text, good = "equal, NOTHING SPILLED", False
        if not good:
            self.add(what, 0, 1, text, least=True)
        return f"{text}, {result.took}" + (f", {result.spilled} spilled" if spills else "") if result.status == "ok" else text

    def program(self, name, program):
        """Its row of the table."""
        ample = self.once(name, program, AMPLE)
        _, reserved = on_use(ample.output) or (0, 0)
        need = used(ample.output)
        managed = f"{reserved / UNITS['MiB']:.0f} MiB" if reserved else "none" if ample.status == "ok" else ""
        text, _ = judge((ample, ample), ample)
        if text == "not installed":
            return [name, text]
        if not program.known and (ample.status != "ok" or need + reserved > program.gigabytes * UNITS["GiB"]):
            self.add(f"{name}: not run natively", None, 1, f"{text}, {(need + reserved) / UNITS['GiB']:.1f} GiB", least=True)
            return [name, managed, "", text]
        with self.room_for(program.gigabytes):
            natives = [self.once(name, program)]
            natives.append(self.once(name, program) if natives[0].status == "ok" else natives[0])
        if natives[0].status != "ok":
            self.failed(f"{name}: natively", 1, natives[0], least=True)
        text, _ = judge((natives[0], natives[0]), natives[1])
        row = [name, managed, f"{text.replace('DIFFERS', 'unstable')}, {natives[1].took}",
               self.cell(f"{name}: ample", natives, ample, program.line)]
        need = int(need or natives[0].need)
        for mode in MODES if need and row[3] != "line" else []:
            result = self.once(name, program, parts.settings(mode, need, 1.5))
            row.append(self.cell(f"{name}: 2/3 of {need >> 20} MiB, {mode}", natives, result, program.line, spills=reserved > 0))
        return row

    def programs(self):
        rows = []

        def shown(name, program):
            try:
                row = self.program(name, program)
            except Exception as error:  # of one program
                self.add(f"{name}: broke off", None, 1, f"{type(error).__name__}: {error}", least=True)
                row = [name, "broke off"]
            rows.append(row + [""] * (len(HEAD) - len(row)))
            print("  PROGRAM " + " | ".join(row), flush=True)

        atexit.register(lambda: harness.table([HEAD, *sorted(rows)]))
        programs = self.programs_of()
        with concurrent.futures.ThreadPoolExecutor(self.options.at_once) as pool:
            list(pool.map(shown, programs, programs.values()))

    def reserve(self):
        """More than both budgets together is refused, so the host's must be large; what is taken by mistake would be pinned. A
        smaller allocation goes first."""
        twice = {"device.budget": "100%", "host.budget": f"{self.options.card * 5 // 4}GiB"}
        small = {"device.budget": "5GiB", "host.budget": "4GiB", "heap.chunk": "16MiB"}
        if self.taken("reserve 8 GiB", small, ["reserve", 8], 1.1):
            self.taken("reserve twice the card", {**twice, "heap.chunk": "16MiB"}, ["reserve"], 1.1)
            self.taken("reserve twice the card, usual chunks", twice, ["reserve"], None)
        self.taken("a kernel gets 3 GiB", AMPLE, ["reach"], None)

    def taken(self, what, settings, arguments, bar):
        """Rows; is it right, and does it keep to the bar?"""
        result = self.once(what, Program([self.samples, *map(str, arguments)]), settings)
        memory, (taken, unused) = used(result.output), on_use(result.output) or (0, 0)
        good = result.status == "ok" and bool(result.checks) and "DIFFERS" not in result.checks.values()
        self.add(f"{what}: ended and right", float(good), 1, "" if good else why(result), least=True)
        self.add(f"{what}: memory of the heap at most, GiB", memory / UNITS["GiB"] if good else None, bar,
                 f"{taken / UNITS['GiB']:.2f} GiB on use, {unused / UNITS['GiB']:.1f} GiB without memory at most")
        return good and memory and (not bar or memory / UNITS["GiB"] <= bar)

    # ---- times ----

    def step(self, name, command, settings, more={}):
        """(harness.Run, ms of a step)"""
        environment = {**more, **({"SPILLWAY_POLICY": self.policy} if settings else {})}
        result, steps = self.run(name, command, settings, environment, limit=60)
        return result, parts.last_median(steps), steps

    def training(self, name, plug, settings, shape=SHAPE, steps=60):
        """A side of a pair."""
        job = ["gpt.py", *shape, steps, "each", "deterministic"]
        command = self.python("managed_jobs.py", "torch", self.plug, *job)
        return name, command, settings, {"MANAGED_PLUG": plug, "MANAGED_PLUG_KEEP": "1"}

    def pair(self, what, bar, times, one, other):
        """A row: the first / the second, run in turn. Each has the arguments of step()."""
        found, losses = ([], []), []
        for _ in range(times):
            for ms, side in zip(found, (one, other)):
                result, median, steps = self.step(*side)
                if result.status != "ok" or median is None:
                    self.failed(f"{what}: {side[0]}", bar, result)
                    return
                ms.append(median)
                losses.append(steps.losses)
        value, least, most = bars.ratio(*found)
        told = ", ".join(f"{side[0]} {statistics.median(ms):.2f} ({min(ms):.2f} .. {max(ms):.2f}) ms"
                         for side, ms in zip((one, other), found))
        self.add(what, value, bar, f"{least:.3f} .. {most:.3f}; {told}", near=least)
        equal = all(other == losses[0] for other in losses)
        self.add(f"{what}: losses equal", float(equal), 1, f"{len(losses)} runs", least=True)

    def need(self, plug, settings=AMPLE, shape=SHAPE):
        """Bytes of the heap that the steps take; None, after a row that says why: it is not known, or more than is ample."""
        first, _, _ = self.step(*self.training(f"{plug}, ample", plug, settings, shape))
        need = used(first.output)
        if first.status != "ok" or not need or settings == AMPLE and need > MOST_NATIVELY * UNITS["GiB"]:
            self.failed(f"{plug}: a step with ample memory", 1, first, least=True)
            return None
        self.add(f"{plug}: what the steps need, GiB", need / UNITS["GiB"])
        return need

    def times(self):
        if self.need("managed"):
            self.pair("in memory: managed on the heap / natively, prefetched", 1.02, 4, self.training("heap", "managed", AMPLE),
                      self.training("natively", "prefetched", None))

    def over(self):
        """Each at 1.5 of what it needs itself: an allocation of managed memory takes units of 2 MiB."""
        shape = self.options.over
        needs = {plug: self.need(plug, {"device.budget": f"{self.options.card // 2}GiB"}, shape) for plug in ("managed", "plain")}
        if all(needs.values()):
            sides = [self.training(plug, plug, parts.settings("fast", need, 1.5), shape, 30) for plug, need in needs.items()]
            self.pair(f"gpt.py {' '.join(map(str, shape))} at 1.5, fast: managed / plain", 1.05, 3, *sides)

    def words(self):
        for us in 100, 1000, 5000:
            read, copy = ([self.samples, name, str(us)] for name in ("word", "word-copied"))
            heap = ("read", read, AMPLE)
            self.pair(f"kernels of {us} us: read on the heap / cudaMemcpy", 1.2, 2, heap, ("copied", copy, AMPLE))
            self.pair(f"kernels of {us} us: read on the heap / natively", None, 1, heap, ("natively", read, None))


def main():
    arguments = parts.parser(480)
    arguments.add_argument("--nvcc", default="nvcc")
    arguments.add_argument("--only", type=lambda text: text.split(","), default=[], metavar="PROGRAM,...")
    arguments.add_argument("--at-once", type=int, default=6)
    arguments.add_argument("--over", nargs=3, default=SHAPE, help="gpt.py's width, layers and batch in `over`")
    arguments.add_argument("--card", type=int, default=141, help="memory of the GPU, GiB")
    parts.main(Managed, arguments)


if __name__ == "__main__":
    main()
