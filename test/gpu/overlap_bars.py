# SPDX-License-Identifier: Apache-2.0
"""What kernels that overlap by programmatic dependent launch (PDL) do to memory behind the link, on a real GPU.

    python overlap_bars.py --build BUILD --work FOLDER [--runs 30] [--at-once 4] [--seconds 500]
                           [--job "THREADS ITERATIONS TRIALS SIZE"] [PART...]

Parts, all when none is named:
  proof   pdl_check natively and with submit.pdl=off: is work that is said to be done done? Is the overlap cleared?
  cost    pdl_check cost: short kernels that allow overlap, natively and under Spillway, spilled and not, kept and cleared
  race    sparse_job.py, RUNS processes an arm: natively in pinned host memory, and spilled, with PDL kept and cleared.
          In the native arms Spillway records no event between kernels (policy passthrough, or no Spillway at all).

FOLDER takes what is compiled here (nvcc, gcc). The table comes last.
"""
import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import time

import harness

HERE = os.path.dirname(os.path.abspath(__file__))


def compile_all(work, nvcc):
    home = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    check, plug = os.path.join(work, "pdl_check"), os.path.join(work, "host_plug.so")
    subprocess.run([nvcc, "-arch=sm_90", "-O2", "-o", check, os.path.join(HERE, "pdl_check.cu"), "-lcuda"], check=True)
    stubs = next((folder for folder in (f"{home}/lib64/stubs", f"{home}/lib/stubs",
                                        f"{home}/targets/x86_64-linux/lib/stubs") if os.path.isdir(folder)), "/usr/lib")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", f"-I{home}/include", f"-L{stubs}", "-o", plug,
                    os.path.join(HERE, "host_plug.c"), "-lcuda"], check=True)
    return check, plug


def spilled(build, mode, pdl, budget):
    return harness.shim_environment(build, {"spill.mode": mode, "device.budget": budget, "submit.pdl": pdl})


def arms(build, plug, budget):
    """(name, environment) of each arm of the race."""
    through = {"LD_PRELOAD": os.path.join(build, "libspillway.so"), "SPILLWAY_POLICY": "passthrough"}
    yield "device memory, kept", {}
    yield "pinned, kept, no Spillway", {"HOST_PLUG": plug}
    yield "pinned, cleared", {"HOST_PLUG": plug, **through, "SPILLWAY_SET": "submit.pdl=off"}
    for mode in ("static", "exact", "fast"):
        yield f"spilled {mode}, kept", spilled(build, mode, "keep", budget)
        yield f"spilled {mode}, cleared", spilled(build, mode, "auto", budget)


def word_of(result):
    if result.status == "ok":
        return "good"
    return "wrong" if result.status == "exit 4" else "failed" if result.status == "exit 3" else result.status


def race(options, plug, log, deadline):
    job = [sys.executable, os.path.join(HERE, "sparse_job.py"), *options.job.split()]
    lines = []
    chosen = [arm for arm in arms(options.build, plug, options.budget) if not options.arms or any(
        part in arm[0] for part in options.arms.split("|"))]
    for name, environment in chosen:
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            results = list(pool.map(lambda _: harness.run(job, environment, min(90, deadline - time.monotonic())),
                                    range(options.runs)))
        words = [word_of(result) for result in results]
        for result in results:
            log.write(f"==== {name}: {result.status}, {result.seconds:.1f} s\n{result.output}\n")
        tally = ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
        seen = sum("SPILLING BEGINS" in result.output for result in results)
        lines.append(f"{name:28} {len(words):3} runs: {tally}" + (f"; spilled in {seen}" if seen else ""))
        print(lines[-1], flush=True)
    return lines


def proof(options, check, log):
    lines = []
    cleared = harness.shim_environment(options.build, {"submit.pdl": "off"})
    for name, environment in (("natively", {}), ("submit.pdl=off", cleared)):
        result = harness.run([check], environment, 120)
        log.write(f"==== proof {name}: {result.status}\n{result.output}\n")
        lines += [f"{name:16} {line}" for line in result.output.splitlines() if line.startswith("pdl_check:")]
    return lines


def cost(options, check, log):
    """In turn, so that the machine's drift is everybody's."""
    arms = [("natively, kept", {}, []), ("fits, auto", harness.shim_environment(options.build, {}), [])]
    for mode in ("static", "exact", "fast"):
        for pdl in ("keep", "auto"):
            arms.append((f"spilled {mode}, {pdl}", spilled(options.build, mode, pdl, "128MiB"), []))
    for _ in range(5):
        for name, environment, figures in arms:
            # 160 MiB that are allocated first and not used: over the budget.
            result = harness.run([check, "cost", "160"], environment, 60)
            log.write(f"==== cost {name}: {result.status}\n{result.output}\n")
            figures += [line.split()[2:] for line in result.output.splitlines() if line.startswith("cost launch")]
    lines = []
    for name, _, figures in arms:
        if figures:
            columns = [sorted(float(figure[i]) for figure in figures) for i in range(2)]
            lines.append(f"{name:22}" + "".join(
                f"  {what} {column[len(column) // 2]:.3f} us ({column[0]:.3f} to {column[-1]:.3f})"
                for what, column in zip(("launch", "kernel"), columns)))
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--work", default="gpu-out")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--job", default="2 300 2 128")
    parser.add_argument("--budget", default="2MiB")
    parser.add_argument("--arms", default="", help="parts of names, | between them")
    parser.add_argument("parts", nargs="*", default=[])
    options = parser.parse_args()
    options.build, deadline = os.path.abspath(options.build), time.monotonic() + options.seconds
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    os.makedirs(options.work, exist_ok=True)
    check, plug = compile_all(os.path.abspath(options.work), nvcc)
    tables = []
    with open(os.path.join(options.work, "overlap.log"), "w") as log:
        for part in options.parts or ["proof", "cost", "race"]:
            run = {"proof": lambda: proof(options, check, log), "cost": lambda: cost(options, check, log),
                   "race": lambda: race(options, plug, log, deadline)}[part]
            tables.append((part, run()))
    for part, lines in tables:
        print(f"\n{part}\n" + "\n".join(lines))


main()
