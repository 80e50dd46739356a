# SPDX-License-Identifier: Apache-2.0
"""Two builds in turn on a real GPU: python builds_bars.py --build BUILD --against OLDER --log FILE [--seconds N] PART...

  gpt           a GPT training job with deterministic kernels; its losses must be the native ones bit for bit
  plain         the same with any kernels
  lengths       a GPT with another length in each step
  conv          ResNet-50, whose losses must be the native ones bit for bit

For each of --modes and --ratios (need / budget) each build runs once, the older one first, and all of that is repeated
--times times. A row says of one build and case the median, over these runs, of the steps (gpt, plain: the median of a run's
last half; lengths: the mean of its steps 11 to 20), what the first nine took, what a step copied, and the medians' ratio.
Only what is in one call can be compared: machines and their links differ. Oversubscription is by Spillway's device.budget
alone. Rows and exit status: parts.py.
"""
import os
import statistics

import bars
import harness
import parts
from parts import settings

GPT = ["gpt.py", 1536, 16, 8]


class Builds(parts.Parts):
    PARTS = {"gpt": 1500, "plain": 1500, "lengths": 1500, "conv": 1500}

    def __init__(self, options):
        super().__init__(options)
        self.add("a pair of copies, each way", self.link_rates(3).get("pinned_pair_64", (None,))[0], None, unit=" GB/s")

    def once(self, build, what, command, mode, ratio, natives):
        """(ms, ms of the first nine steps, what a step did: bars.a_step()) of one run with this build; None: it failed."""
        own = {**settings(mode, natives[0].need, ratio), **self.options.set}
        with harness.watch_counters(build) as samples:
            result, steps = self.run(what, command, own, build=build)
        if result.status != "ok" or not steps.complete:
            self.failed(what, 0, result)
            return None
        good, text = bars.losses_equal([native.losses for native in natives], steps.losses)
        if not good:
            self.add(f"{what}: losses equal", 0.0, 1, text, least=True)
        ms = statistics.mean(steps.ms[10:20]) if self.part == "lengths" else parts.last_median(steps)
        return ms, statistics.mean(steps.ms[:9]), bars.a_step(samples, bars.last_half(steps.ms))

    def tell(self, what, runs):
        """Adds the row of one build, and returns its median; None: it has no run."""
        if not runs:
            return None
        text = f"{' '.join(f'{ms:.0f}' for ms, _, _ in runs)}; first nine {statistics.median(first for _, first, _ in runs):.0f}"
        if steps := [step for _, _, step in runs if step]:
            middle = {key: statistics.median(step[key] for step in steps) for key in steps[0]}
            copied_in, copied_out = bars.copied(middle)
            text += (f"; {copied_in:.2f} GB in, {copied_out:.2f} out; {middle['gap_us'] / 1e3:.0f} ms in "
                     f"{middle['gaps']:.1f} gaps")
        median = statistics.median(ms for ms, _, _ in runs)
        self.add(what, median, None, text, unit=" ms")
        return median

    def case(self, what, command, mode, ratio, natives):
        builds = {"older": self.options.against, "new": self.options.build}
        found = {name: [] for name in builds}
        for _ in range(self.options.times):
            for name, build in builds.items():
                if one := self.once(build, f"{what}, {name}", command, mode, ratio, natives):
                    found[name].append(one)
        medians = [self.tell(f"{what}, {name}", runs) for name, runs in found.items()]
        if all(medians):
            self.add(f"{what}, new / older", medians[1] / medians[0], None)

    def job(self, name, command, ratios):
        natives = [self.run(f"{name}, native", command)[1] for _ in range(2)]
        if not all(steps.complete and steps.need for steps in natives):
            self.add(f"{name}, native", None, 0)
            return
        self.add(f"{name}, native", parts.last_median(natives[0]), None, f"need {natives[0].need >> 20} MiB", unit=" ms")
        for mode in self.options.modes:
            for ratio in ratios:
                self.case(f"{name}, {mode} {ratio}", command, mode, ratio, natives)

    def gpt(self):
        self.job("gpt", [*self.python(*GPT, self.options.steps), "each", "deterministic"], self.options.ratios)

    def plain(self):
        self.job("plain", [*self.python(*GPT, self.options.steps), "each"], self.options.ratios)

    def lengths(self):
        self.job("lengths", self.python("spill_jobs.py", "lengths", 24), [1.5])

    def conv(self):
        self.job("conv", self.python("spill_jobs.py", "conv", self.options.steps), [1.5])


def arguments():
    parser = parts.parser()
    parser.add_argument("--against", required=True, type=os.path.abspath, help="the folder of the older build")
    parser.add_argument("--ratios", type=lambda t: [float(w) for w in t.split(",")], default=[1.25, 1.5, 2.0])
    parser.add_argument("--modes", type=lambda t: t.split(","), default=["fast", "exact"])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--set", type=lambda t: dict(w.split("=", 1) for w in t.split(",")), default={}, help="KEY=VALUE,...")
    return parser


parts.main(Builds, arguments())
