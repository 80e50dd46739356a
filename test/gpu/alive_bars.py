# SPDX-License-Identifier: Apache-2.0
"""The bars of moving only what is alive, on a real GPU: python alive_bars.py --build BUILD --log FILE [--seconds N] PART...

  gpt         a GPT training job with deterministic kernels at 1.25, 1.5 and 2 times its budget: ms a step, changes of
              mappings, bytes that were copied each way, losses
  expandable  the same at 1.5 with expandable_segments, against the default allocator in the same mode
  async       the same at 1.5 with cudaMallocAsync, likewise
  lengths     a GPT with another length in each step at 1.5, against what it took before anything was known of births
  report      what a birth and a death cost: PyTorch's allocation and free, natively and under Spillway in turn on one core

The bars in ms are for a link that carries 50.85 GB/s each way at once; they are scaled by the pair that is measured.
Oversubscription is by Spillway's device.budget alone. Rows and exit status: parts.py.
"""
import os
import statistics
import sys

import bars
import harness
import parts
from parts import settings

PAIR_RATE = 50.85  # GB/s each way, of the machine that the bars are for
STEP_BARS = {("fast", 1.25): 125, ("fast", 1.5): 210, ("fast", 2.0): 330,
             ("exact", 1.25): 190, ("exact", 1.5): 320, ("exact", 2.0): 500}  # ms
BYTES_BAR = 5.5  # 1e9 each way a step, at 1.5
# ms a step of `lengths` before births were known, and the part of it that is the bar
LENGTHS = {"fast": (209, 0.7), "exact": (338, 0.75)}
ALLOCATORS = {"expandable": ("expandable_segments:True", {"vmm.spill": "move"}, 1.1),
              "async": ("backend:cudaMallocAsync", {}, 1.3)}
BLOCKS = """
import os, sys, time, torch
torch.empty(1 << 20, device="cuda")
os.sched_setaffinity(0, {int(sys.argv[1])})
for _ in sys.stdin:
    start = time.perf_counter()
    for _ in range(5000):
        torch.empty(1 << 20, device="cuda")
    print("answer", (time.perf_counter() - start) / 5000 * 1e9, flush=True)
"""
PAIRS, TURNS = 5, 60  # pairs of processes; turns of each pair


class Alive(parts.Parts):
    PARTS = {"gpt": 330, "expandable": 160, "async": 200, "lengths": 150, "report": 90}

    def __init__(self, options):
        super().__init__(options)
        self.rate = None
        self.known = {}

    def scale(self):
        """By how much longer than on the machine of the bars a step may take."""
        if self.rate is None:
            self.rate = self.link_rates(3).get("pinned_pair_64", (PAIR_RATE,))[0]
            self.add("a pair of copies, each way", self.rate, None, unit=" GB/s")
        return PAIR_RATE / self.rate

    def command(self):
        return [*self.python("gpt.py", *self.options.gpt, self.options.steps), "each", "deterministic"]

    def native(self):
        """Two native runs; none if the job does not run."""
        if "native" not in self.known:
            runs = [self.run("gpt, native", self.command())[1] for _ in range(2)]
            good = all(steps.complete and steps.need for steps in runs)
            if good:
                self.add("native", parts.last_median(runs[0]), None, f"need {runs[0].need >> 20} MiB", unit=" ms")
            else:
                self.add("native", None, 0)
            self.known["native"] = runs if good else []
        return self.known["native"]

    def compare(self, what, natives, steps):
        good, text = bars.losses_equal([native.losses for native in natives], steps.losses)
        self.add(f"{what}: losses equal", float(good), 1, text, least=True)

    def one(self, what, mode, ratio, own=None, environment=None):
        """(median ms, what bars.spread() says of the last half of the steps) of one run under Spillway; None: it failed."""
        natives = self.native()
        if not natives:
            return None
        own = {**settings(mode, natives[0].need, ratio), "report": "full", **self.options.set, **(own or {})}
        with harness.watch_counters(self.options.build) as samples:
            result, steps = self.run(what, self.command(), own, environment)
        if result.status != "ok" or not steps.complete:
            self.failed(f"{what}: step", None, result)
            return None
        self.compare(what, natives, steps)
        self.rates(what, ratio, bars.a_step(samples, bars.last_half(steps.ms)))
        return bars.spread(bars.last_half(steps.ms))

    def rates(self, what, ratio, step):
        """step: what happened in a steady step (bars.a_step())."""
        if not step:
            self.add(f"{what}: bytes a step", None, BYTES_BAR if ratio == 1.5 else None)
            return
        copied_in, copied_out = bars.copied(step)
        self.add(f"{what}: bytes a step, the greater way", max(copied_in, copied_out), BYTES_BAR if ratio == 1.5 else None,
                 f"{copied_in:.2f} in, {copied_out:.2f} out; {step['moved_in_bytes'] / 1e9:.2f} and "
                 f"{step['moved_out_bytes'] / 1e9:.2f} moved; link busy {step['link_us'] / 1e3:.0f} ms; waited "
                 f"{step['waiting_us'] / 1e3:.0f} ms; {step['gap_us'] / 1e3:.0f} ms in {step['gaps']:.1f} gaps", unit=" GB")
        self.add(f"{what}: changes of mappings a step", step["maps"], None,
                 f"{step['moves_in']:.0f} pieces in, {step['moves_out']:.0f} out, {step['unforeseen']:.0f} unforeseen")

    def gpt(self):
        scale = self.scale()
        for mode in self.options.modes:
            for ratio in self.options.ratios:
                what = f"{mode} {ratio}"
                times = self.one(what, mode, ratio)
                self.known[what] = times and times[0]
                if times:
                    bar = STEP_BARS.get((mode, ratio))
                    self.add(f"{what}: step", times[0], bar and bar * scale, f"{times[1]:.0f} .. {times[2]:.0f}", near=times[1],
                             unit=" ms")

    def allocator(self, name):
        setting, own, bar = ALLOCATORS[name]
        for mode in self.options.modes:
            base = self.known.get(f"{mode} 1.5")
            if base is None:
                found = self.one(f"{mode} 1.5", mode, 1.5)
                base = self.known[f"{mode} 1.5"] = found and found[0]
            what = f"{name}, {mode} 1.5"
            times = self.one(what, mode, 1.5, own, {"PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting})
            if times and base:
                self.add(f"{what}: step / default allocator's", times[0] / base, bar,
                         f"{times[0]:.0f} ms ({times[1]:.0f} .. {times[2]:.0f}) / {base:.0f}", near=times[1] / base)

    def expandable(self):
        self.allocator("expandable")

    def stream_ordered(self):
        self.allocator("async")

    def lengths(self):
        command = self.python("spill_jobs.py", "lengths", 24)
        natives = [self.run("lengths, native", command)[1] for _ in range(2)]
        if not all(steps.complete and steps.need for steps in natives):
            self.add("lengths, native", None, 0)
            return
        for mode in self.options.modes:
            result, steps = self.run(f"lengths, {mode}", command, {**settings(mode, natives[0].need, 1.5), **self.options.set})
            before, part = LENGTHS[mode]
            if result.status != "ok" or not steps.complete:
                self.failed(f"lengths, {mode} 1.5: step / before", part, result)
                continue
            self.compare(f"lengths, {mode} 1.5", natives, steps)
            mean = statistics.mean(steps.ms[10:20])
            self.add(f"lengths, {mode} 1.5: step / before", mean / (before * self.scale()), part,
                     f"{mean:.0f} ms, mean of steps 11 to 20, later {statistics.mean(steps.ms[20:]):.0f}; native "
                     f"{statistics.mean(natives[0].ms[10:20]):.0f}")

    def report(self):
        """
        Processes differ from each other by more than the bar, and so does one process from itself a second later. So the
        median is over several pairs, of each the median of the differences between neighbours in time.
        """
        command = [sys.executable, "-c", BLOCKS, str(max(os.sched_getaffinity(0)))]
        shim, added, native = harness.shim_environment(self.options.build, {}), [], []
        for _ in range(PAIRS):
            limit = min(parts.ONE_RUN, self.left())
            with harness.answering(command, {}, limit) as one, harness.answering(command, shim, limit) as other:
                pairs = harness.in_turn([one, other], TURNS)
            if pairs:
                added.append(statistics.median(second - first for first, second in pairs))
                native.append(statistics.median(first for first, _ in pairs))
        if not added:
            self.add("a birth and a death", None, 200)
            return
        self.add("a birth and a death", statistics.median(added), 200,
                 f"medians of pairs of processes: {' '.join(f'{one:.0f}' for one in added)}; natively "
                 f"{min(native):.0f} .. {max(native):.0f}", unit=" ns")


setattr(Alive, "async", Alive.stream_ordered)  # a keyword of the language, and the right word for the part


def arguments():
    parser = parts.parser()
    parser.add_argument("--ratios", type=lambda t: [float(w) for w in t.split(",")], default=[1.25, 1.5, 2.0])
    parser.add_argument("--modes", type=lambda t: t.split(","), default=["fast", "exact"])
    parser.add_argument("--gpt", type=lambda t: t.split(","), default=["1536", "16", "8"], help="WIDTH,LAYERS,BATCH")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--set", type=lambda t: dict(w.split("=", 1) for w in t.split(",")), default={}, help="KEY=VALUE,...")
    return parser


parts.main(Alive, arguments())
