# SPDX-License-Identifier: Apache-2.0
"""The frame of the scripts that measure bars on a real GPU (spill_bars.py, memory_bars.py, ...): parts that are named on
the command line run one after the other, each of them runs programs and adds rows; a row is printed as soon as it is
known, all of them at the end. A part is a method of that name. What programs print goes to the log.

Exit status: 0 nothing missed, 1 a bar was missed or could not be measured, 2 wrong arguments.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import bars
import harness

HERE = os.path.dirname(os.path.abspath(__file__))
ONE_RUN = 110  # seconds, at most


class Parts:
    """What a script derives from: its PARTS, a dictionary of names and the seconds that each may take at most."""

    PARTS = {}
    DEFAULT = None  # the parts where none is named; None: one must be

    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.seconds
        self.part, self.part_end = "", self.deadline
        self.rows = []
        self.bare_rates = {}
        self.folder = tempfile.TemporaryDirectory()

    def left(self):
        return min(self.deadline, self.part_end) - time.monotonic()

    def python(self, script, *arguments):
        return [sys.executable, os.path.join(self.options.scripts, script), *map(str, arguments)]

    def tool(self, name):
        return os.path.join(self.options.build, name)

    def log(self, title, output):
        with open(self.options.log, "a") as file:
            file.write(f"==== {title}\n{output[-30000:]}\n")

    def run(self, name, command, settings=None, environment=None, limit=ONE_RUN, build=None):
        """(harness.Run, bars.Steps). settings None: natively. build: another one than that of the options."""
        env = dict(environment or {})
        if settings is not None:
            env = {**harness.shim_environment(build or self.options.build, settings), **env}
        result = harness.run(command, env, min(limit, self.left()))
        self.log(f"{name}: {result.status}, {result.seconds:.1f} s: {env} {' '.join(command)}", result.output)
        steps = bars.steps_of(result.output)
        median = f", {statistics.median(bars.last_half(steps.ms)):.1f} ms/step" if steps.complete else ""
        print(f"  {name}: {result.status}, {result.seconds:.0f} s{median}", flush=True)
        return result, steps

    def at_once(self, command, environment, gpus):
        """What each of these programs prints, one for a GPU and all started together; nothing if one took too long."""
        children = [subprocess.Popen(command, env={**environment, "CUDA_VISIBLE_DEVICES": str(i)}, text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for i in range(gpus)]
        try:
            return [child.communicate(timeout=150)[0] for child in children]
        except subprocess.TimeoutExpired:
            for child in children:
                child.kill()
                child.wait()
            return [""] * gpus

    def link_rates(self, rounds, gpus=1):
        """What bench/link says of bare copies: {name: (median, least, most)}, as bars.lines_of() has it; measured once. With
        more GPUs, of the slowest while the links of all are busy."""
        if gpus not in self.bare_rates:
            command = [self.tool("bench/link"), str(rounds)]
            if gpus == 1:
                found = [bars.lines_of(self.run("link", command, limit=60)[0].output)]
            else:
                found = [bars.lines_of(said) for said in self.at_once(command, dict(os.environ), gpus)]
            self.bare_rates[gpus] = {name: min(rates[name] for rates in found) for name in found[0]
                                     if all(name in rates for rates in found)}
        return self.bare_rates[gpus]

    def add(self, what, value, bar=None, text="", **more):
        row = bars.Bar(self.part, what, value, bar, text, **more)
        self.rows.append(row)
        print("  " + " | ".join(str(cell) for cell in row.row()), flush=True)
        with open(self.options.log + ".json", "a") as file:
            file.write(json.dumps({**row.__dict__, "verdict": row.verdict}) + "\n")

    def failed(self, what, bar, result, least=False):
        said = [line for line in result.output.splitlines() if line.startswith("spillway:")][-1:]
        self.add(what, None, bar, f"{result.status} {' '.join(said)[:150]}", least=least)

    def run_part(self, part):
        self.part, self.part_end = part, time.monotonic() + self.PARTS[part]
        print(f"{part}:", flush=True)
        try:
            getattr(self, part)()
        except Exception as error:  # a broken part must not take the others' results along
            self.add(f"{part} broke off", None, 0, f"{type(error).__name__}: {error}")


def settings(mode, need, ratio):
    """Of a run whose budget is its need / ratio."""
    return {"device.budget": f"{int(need / ratio) >> 20}MiB", "spill.mode": mode}


def sides_of_round(sides, i):
    """The sides in the order of round i: each is the first one in every second round."""
    return list(sides)[::1 if i % 2 else -1]


def last_median(steps):
    """ms, of the last half of the steps; None: there are none."""
    return statistics.median(bars.last_half(steps.ms)) if steps.complete else None


def parser(seconds=530):
    """With what all of the scripts take."""
    result = argparse.ArgumentParser()
    result.add_argument("--build", required=True)
    result.add_argument("--log", required=True)
    result.add_argument("--seconds", type=float, default=seconds, help="for all together")
    result.add_argument("--scripts", default=HERE, help="the folder of the jobs")
    return result


def main(kind, arguments):
    """Run a script: its class, and its parser (without the parts)."""
    arguments.add_argument("parts", nargs="*" if kind.DEFAULT else "+")
    options = arguments.parse_args()
    options.parts = options.parts or kind.DEFAULT
    if unknown := [part for part in options.parts if part not in kind.PARTS]:
        arguments.error(f"there is no part {unknown[0]}; there are {' '.join(kind.PARTS)}")
    options.build = os.path.abspath(options.build)
    bench = kind(options)
    for part in options.parts:
        bench.run_part(part)
    print()
    harness.table([bars.HEAD] + [row.row() for row in bench.rows])
    sys.exit(1 if any(row.bar is not None and row.verdict in ("MISS", "n/a") for row in bench.rows) else 0)
