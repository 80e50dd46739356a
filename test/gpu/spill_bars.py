# SPDX-License-Identifier: Apache-2.0
"""The bars of spilling on a real GPU: python spill_bars.py --build BUILD --log FILE [--seconds N] PART...

  rate     the bare link: a pair of copies, one each way at once
  gpt      a GPT training job that needs 1.25, 1.5 and 2 times its budget: step / reference, steady state, losses
  bits     the same job with deterministic kernels: losses equal bit for bit at each of these
  jobs     other jobs at 1.5 (twice the compute per byte, convolutional, varying length): throughput / their reference
  graph    a step captured in a CUDA graph at 1.25, against static
  random   a program without a period at 1.5, against static
  fits     a job that fits, engine ready, against native
  launch   what a launch costs more under pressure
  first    the first steps that spill, against static, some runs of each in turn
  suspend  10 GiB suspended and resumed; a training job suspended and resumed, between steps and within one

Oversubscription is by Spillway's device.budget alone. Rows and exit status: parts.py.
"""
import os
import shutil
import statistics
import subprocess

import bars
import harness
import parts
import suspend
from parts import settings

MODE_BARS = {"exact": 2.0, "fast": 1.25}
JOB_BARS = {"exact": 0.5, "fast": 0.8}
BEFORE = 3  # steps that a training job does beside those it is asked for
RECORDED = 13  # steps in a trace
PAIR_RATE = 50.85  # GB/s each way, where it cannot be measured (docs/facts.md, Host memory)
PINNING = 200.0  # ms per GiB, likewise


class Bench(parts.Parts):
    PARTS = {"rate": 40, "gpt": 330, "bits": 200, "jobs": 400, "graph": 120, "random": 120, "fits": 150, "launch": 90,
             "first": 150, "suspend": 250}

    def __init__(self, options):
        super().__init__(options)
        self.natives = {}

    def native(self, name, command, times=2):
        """Native runs of a job; none when it does not run."""
        key = tuple(command)
        runs = self.natives.setdefault(key, [])
        while len(runs) < times:
            result, steps = self.run(f"{name} native", command)
            if result.status != "ok" or not steps.complete or not steps.need:
                self.add(f"{name} native", None, 0, result.status)
                break
            runs.append(steps)
        return runs

    def in_memory(self, natives):
        return statistics.median(bars.steady(steps.ms)[1] for steps in natives)

    def losses(self, what, natives, steps):
        if len(natives) >= 2:
            good, text = bars.losses_equal([native.losses for native in natives], steps.losses)
            self.add(f"{what}: losses equal", float(good), 1, text, least=True)

    def pair_rate(self):
        rates = self.link_rates(3)
        return rates["pinned_pair_64"][0] if "pinned_pair_64" in rates else PAIR_RATE

    def pinning(self):
        return self.link_rates(3).get("vmm_pinning_64", (PINNING,))[0]

    # ---- parts ----

    def rate(self):
        for name, (median, least, most) in self.link_rates(7).items():
            unit = " ms/GiB" if "pinning" in name else " GB/s"
            self.add(name, median, None, f"{least:.2f} .. {most:.2f}", unit=unit)

    def gpt_command(self, steps=None):
        return self.python("gpt.py", *self.options.gpt, self.options.steps if steps is None else steps, "each")

    def gpt(self):
        natives = self.native("gpt", self.gpt_command(), 3)
        if not natives:
            return
        if self.options.record:
            found = self.belady("gpt", self.gpt_command(RECORDED - BEFORE), RECORDED, natives[0].need, self.options.ratios)
            self.options.bytes.update(found)
            for ratio, gigabytes in found.items():
                self.add(f"{ratio}: Belady's bytes per step", gigabytes, None, f"known: {bars.GPT_BYTES.get(ratio)}", unit=" GB")
        for ratio in self.options.ratios:
            if self.options.static:
                self.gpt_static(natives, ratio)
            for mode in self.options.modes * self.options.times:
                self.gpt_one(natives, ratio, mode)

    def gpt_static(self, natives, ratio):
        result, steps = self.run(f"gpt static {ratio}", self.gpt_command(1), settings("static", natives[0].need, ratio))
        if len(steps.ms) > 1:
            self.add(f"static {ratio}: step", bars.steady(steps.ms)[1], None, result.status, unit=" ms")

    def gpt_one(self, natives, ratio, mode):
        name = f"{mode} {ratio}"
        with harness.watch_counters(self.options.build) as samples:
            result, steps = self.run(f"gpt {name}", self.gpt_command(), settings(mode, natives[0].need, ratio))
        if result.status != "ok" and len(steps.ms) < 6:
            self.failed(f"{name}: step / reference", MODE_BARS[mode], result)
            return
        self.losses(name, natives, steps)
        first, median = bars.steady(steps.ms)
        settled = steps.ms[first:] or bars.last_half(steps.ms)
        gigabytes = self.options.bytes.get(ratio, bars.GPT_BYTES.get(ratio, 0))
        reference = bars.reference_ms(self.in_memory(natives), gigabytes, self.pair_rate())
        self.add(f"{name}: step / reference", median / reference, MODE_BARS[mode],
                 f"{median:.0f} ms ({min(settled):.0f} .. {max(settled):.0f}) / {reference:.0f}", near=min(settled) / reference)
        self.add(f"{name}: steps until steady, after the first full", max(first - 1, 0), 4,
                 f"of {len(steps.ms)}: {' '.join(f'{t:.0f}' for t in steps.ms[:8])} .. ms")
        peak = bars.host_peak(result.output) or 0
        pinned = peak / (1 << 30) * self.pinning() / 1e3
        lost = bars.lost_ms(steps.ms, natives[0].ms, first, median) / 1e3
        self.add(f"{name}: time lost until then", lost, 5 + pinned, f"5 s and {pinned:.1f} s pinning of {peak / (1 << 30):.1f} GiB",
                 unit=" s")
        self.moving(name, result, steps, bars.settled_rate(harness.moved_samples(samples), settled))

    def moving(self, name, result, steps, settled):
        """settled: GB/s both ways in the steady state, without the pinning of host memory before it; None: not known."""
        moved = bars.moved(result.output)
        if not moved:
            self.add(f"{name}: rate while moving / pair", None, 0.9, "the summary does not say", least=True)
            return
        seconds, over = moved[2], "busy"
        if not seconds:
            # A least: also the time in which nothing moved counts.
            seconds, over = sum(steps.ms) / 1e3, "of all steps; when it moved is not known"
        pair, whole = 2 * self.pair_rate(), (moved[0] + moved[1]) / seconds / 1e9
        self.add(f"{name}: rate while moving / pair", settled and settled / pair, 0.9 if moved[2] else None,
                 f"steady steps; {whole / pair:.2f} of the whole run, pinning included: {moved[0] / 1e9 / len(steps.ms):.1f} "
                 f"GB in, {moved[1] / 1e9 / len(steps.ms):.1f} out per step, {seconds:.2f} s {over}", least=True)

    def deterministic_command(self):
        return [*self.gpt_command(), "deterministic"]

    def bits(self):
        command = self.deterministic_command()
        natives = self.native("gpt with deterministic kernels", command)
        if len(natives) < 2:
            return
        self.add("native: losses of two runs equal", float(natives[0].losses == natives[1].losses), 1, "bit for bit", least=True)
        for ratio in self.options.ratios:
            for mode in self.options.modes:
                name = f"deterministic, {mode} {ratio}"
                result, steps = self.run(f"gpt {name}", command, settings(mode, natives[0].need, ratio))
                if result.status != "ok" or len(steps.losses) != len(natives[0].losses):
                    self.failed(f"{name}: losses equal", 1, result, least=True)
                    continue
                self.losses(name, natives, steps)

    def belady(self, name, command, steps, need, ratios, pressure=1.05):
        """
        Bytes in per step (1e9) by Belady's rule on the job's own trace, by ratio; empty when there is no trace. The last
        half of the steps is what counts.
        """
        path = os.path.join(self.folder.name, f"{name}.trace")
        self.run(f"{name} recorded", command, settings("exact", need, pressure), {"SPILLWAY_TRACE": path})
        if not os.path.exists(path):
            return {}
        budgets = ",".join(f"{int(need / ratio)}B" for ratio in ratios)
        tool = [self.tool("spillway"), "replay", "--json", "--steps", str(steps // 2), "--budget", budgets]
        answer = subprocess.run([*tool, path], capture_output=True, text=True)
        self.log(" ".join(tool), answer.stdout + answer.stderr)
        if self.options.keep_traces:
            shutil.copy(path, os.path.join(self.options.keep_traces, f"{name}.trace"))
        os.unlink(path)
        return bars.belady_of(answer.stdout, need, ratios)

    def jobs(self):
        for name in self.options.jobs:
            command = self.python("spill_jobs.py", name, self.options.steps)
            natives = self.native(name, command)
            if not natives:
                continue
            gigabytes = bars.JOB_BYTES.get(name)
            if gigabytes is None:
                recorded = self.options.steps + BEFORE
                gigabytes = self.belady(name, command, recorded, natives[0].need, [1.5], pressure=1.5).get(1.5)
            own = statistics.mean(statistics.mean(bars.last_half(steps.ms)) for steps in natives)
            reference = bars.reference_ms(own, gigabytes or 0, self.pair_rate())
            for mode in self.options.modes:
                what = f"{name} {mode} 1.5"
                result, steps = self.run(what, command, settings(mode, natives[0].need, 1.5))
                if result.status != "ok":
                    self.failed(f"{what}: throughput / reference", JOB_BARS[mode], result, least=True)
                    continue
                self.losses(what, natives, steps)
                mean = statistics.mean(bars.last_half(steps.ms))
                link = "NO TRACE" if gigabytes is None else f"{gigabytes:.1f} GB"
                self.add(f"{what}: throughput / reference", reference / mean, JOB_BARS[mode],
                         f"{mean:.0f} ms / {reference:.0f} ({own:.0f} in memory, {link}), need {natives[0].need >> 20} MiB",
                         least=True)

    def against_static(self, name, steps, ratio, bar, natives=1):
        """A job in every mode, as a part of its time with static: medians of the last half of its steps."""
        command = self.python("spill_jobs.py", name, steps)
        native = self.native(name, command, natives)
        if not native:
            return
        base = None
        for mode in ["static", *self.options.modes]:
            what = f"{name} {mode} {ratio}"
            result, steps_run = self.run(what, command, settings(mode, native[0].need, ratio))
            if result.status != "ok":
                self.failed(f"{what}: step / static", bar, result)
                continue
            self.losses(what, native if len(native) > 1 else native * 2, steps_run)
            median, least, most = bars.spread(bars.last_half(steps_run.ms))
            if mode == "static":
                base = (median, least, most)
                self.add(f"{what}: step", median, None, f"{least:.0f} .. {most:.0f}, native {self.in_memory(native):.0f} ms",
                         unit=" ms")
            elif base:
                self.add(f"{what}: step / static", median / base[0], bar,
                         f"{median:.0f} ms ({least:.0f} .. {most:.0f}) / {base[0]:.0f}", near=least / base[2])

    def graph(self):
        self.against_static("graph", 12, 1.25, 1.0, natives=2)

    def random(self):
        self.against_static("random", 24, 1.5, 1.1)

    def fits(self):
        sides = {"native": None, **{mode: {"spill.mode": mode} for mode in self.options.modes}}
        times = {side: [] for side in sides}
        for _ in range(self.options.rounds):
            for side, own in sides.items():
                result, steps = self.run(f"gpt that fits, {side}", self.python("gpt.py", *self.options.gpt, 18, "each"), own)
                if result.status == "ok" and steps.complete:
                    times[side].append(bars.steady(steps.ms)[1])
        for mode in self.options.modes:
            if times["native"] and times[mode]:
                native, most = bars.spread(times["native"]), bars.spread(times[mode])
                self.add(f"{mode}: step / native", most[0] / native[0], 1.01,
                         f"{most[0]:.2f} ({most[1]:.2f} .. {most[2]:.2f}) / {native[0]:.2f} ({native[1]:.2f} .. {native[2]:.2f}) ms",
                         near=most[1] / native[2])
            else:
                self.add(f"{mode}: step / native", None, 1.01)

    def launch(self):
        program = [self.tool("bench/pressure")]
        for mode in self.options.modes:
            found = {}
            for _ in range(self.options.rounds):
                own = {"device.budget": "1GiB", "host.budget": "2GiB", "spill.mode": mode}
                result, _ = self.run(f"launch {mode}", program, own, limit=40)
                for name, (median, _, _) in bars.lines_of(result.output).items():
                    found.setdefault(name, []).append(median)
            for name, bar in {"added_free": 20, "added_same": 300, "added_turn": 300, "launch_bare": None}.items():
                if name in found:
                    median, least, most = bars.spread(found[name])
                    self.add(f"{mode}: {name}", median, bar, f"{least:.0f} .. {most:.0f}", near=least, unit=" ns")
                else:
                    self.add(f"{mode}: {name}", None, bar)

    def first(self):
        """Some runs of each mode in turn: one process starts much slower than the next."""
        ratio = 1.5
        natives = self.native("gpt", self.gpt_command(), 1)
        if not natives:
            return
        modes = ["static", *self.options.modes]
        runs = {mode: [] for mode in modes}
        for _ in range(self.options.rounds):
            for mode in modes:
                _, steps = self.run(f"gpt first {mode} {ratio}", self.gpt_command(1), settings(mode, natives[0].need, ratio))
                runs[mode].append(steps.ms)
        for mode in self.options.modes:
            for i, name in enumerate(("first step", "first full step")):
                self.first_row(f"{mode} {ratio}: {name} / static", *([ms[i] for ms in runs[m] if len(ms) > i]
                                                                     for m in (mode, "static")))

    def first_row(self, what, own, base):
        if own and base:
            spread = " / ".join(f"{statistics.median(ms):.0f} ({min(ms):.0f} .. {max(ms):.0f})" for ms in (own, base))
            self.add(what, statistics.median(own) / statistics.median(base), 1.2, f"{spread} ms")
        else:
            self.add(what, None, 1.2)

    def suspend(self):
        suspend.bars_of(self)


def arguments():
    parser = parts.parser()
    parser.add_argument("--ratios", type=lambda t: [float(w) for w in t.split(",")], default=[1.25, 1.5, 2.0])
    parser.add_argument("--modes", type=lambda t: t.split(","), default=["exact", "fast"])
    parser.add_argument("--jobs", type=lambda t: t.split(","), default=["twice", "conv", "lengths"])
    parser.add_argument("--gpt", type=lambda t: t.split(","), default=["1536", "16", "8"], help="WIDTH,LAYERS,BATCH")
    parser.add_argument("--bytes", type=lambda t: {float(r): float(b) for r, b in (w.split(":") for w in t.split(","))},
                        default={}, help="RATIO:GB,...: Belady's bytes per step of gpt, instead of the known ones")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=1, help="gpt: runs of each")
    parser.add_argument("--record", action="store_true", help="gpt: Belady's bytes from a record of its own")
    parser.add_argument("--static", action="store_true", help="gpt: a few steps of static, too")
    parser.add_argument("--keep-traces", default="", help="a folder for the jobs' traces")
    return parser


parts.main(Bench, arguments())
