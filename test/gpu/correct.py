# SPDX-License-Identifier: Apache-2.0
"""Are results right while memory moves? python correct.py --build BUILD --log FILE [--seconds N] [--modes M,...]
[--ratios R,...] [--apps A,...] [--contents alive|poison|keep]

Each program runs natively twice (the second tells how equal native runs are), then in every mode with need / ratio of
device memory. Oversubscription is by Spillway's budget alone. In `fast`, a program whose pointers no launch shows may be
stopped, if it is told why; nothing may ever come out wrong.
Exit status: 0 all equal (or stopped as defined), 1 not.
"""
import argparse
import concurrent.futures
import os
import sys
import tempfile
import threading
import time

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
ONE_RUN = 100  # seconds, at most

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--log", required=True)
parser.add_argument("--seconds", type=float, default=300, help="for all together")
parser.add_argument("--at-once", type=int, default=3)
parser.add_argument("--modes", type=lambda t: t.split(","), default=["exact", "fast"])
parser.add_argument("--ratios", type=lambda t: [float(w) for w in t.split(",")], default=[1.5, 2.0])
parser.add_argument("--apps", type=lambda t: t.split(","), default=[])
parser.add_argument("--contents", choices=["alive", "poison", "keep"], help="of memory that is not alive (policy)")
parser.add_argument("--scripts", default=HERE, help="the folder of the jobs")
options = parser.parse_args()
options.build = os.path.abspath(options.build)
deadline = time.monotonic() + options.seconds
scratch = tempfile.TemporaryDirectory()
lock = threading.Lock()


def python(script, *arguments):
    return [sys.executable, os.path.join(options.scripts, script), *arguments]


COMPILED = {"TORCHINDUCTOR_CACHE_DIR": scratch.name + "/inductor", "TRITON_CACHE_DIR": scratch.name + "/triton"}

# name: (command, environment, may `fast` stop it?)
APPS = {
    "eager": (python("torch_job.py", "eager"), {}, False),
    "graph": (python("torch_job.py", "graph"), {}, False),
    "compile": (python("torch_job.py", "compile"), COMPILED, False),
    "grouped": (python("torch_more.py", "grouped"), {}, True),
    "threads": (python("torch_more.py", "threads"), {}, False),
    "trees": (python("torch_alive.py", "trees"), COMPILED, False),
    "ddp": (python("torch_alive.py", "ddp"), {}, False),
    "fsdp": (python("torch_alive.py", "fsdp"), {}, False),
    "generate": (python("torch_alive.py", "generate"), {}, False),
    "infer": (python("torch_alive.py", "infer"), {}, False),
    "cupy": (python("cupy_job.py"), {"CUPY_CACHE_DIR": scratch.name + "/cupy"}, False),
}


def run(name, variant, settings=None):
    command, environment, _ = APPS[name]
    if settings is not None:
        environment = {**environment, **harness.shim_environment(options.build, settings)}
    result = harness.run(command, environment, min(ONE_RUN, deadline - time.monotonic()))
    with lock, open(options.log, "a") as file:
        file.write(f"==== {name}, {variant}: {result.status}, {result.seconds:.1f} s: {environment}\n{result.output[-20000:]}\n")
    return result


def verdict(name, natives, mode, result):
    """(text, good)"""
    if f"spill {mode}" not in result.output and result.status == "ok":
        return "NOT SERVED in this mode", False
    if mode == "fast" and APPS[name][2] and harness.stopped(result):
        return "stopped, and told why", True
    if result.status != "ok":
        said = [line for line in result.output.splitlines() if line.startswith("spillway:")]
        return f"{result.status}: {(said or [''])[-1][:120]}", False
    text = harness.compare(*natives, result)
    return text, text == "bit for bit" or text.startswith("within")


def run_app(name):
    natives = [run(name, f"native {i}") for i in (1, 2)]
    if any(native.status != "ok" or not native.need for native in natives):
        return [([name, "native", natives[0].status, "", "nothing to compare with"], False)]
    rows = [([name, "native", f"ok {natives[0].seconds:.0f} s", f"need {natives[0].need >> 20} MiB",
              harness.compare(natives[0], natives[0], natives[1])], True)]
    for mode in options.modes:
        for ratio in options.ratios:
            budget = int(natives[0].need / ratio) >> 20
            settings = {"device.budget": f"{budget}MiB", "spill.mode": mode}
            if options.contents:
                settings["contents"] = options.contents
            result = run(name, f"{mode} {ratio}", settings)
            text, good = verdict(name, natives, mode, result)
            rows.append(([name, f"{mode} {ratio}", f"{result.status} {result.seconds:.0f} s", result.spilled or "n/a", text], good))
            print("  " + " | ".join(rows[-1][0]), flush=True)
    return rows


names = options.apps or list(APPS)
unknown = [name for name in names if name not in APPS]
if unknown:
    sys.exit(f"correct.py: no app {unknown[0]}; there are {', '.join(APPS)}")
with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
    results = [row for rows in pool.map(run_app, names) for row in rows]
harness.table([["app", "mode", "run", "peak spilled", "equal to native?"]] + [row for row, _ in results])
sys.exit(0 if all(good for _, good in results) else 1)
