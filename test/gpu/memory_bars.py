# SPDX-License-Identifier: Apache-2.0
"""The kinds of memory on a real GPU: python memory_bars.py --build BUILD --log FILE [--seconds N] [PART...]

  off      what Spillway costs a launch when it is switched off (SPILLWAY=0)
  plugs    the allocator functions for PyTorch and CuPy; tensors shared between two processes
  view     managed memory at one address for the CPU, CuPy and PyTorch
  managed  a small job in managed memory, prefetched and raw; in memory of the system: step / native, losses
  vmm      virtual memory management of the program's own, vmm.spill: move: a GPT job of PyTorch with expandable_segments,
           step / native, fitting and at 1.5 times the budget; JAX with its pool at 1.5: losses
  async    a GPT job on cudaMallocAsync, with async.use auto and heap: step / native, fitting and at 1.5 times the budget
  onuse    a program reserves nine tenths of the device with place: on-use, and uses a third, with half of it as the budget:
           nothing spills; and once more with a pointer of unknown reach, which takes all
  llm      a language model generates; need 1.5 times the budget, policy inference: tokens a second / static
  tools    compute-sanitizer, nsys and cuda-gdb with Spillway in front of a program

Managed and system memory stay below 256 MiB; oversubscription is by Spillway's device.budget alone. Rows: parts.py.
"""
import itertools
import os
import re
import shutil
import statistics
import subprocess

import bars
import harness
import parts
from parts import last_median, settings

SUM = "sum 68719476736.0"  # of the product that the plugs' jobs compute
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}


class Memory(parts.Parts):
    PARTS = {"off": 40, "plugs": 100, "view": 60, "managed": 150, "vmm": 200, "async": 300, "onuse": 120, "llm": 250, "tools": 120}
    DEFAULT = list(PARTS)

    def good(self, what, good, text=""):
        self.add(what, float(good), 1, text, least=True)

    def off(self):
        result, _ = self.run("launch, switched off", [self.tool("bench/bench"), "launch"], {}, {"SPILLWAY": "0"}, limit=40)
        found = bars.lines_of(result.output)
        median, least, most = found.get("linked_launch_added", (None, 0, 0))
        self.add("SPILLWAY=0: added to a launch of a program linked with the driver", median, 10,
                 f"{least:.1f} .. {most:.1f}", near=least, unit=" ns")
        self.good("SPILLWAY=0: dlsym gives the driver's own function", "launch" in found and "launch_added" not in found)

    def plugs(self):
        for name in ("torch_plug.py", "cupy_plug.py"):
            result, _ = self.run(name, self.python(name), {})
            served = re.search(r"the heap held ([\d.]+) ([MG])iB", result.output)
            self.good(f"{name}: the product is right, in the heap", result.status == "ok" and SUM in result.output and bool(served),
                      result.status + (f", {served[0]}" if served else ", nothing served"))
        result, _ = self.run("ipc_job.py", self.python("ipc_job.py"), {"ipc": "yes"})
        self.good("ipc_job.py: each side reads what the other wrote", result.status == "ok", result.status)

    def view(self):
        result, _ = self.run("view", self.python("memory_jobs.py", "view"), {}, {"SPILLWAY_POLICY": "managed"})
        good = result.status == "ok" and list(result.checks.values()) == ["equal"] * 3
        self.good("CPU, CuPy and PyTorch see each other's writes", good, f"{result.status} {result.checks}")

    # ---- a small job ----

    def managed(self):
        command = self.python("memory_jobs.py", "small", 30)
        sides = {"native": (None, None, None), "managed, prefetched": ({"managed.prefetch": "on-alloc"}, "managed", 1.05),
                 "managed, raw": ({}, "managed", None), "system": ({}, "system", None)}
        times, first = {side: [] for side in sides}, None
        for _ in range(self.options.rounds):
            for side, (own, policy, _) in sides.items():
                result, steps = self.run(side, command, own, {"SPILLWAY_POLICY": policy} if policy else None)
                if result.status != "ok" or not steps.complete:
                    continue
                first = first or steps
                times[side].append(last_median(steps))
                if steps.losses != first.losses:
                    self.good(f"{side}: losses equal", False, f"{steps.losses[-1]} for {first.losses[-1]}")
        for side, (own, _, bar) in sides.items():
            if side == "native" or not times["native"]:
                continue
            base = statistics.median(times["native"])
            median, least, most = bars.spread(times[side]) if times[side] else (None, 0, 0)
            self.add(f"{side}: step / native", median and median / base, bar,
                     f"{median or 0:.2f} ({least:.2f} .. {most:.2f}) / {base:.2f} ms, losses equal", near=least / base)

    # ---- virtual memory management of the program's own ----

    def vmm(self):
        self.expandable()
        self.jax_pool()

    def expandable(self):
        command = [*self.python("gpt.py", "1536", "16", "8", self.options.steps), "each"]
        natives = [self.run("native", command, None, EXPANDABLE)[1] for _ in range(2)]
        if not all(steps.complete and steps.need for steps in natives):
            self.add("expandable_segments, native", None, 0)
            return
        base = statistics.median(last_median(steps) for steps in natives)
        move, need = {"vmm.spill": "move"}, natives[0].need
        sides = {"fits": (move, EXPANDABLE), **{f"{mode} 1.5": ({**settings(mode, need, 1.5), **move}, EXPANDABLE)
                                                for mode in ("exact", "fast", "static")},
                 "exact 1.5, cudaMalloc": (settings("exact", need, 1.5), {})}
        for side, (own, env) in sides.items():
            result, steps = self.run(side, command, own, env)
            if result.status != "ok" or not steps.complete:
                self.failed(f"expandable_segments, {side}: step / native", None, result)
                continue
            good, text = bars.losses_equal([native.losses for native in natives], steps.losses)
            self.good(f"expandable_segments, {side}: losses equal", good, text)
            self.add(f"expandable_segments, {side}: step / native", last_median(steps) / base, 1.01 if side == "fits" else None,
                     f"{last_median(steps):.1f} / {base:.1f} ms, need {need >> 20} MiB, spilled {result.spilled}")

    def jax_pool(self):
        command = self.python("jax_job.py")
        env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        (native, _), (again, _) = self.run("native", command, None, env), self.run("native again", command, None, env)
        if native.status != "ok":
            self.failed("JAX, native", None, native)
            return
        for mode in ("exact", "fast"):
            result, _ = self.run(mode, command, {**settings(mode, native.need, 1.5), "vmm.spill": "move"}, env)
            text = harness.compare(native, again, result) if result.status == "ok" else result.status
            self.good(f"JAX's pool, {mode} 1.5: losses equal", text.startswith(("bit", "within")),
                      f"{text}, need {native.need >> 20} MiB, spilled {result.spilled}")

    # ---- stream-ordered allocations ----

    def stream_ordered(self):
        command = [*self.python("gpt.py", "1536", "16", "8", self.options.steps), "each"]
        natives = [self.run("native", command, None, ASYNC)[1] for _ in range(2)]
        if not all(steps.complete and steps.need for steps in natives):
            self.add("native", None, 0)
            return
        base = statistics.median(last_median(steps) for steps in natives)
        sides = {"fits": ({}, 1.01), **{f"{mode} 1.5": (settings(mode, natives[0].need, 1.5), None) for mode in ("exact", "fast")}}
        for use, (side, (own, bar)) in itertools.product(self.options.uses, sides.items()):
            name = f"{use}, {side}"
            result, steps = self.run(name, command, {**own, "async.use": use}, ASYNC)
            if result.status != "ok" or not steps.complete:
                self.failed(f"{name}: step / native", bar, result)
                continue
            good, text = bars.losses_equal([native.losses for native in natives], steps.losses)
            self.good(f"{name}: losses equal", good, text)
            self.add(f"{name}: step / native", last_median(steps) / base, bar,
                     f"{last_median(steps):.1f} / {base:.1f} ms, need {natives[0].need >> 20} MiB, spilled {result.spilled}")

    # ---- a language model ----

    def llm(self):
        command = self.python("memory_jobs.py", "llm", self.options.tokens)
        (native, steps), (again, _) = self.run("native", command), self.run("native again", command)
        if native.status != "ok" or not steps.complete:
            self.failed("native", 0, native)
            return
        self.add("native: a token", last_median(steps), None, f"need {native.need >> 20} MiB", unit=" ms")
        base = None
        for name, policy in (("static", "heap"), ("exact", "inference"), ("fast", "inference")):
            result, steps = self.run(name, command, settings(name, native.need, 1.5), {"SPILLWAY_POLICY": policy})
            if result.status != "ok" or not steps.complete:
                self.failed(f"{name} 1.5", None, result)
                continue
            text = harness.compare(native, again, result)
            self.good(f"{name} 1.5: the same tokens", not text.startswith(("DIFFERS", "no result")),
                      text if native.checks == again.checks else "native runs differ, too")
            own = last_median(steps)
            base = base or own
            self.add(f"{name} 1.5: tokens a second / static", base / own, None if name == "static" else 2,
                     f"{own:.0f} ms a token, spilled {result.spilled}", least=True)

    # ---- memory that is taken on use ----

    def onuse(self):
        policy = os.path.join(self.folder.name, "onuse.yaml")
        with open(policy, "w") as file:
            file.write('version: 1\nrules:\n- {match: {size: ">= 64MiB"}, use: heap, place: on-use}\n')
        for mode, arguments in (("exact", []), ("fast", []), ("exact", ["--whole"])):
            name = " ".join(["onuse_job.py", mode, *arguments])
            result, _ = self.run(name, self.python("onuse_job.py", *arguments), {"device.budget": "50%", "spill.mode": mode},
                                 {"SPILLWAY_POLICY": policy})
            wrong = [check for check, text in result.checks.items() if text != "equal"]
            used = re.search(r"^used (\d+)", result.output, re.M)
            self.good(f"{name}: contents and free memory are right", result.status == "ok" and not wrong and len(result.checks) >= 4,
                      f"{result.status} {' '.join(wrong)}" + (f", used {int(used[1]) >> 20} MiB" if used else ""))
            spilled = "SPILLING BEGINS" in result.output
            self.good(f"{name}: " + ("what does not fit spills" if arguments else "nothing spills"), spilled == bool(arguments))

    # ---- tools of others ----

    def tools(self):
        program = [self.tool("bench/bench"), "use"]
        env = {**os.environ, **harness.shim_environment(self.options.build, {})}
        inside = [f"{name}={env[name]}" for name in ("LD_PRELOAD", "SPILLWAY_POLICY", "SPILLWAY_SET")]
        commands = {
            "compute-sanitizer": (["--error-exitcode", "9"], "ERROR SUMMARY: 0 errors"),
            "nsys": (["profile", "--output", os.path.join(self.folder.name, "nsys"), "--force-overwrite", "true"], ""),
            "ncu": (["--clock-control", "none"], ""),
            "cuda-gdb": (["--batch", "--ex", "run", "--args"], "exited normally"),
        }
        for name, (arguments, wanted) in commands.items():
            found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
            if not found:
                self.add(f"{name}: runs a program", None, None, "it is not there")
                continue
            result = subprocess.run([found, *arguments, "env", *inside, *program], capture_output=True, text=True,
                                    errors="replace", timeout=max(5, min(60, self.left())), check=False)
            output = result.stdout + result.stderr
            self.log(f"{name}: {result.returncode}", output)
            good = result.returncode == 0 and wanted in output and "the heap held" in output
            self.good(f"{name}: runs a program under Spillway", good, f"exit status {result.returncode}")


setattr(Memory, "async", Memory.stream_ordered)  # a keyword of the language, and the right word for the part


def arguments():
    parser = parts.parser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--uses", type=lambda t: t.split(","), default=["auto", "heap"], help="of async.use")
    parser.add_argument("--tokens", type=int, default=24)
    return parser


parts.main(Memory, arguments())
