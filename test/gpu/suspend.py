# SPDX-License-Identifier: Apache-2.0
"""Suspend and resume, of memory alone (how long it takes) and of a training job (does it go on with the same losses;
how long does it take between two steps, when little of what it has reserved is alive)."""
import json
import os
import statistics
import subprocess
import threading
import time

import bars
import harness
import parts

WAIT = 60  # seconds for anything


class Job:
    """A program that runs beside us; every line that it prints is kept with the time it came."""

    def __init__(self, command, environment, stdin=subprocess.DEVNULL):
        self.child = subprocess.Popen(command, env={**os.environ, **environment}, text=True, errors="replace",
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=stdin,
                                      start_new_session=True)
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def output(self):
        return "\n".join(line for _, line in self.lines)

    def step_times(self):
        return [when for when, line in list(self.lines) if line.startswith("each ")]

    def wait_steps(self, n, seconds=WAIT):
        end = time.monotonic() + seconds
        while len(self.step_times()) < n and time.monotonic() < end and self.child.poll() is None:
            time.sleep(0.002)
        return len(self.step_times()) >= n

    def finish(self, seconds=WAIT):
        try:
            self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            return "timeout"
        self.reader.join(5)
        return harness.status_of(self.child.returncode, self.output())

    def end(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, 9)
            self.child.wait()


def used_mib():
    """In use on the GPU, by anyone; None when nobody says."""
    try:
        answer = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                capture_output=True, text=True)
    except OSError:
        return None
    words = answer.stdout.split()
    return int(words[0]) if words and words[0].isdigit() else None


def command(bench, verb, job):
    """(seconds it took, did it work)"""
    start = time.monotonic()
    tool = [bench.tool("spillway"), verb, str(job.child.pid)]
    answer = subprocess.run(tool, capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL)
    took = time.monotonic() - start
    bench.log(f"{' '.join(tool)}: {answer.returncode}, {took:.3f} s", answer.stdout + answer.stderr)
    return took, answer.returncode == 0


def back_after(times, resumed, usual):
    """Seconds from the resume until the job steps as it did before, less what its steps take anyway: times are the
    moments its steps ended, usual the time of one. None: it has not come that far."""
    after = [t for t in times if t > resumed]
    for i in range(len(after) - 2):
        if all(after[k + 1] - after[k] <= 1.15 * usual + 0.002 for k in (i, i + 1)):
            return max(after[i] - resumed - (i + 1) * usual, 0)
    return None


def cycle(bench, job, name, need):
    """One suspend and resume: (seconds to suspend, seconds until all is back), or None and a row that says why."""
    before = job.step_times()
    usual = statistics.median(b - a for a, b in zip(before[-10:], before[-9:]))
    held = used_mib()
    out, good = command(bench, "suspend", job)
    if not good:
        bench.add(f"{name}: suspend", None, 1.3, "the tool failed")
        return None
    time.sleep(0.5)
    n, left = len(job.step_times()), used_mib()
    time.sleep(1)
    stood = len(job.step_times()) == n
    start = time.monotonic()
    _, good = command(bench, "resume", job)
    if not good or not job.wait_steps(n + 12):
        bench.add(f"{name}: resume", None, 1.3, "the tool failed, or the job did not go on")
        return None
    back = back_after(job.step_times(), start, usual)
    given = held - left if held is not None and left is not None else None
    bench.add(f"{name}: stood still", float(stood), 1, least=True)
    bench.add(f"{name}: memory given back / held", given * (1 << 20) / need if given is not None else None, 0.95,
              f"{held} -> {left} MiB in use on the GPU", least=True)
    return out, back


def memory_bars(bench):
    gib = 10
    environment = harness.shim_environment(bench.options.build, {"spill.mode": "exact"})
    job = Job(bench.python("spill_jobs.py", "hold", gib), environment)
    try:
        if not job.wait_steps(12):
            bench.add(f"{gib} GiB", None, 1.3, "the job did not start: " + job.output()[-150:])
            return
        rates = bench.link_rates(3)
        need = bars.steps_of(job.output()).need or gib << 30
        ideal = [need / 1e9 / rates.get(name, (55,))[0] for name in ("vmm_out_64", "vmm_in_64")]
        cycles = [cycle(bench, job, f"{gib} GiB, {which} time", need) for which in ("first", "second")]
        for which, result in zip(("first", "second"), cycles):
            for verb, took, least in zip(("suspend", "resume"), result or (), ideal):
                # The first time the host memory is pinned as well, which the bar leaves aside.
                bench.add(f"{gib} GiB, {which} time: {verb} / link", took and took / least,
                          1.3 if which == "second" else None, f"{took:.3f} s / {least:.3f}" if took else "never as before")
        if all(cycles):
            bench.add("pinning adds to the first suspend", cycles[0][0] - cycles[1][0], None,
                      f"bare: {bench.pinning() * gib / 1e3:.2f} s", unit=" s")
    finally:
        job.child.terminate()  # it has no end of its own
        time.sleep(0.2)
        job.end()
        bench.log("hold", job.output())
    wrong = [line for _, line in job.lines if line.startswith("wrong")]
    bench.add(f"{gib} GiB: every byte as it was", float(not wrong), 1, " ".join(wrong[:1])[:150], least=True)


def training_bars(bench):
    """A job that spills, suspended in mid-step; its losses against native ones. Its kernels are deterministic."""
    command_line = bench.deterministic_command()
    natives = bench.native("gpt with deterministic kernels", command_line)
    if len(natives) < 2:
        return
    for mode in bench.options.modes:
        settings = parts.settings(mode, natives[0].need, 1.25)
        job = Job(command_line, harness.shim_environment(bench.options.build, settings))
        try:
            good = job.wait_steps(6)
            for verb in ("suspend", "resume"):
                good = good and command(bench, verb, job)[1]
                time.sleep(1)
            status = job.finish()
        finally:
            job.end()
            bench.log(f"gpt suspended, {mode}", job.output())
        if not good or status != "ok":
            bench.add(f"gpt suspended {mode}: losses equal", None, 1, f"{status}, commands {'ok' if good else 'failed'}",
                      least=True)
        else:
            bench.losses(f"gpt suspended {mode}", natives, bars.steps_of(job.output()))


def counters_of(bench, job):
    """What has moved so far; {} when nobody says."""
    tool = [bench.tool("spillway"), "top", "--once", "--json"]
    try:
        answer = subprocess.run(tool, capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL)
        processes = json.loads(answer.stdout)["processes"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        return {}
    return next((process["counters"] for process in processes if process.get("pid") == job.child.pid), {})


def cycle_between_steps(bench, job, name, bar):
    """One suspend right after a step, and a resume; False if it did not work."""
    before, held = counters_of(bench, job), used_mib()  # takes a while, and little leaves meanwhile
    n = len(job.step_times())
    if not job.wait_steps(n + 1):
        bench.add(f"{name}: suspend", None, bar, "the job did not go on")
        return False
    time.sleep(0.1)  # it has said what is alive, and does nothing for a while
    alive = [int(line.split()[1]) for _, line in list(job.lines) if line.startswith("alive ")][-1:]
    took, good = command(bench, "suspend", job)
    if not good:
        bench.add(f"{name}: suspend", None, bar, "the tool failed")
        return False
    after, left = counters_of(bench, job), used_mib()
    moved, dead = (after.get(key, 0) - before.get(key, 0) for key in ("moved_out_bytes", "dead_bytes"))
    bench.add(f"{name}: suspend", took, bar, f"{(moved - dead) / (1 << 30):.2f} of {moved / (1 << 30):.2f} GiB copied; "
              f"{held} -> {left} MiB in use on the GPU", unit=" s")
    if alive and moved:
        bench.add(f"{name}: copied / alive", (moved - dead) / alive[0], 1.1, f"alive: {alive[0] / (1 << 30):.2f} GiB")
    n, start = len(job.step_times()), time.monotonic()
    took, good = command(bench, "resume", job)
    if not good or not job.wait_steps(n + 2):
        bench.add(f"{name}: resume", None, None, "the tool failed, or the job did not go on")
        return False
    bench.add(f"{name}: resume", took, None, f"{job.step_times()[n] - start:.2f} s until the end of the next step, of "
              "which it pauses up to 1", unit=" s")
    return True


def step_end_bars(bench):
    """A job with room for all of it, so that nothing has spilled before the first suspension. Between its steps,
    half of what it has reserved is alive. The first time host memory is pinned as well, which the bar leaves aside."""
    natives = bench.native("gpt with deterministic kernels", bench.deterministic_command())
    if len(natives) < 2:
        return
    for mode in bench.options.modes:
        environment = harness.shim_environment(bench.options.build, {"spill.mode": mode})
        job = Job([*bench.deterministic_command(), "pause"], environment)
        try:
            good = job.wait_steps(4)
            for which, bar in ("first", None), ("second", 0.15), ("third", 0.15):
                good = good and cycle_between_steps(bench, job, f"gpt at a step's end, {mode}, {which} time", bar)
            status = job.finish()
        finally:
            job.end()
            bench.log(f"gpt suspended between steps, {mode}", job.output())
        name = f"gpt suspended between steps, {mode}"
        if not good or status != "ok":
            bench.add(f"{name}: losses equal", None, 1, status, least=True)
        else:
            bench.losses(name, natives, bars.steps_of(job.output()))


def bars_of(bench):
    memory_bars(bench)
    step_end_bars(bench)
    training_bars(bench)
