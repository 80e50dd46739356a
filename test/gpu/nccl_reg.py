# SPDX-License-Identifier: Apache-2.0
"""Does what NCCL registers, and what leaves the process, stay where it is, and is all of it right?
python nccl_reg.py --build BUILD --log FILE [--seconds N] [--ranks N] [--modes M,...] [--ratio R]

The job (reg_job.py) runs natively, then with room for all of it and with need / ratio of device memory, in two ways:

  as it is    policy heap: what NCCL registers cannot be exported; it may move, and NCCL goes on without that
  exported    the blocks of one size never move (movable: no) and ipc: yes: NCCL and the job itself export them

One line a case. Exit status: 0 all good, 1 not, 77 nothing to run on.
"""
import argparse
import concurrent.futures
import glob
import os
import re
import sys
import tempfile
import threading
import time

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
ONE_RUN = 100  # seconds, at most
POLICY = """version: 1
include: heap
ipc: yes
rules:
  - name: what is exported
    match.size: 96MiB .. 96MiB
    use: heap
    movable: no
"""

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--log", required=True)
parser.add_argument("--seconds", type=float, default=200, help="for all together")
parser.add_argument("--at-once", type=int, default=3)
parser.add_argument("--modes", type=lambda t: t.split(","), default=["static", "exact", "fast"])
parser.add_argument("--ratio", type=float, default=1.5)
parser.add_argument("--ranks", type=int, default=min(2, len(glob.glob("/dev/nvidia[0-9]*"))))
parser.add_argument("--scripts", default=HERE, help="the folder of the job")
options = parser.parse_args()
options.build = os.path.abspath(options.build)
deadline = time.monotonic() + options.seconds
scratch = tempfile.TemporaryDirectory()
policy = os.path.join(scratch.name, "exported.yaml")
lock = threading.Lock()
with open(policy, "w") as policy_file:
    policy_file.write(POLICY)


def run(name, environment):
    command = [sys.executable, os.path.join(options.scripts, "reg_job.py"), "all", str(options.ranks)]
    result = harness.run(command, environment, min(ONE_RUN, deadline - time.monotonic()))
    with lock, open(options.log, "a") as file:
        file.write(f"==== {name}: {result.status}, {result.seconds:.1f} s: {environment}\n{result.output[-40000:]}\n")
    return result


def verdict(native, mode, result):
    """(text, good)"""
    wrong = re.findall(r"^own (\S+) BAD(.*)$", result.output, re.MULTILINE)
    if wrong:
        return "; ".join(name + text[:90] for name, text in wrong[:3]), False
    if result.status != "ok":
        said = [line for line in result.output.splitlines() if line.startswith("spillway:") or "Error" in line]
        return (said or [""])[-1][:120], False
    if f"spill {mode}" not in result.output:
        return "NOT SERVED in this mode", False
    text = harness.compare(native, native, result)
    stayed = sorted(set(re.findall(r"^own stays\.(.*)\.\d+ good", result.output, re.MULTILINE)))
    return f"values {text}; stayed: {', '.join(stayed) or 'none had to'}", text == "bit for bit"


def case(native, way, mode, ratio):
    settings = {"device.budget": f"{int(native.need / ratio) >> 20}MiB", "spill.mode": mode}
    environment = harness.shim_environment(options.build, settings)
    if way == "exported":
        environment = {**environment, "SPILLWAY_POLICY": policy, "REG_FIXED": "1", "NCCL_LEGACY_CUDA_REGISTER": "1"}
    name = f"{way}, {mode}, need / {ratio:g}"
    result = run(name, environment)
    text, good = verdict(native, mode, result)
    moved = re.search(r"^spillway: +(moved .*? to the host)", result.output, re.MULTILINE)
    what = moved[1] if moved else "nothing moved"
    row = [name, f"{result.status} {result.seconds:.0f} s", result.spilled or "n/a", what, text]
    print("  " + " | ".join(row), flush=True)
    return row, good


def main():
    if not options.ranks:
        print("nccl_reg: no GPU")
        return 77
    native = run("native", {})
    print(f"  native, {options.ranks} ranks | {native.status} {native.seconds:.0f} s | need {native.need >> 20} MiB | "
          f"{native.checks}", flush=True)
    if native.status != "ok" or not native.need:
        return 77 if native.status == "exit 77" else 1
    cases = [(way, mode, ratio) for way in ("as it is", "exported")
             for mode, ratio in [("exact", 0.25), *((mode, options.ratio) for mode in options.modes)]]
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        rows = list(pool.map(lambda arguments: case(native, *arguments), cases))
    harness.table([["case", "run", "peak spilled", "moved", "what was seen"]] + [row for row, _ in rows])
    return 0 if all(good for _, good in rows) else 1


sys.exit(main())
