# SPDX-License-Identifier: Apache-2.0
"""Real programs on a real GPU, natively and under Spillway: python apps.py --build BUILD --log FILE [--seconds N] [APP...]

Each runs four times: natively twice (the second tells how equal native runs are), under Spillway with room for all, and
under Spillway with half of the device memory that it needed. Oversubscription is by Spillway's budget alone. Rows:
app | native | ample | half budget | peak spilled to the host in that run, by the shim's summary | equal?
Exit status: 0 all equal, 1 not.
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
AMPLE = "16GiB"  # no program here needs more than a quarter of that
ONE_RUN = 100  # seconds, at most

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--log", required=True)
parser.add_argument("--seconds", type=float, default=300, help="for all together")
parser.add_argument("--at-once", type=int, default=3)
parser.add_argument("apps", nargs="*")
options = parser.parse_args()
deadline = time.monotonic() + options.seconds
scratch = tempfile.TemporaryDirectory()


def python(script, *arguments):
    return [sys.executable, os.path.join(HERE, script), *arguments]


def app(command, **environment):
    return command, environment


JAX = python("jax_job.py")
APPS = {
    "torch": app(python("torch_job.py", "eager")),
    "torch-expandable": app(python("torch_job.py", "eager"), PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
    "torch-mallocasync": app(python("torch_job.py", "eager"), PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"),
    "torch-graph": app(python("torch_job.py", "graph")),
    "torch-compile": app(python("torch_job.py", "compile"), TORCHINDUCTOR_CACHE_DIR=scratch.name + "/inductor",
                         TRITON_CACHE_DIR=scratch.name + "/triton"),
    "cupy": app(python("cupy_job.py"), CUPY_CACHE_DIR=scratch.name + "/cupy"),
    "jax": app(JAX, XLA_PYTHON_CLIENT_PREALLOCATE="false"),
    "jax-pool": app(JAX, XLA_PYTHON_CLIENT_MEM_FRACTION="0.03"),
    "nvcc-static": app([os.path.join(options.build, "job", "train_gpu")]),
}

log_lock = threading.Lock()


def log(name, variant, command, environment, result):
    with log_lock, open(options.log, "a") as file:
        settings = " ".join(f"{key}={value}" for key, value in environment.items())
        file.write(f"==== {name}, {variant}: {result.status}, {result.seconds:.1f} s: {settings} {' '.join(command)}\n")
        file.write(result.output[-20000:] + "\n")


def run_variant(name, variant, settings=None):
    command, environment = APPS[name]
    if settings is not None:
        environment = {**environment, **harness.shim_environment(options.build, settings)}
    result = harness.run(command, environment, min(ONE_RUN, deadline - time.monotonic()))
    log(name, variant, command, environment, result)
    return result


def cell(result):
    return f"{result.status} {result.seconds:.0f} s"


def run_app(name):
    native = [run_variant(name, f"native {i}") for i in (1, 2)]
    if native[0].status != "ok" or native[1].status != "ok":
        return [name, cell(native[0]), "-", "-", "-", "no native run to compare with"], False
    need = native[0].need
    ample = run_variant(name, "ample", {"device.budget": AMPLE})
    half = run_variant(name, "half", {"device.budget": f"{need // 2 >> 20}MiB"})
    verdicts = [harness.compare(*native, result) for result in (ample, half)]
    text = verdicts[0] if verdicts[0] == verdicts[1] else f"ample: {verdicts[0]}; half: {verdicts[1]}"
    good = all(v == "bit for bit" or v.startswith("within") for v in verdicts) and ample.status == half.status == "ok"
    first = f"{cell(native[0])}, need {need >> 20} MiB"
    return [name, first, cell(ample), cell(half), half.spilled or "n/a", text], good


names = options.apps or list(APPS)
unknown = [name for name in names if name not in APPS]
if unknown:
    sys.exit(f"apps.py: no app {unknown[0]}; there are {', '.join(APPS)}")
with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
    results = list(pool.map(run_app, names))
harness.table([["app", "native", "ample", "half budget", "peak spilled", "equal?"]] + [row for row, _ in results])
sys.exit(0 if all(good for _, good in results) else 1)
