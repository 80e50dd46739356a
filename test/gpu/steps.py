# SPDX-License-Identifier: Apache-2.0
"""The step time of a job that prints "N ms/step", natively and under Spillway in turn:
python steps.py --build BUILD --log FILE [--times 3] [--seconds N] COMMAND..."""
import argparse
import re
import statistics
import time

import harness

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--log", required=True)
parser.add_argument("--times", type=int, default=3)
parser.add_argument("--seconds", type=float, default=200)
parser.add_argument("command", nargs=argparse.REMAINDER)
options = parser.parse_args()
deadline = time.monotonic() + options.seconds

times = {"native": [], "shim": []}
losses = {"native": [], "shim": []}
for _ in range(options.times):
    for side in times:
        environment = harness.shim_environment(options.build, {}) if side == "shim" else {}
        result = harness.run(options.command, environment, min(90, deadline - time.monotonic()))
        with open(options.log, "a") as file:
            file.write(f"==== {side}: {result.status}, {result.seconds:.1f} s\n{result.output[-20000:]}\n")
        step = re.search(r"([\d.]+) ms/step", result.output)
        loss = re.search(r"loss ([\d.]+)", result.output)
        if result.status == "ok" and step:
            times[side].append(float(step[1]))
            losses[side].append(loss[1] if loss else "?")
        else:
            print(f"{side}: {result.status}")

for side, values in times.items():
    if values:
        print(f"{side}: {statistics.median(values):.2f} ms/step ({min(values):.2f} .. {max(values):.2f}), "
              f"{len(values)} runs, losses {' '.join(losses[side])}")
if times["native"] and times["shim"]:
    ratio = statistics.median(times["shim"]) / statistics.median(times["native"])
    print(f"ratio: x {ratio:.4f} (target: at most x 1.01: {'met' if ratio <= 1.01 else 'NOT met'})")
