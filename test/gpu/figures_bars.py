# SPDX-License-Identifier: Apache-2.0
"""What figures, traces and predictions cost and are worth, on a real GPU:
python figures_bars.py --build BUILD --log FILE [--seconds N] [--job "1536 16 8 18"] PART...

  steps    step time of a job that fits: natively, with counters and summary, with a trace; bytes of trace per launch
  replay   from the trace of `steps`: predicted step time against the measured one at 1.25, 1.5 and 2 times the budget
  kill     a traced job is killed: trace and figures are readable
  doctor   what doctor says of this machine, and of PyTorch's doors

Native, counted and traced runs take turns; medians with their least and most. Rows and exit status: parts.py.
"""
import json
import os
import signal
import statistics
import subprocess
import sys

import bars
import harness
import parts

RATIOS = (1.25, 1.5, 2.0)
MIB = 1 << 20


class Bench(parts.Parts):
    PARTS = {"steps": 400, "replay": 300, "kill": 60, "doctor": 60}

    def __init__(self, options):
        super().__init__(options)
        self.job = [*self.python("gpt.py", *options.job.split()), "each"]
        self.trace, self.need, self.native_ms = None, 0, 0.0

    def times_of(self, name, settings=None, environment=None):
        """ms of the last half of the steps; None: it did not run. settings None: natively."""
        result, steps = self.run(name, self.job, settings, environment)
        if result.status != "ok" or not steps.complete:
            return None
        self.need = steps.need or self.need
        return bars.last_half(steps.ms)

    def ask(self, *arguments):
        """What the tool prints; None: it failed."""
        result = subprocess.run([self.tool("spillway"), *arguments], capture_output=True, text=True, errors="replace",
                                timeout=max(5, self.left()), check=False)
        self.log(f"spillway {' '.join(arguments)}: {result.returncode}", result.stdout + result.stderr)
        return result.stdout if result.returncode == 0 else None

    # ---- parts ----

    def steps(self):
        times = {"native": [], "counted": [], "traced": []}
        for turn in range(self.options.times):
            for side, all_of in times.items():
                trace = os.path.join(self.folder.name, f"fits-{turn}.trace")
                ms = self.times_of(f"{side} {turn + 1}", None if side == "native" else {},
                              {"SPILLWAY_TRACE": trace} if side == "traced" else None)
                if ms:
                    all_of.append(statistics.median(ms))
                if side == "traced" and ms:
                    self.trace = trace
        if not all(times.values()):
            self.add("step, counted / native", None, 1.01, "a run failed")
            return
        self.native_ms = statistics.median(times["native"])
        spread = {side: f"{statistics.median(ms):.2f} ms ({min(ms):.2f} .. {max(ms):.2f})" for side, ms in times.items()}
        for side, bar in (("counted", 1.01), ("traced", 1.03)):
            self.add(f"step, {side} / native", statistics.median(times[side]) / self.native_ms, bar,
                     f"{spread[side]} / {spread['native']}", near=min(times[side]) / self.native_ms)
        said = json.loads(self.ask("report", "--json", self.trace) or "{}")
        file = said.get("file", {})
        self.add("trace: bytes an event", file.get("bytes", 0) / file["events"] if file.get("events") else None, None,
                 f"{file.get('bytes')} bytes, {file.get('events')} events, {file.get('lost_events')} lost")

    def replay(self):
        if not self.trace:
            self.add("replay", None, 1.15, "there is no trace: `steps` comes first")
            return
        for mode in self.options.modes.split(","):
            for ratio in RATIOS:
                budget = int(self.need / ratio / MIB)
                said = self.ask("replay", "--json", "--mode", mode, "--budget", f"{budget}MiB", self.trace)
                rows = json.loads(said)["budgets"] if said else []
                predicted = [row["step_ms"] for row in rows if row["budget"] == budget * MIB]
                ms = self.times_of(f"{mode} {ratio}", {"device.budget": f"{budget}MiB", "spill.mode": mode})
                if not ms or not predicted:
                    self.add(f"{mode} {ratio}: predicted / measured", None, 1.15, "no prediction or no run")
                    continue
                off = predicted[0] / statistics.median(ms)
                self.add(f"{mode} {ratio}: predicted / measured, or the inverse", max(off, 1 / off), 1.15,
                         f"{predicted[0]:.0f} / {statistics.median(ms):.0f} ms ({min(ms):.0f} .. {max(ms):.0f})")

    def kill(self):
        trace = os.path.join(self.folder.name, "killed.trace")
        env = {**os.environ, **harness.shim_environment(self.options.build, {}), "SPILLWAY_TRACE": trace,
               "XDG_RUNTIME_DIR": self.folder.name}
        with subprocess.Popen(self.job, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            for line in child.stdout:
                if line.startswith("each 6 "):
                    child.send_signal(signal.SIGKILL)
        said = json.loads(self.ask("report", "--json", trace) or "{}")
        self.add("killed: events of the trace that can be read", said.get("file", {}).get("events"), 1000, least=True)
        os.environ["XDG_RUNTIME_DIR"] = self.folder.name
        seen = json.loads(self.ask("top", "--once", "--gone", "--json") or "{}")
        found = [process for process in seen.get("processes", []) if process.get("pid") == child.pid]
        self.add("killed: allocations in its figures", found[0]["counters"]["allocations"] if found else None, 1,
                 least=True)

    def doctor(self):
        print(self.ask("doctor") or "  doctor failed: see the log", flush=True)
        print(self.ask("doctor", "--no-measure", "--", sys.executable, "-c", "import torch; torch.zeros(1).cuda()") or
              "  doctor -- python failed: see the log", flush=True)


def arguments():
    parser = parts.parser(500)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--job", default="1536 16 8 18")
    parser.add_argument("--modes", default="fast,exact")
    return parser


parts.main(Bench, arguments())
