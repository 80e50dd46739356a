# SPDX-License-Identifier: Apache-2.0
"""Other people's tests, natively and under Spillway in each mode, compared test by test:
python others.py --build BUILD --state FOLDER [OPTION...] SUITE...

SUITE is a file of tests, a folder of such files, or a module or package that is installed ("numba.cuda.tests"). Whatever
pytest collects will do; --runner unittest needs no pytest. Every file runs in processes of its own: twice natively, which
tells the tests apart that are unstable by themselves, and once in each mode with --budget of device memory. A process
that crashes, hangs or loses its GPU's context costs the test that was running (crashed, hung, or what it said itself);
the file's other tests run in a new process.

FOLDER keeps what is known, one line a test: called again with the same arguments, it goes on where it was stopped (by
SIGTERM, say) or ran out of --seconds. "NAME (load)" stands for the file itself, "(between tests)" and "(exit)" for what it did then.

Rows of the table: test | natively | mode | there | why. All of them are in FOLDER/differences.txt.
Exit status: 0 no test that is stable natively differs, 1 one does, or a mode spilled nothing (which proves nothing), or no
test passed natively, 2 none does so far, but some have not run yet.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

import bars
import harness

HERE = os.path.dirname(os.path.abspath(__file__))
NATIVE = ["native-1", "native-2"]
LOOK = 0.05  # seconds between two looks at a process
RESTARTS = 200  # of one file; what is left then has not run

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--state", required=True, help="folder of what has run; one for each set of arguments")
parser.add_argument("--modes", type=lambda t: t.split(","), default=["static", "exact", "fast"])
parser.add_argument("--budget", default="16MiB", help="device.budget")
parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further keys of the policy")
parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="environment of every run")
parser.add_argument("--runner", choices=["pytest", "unittest"], default="pytest")
parser.add_argument("--pytest", action="append", default=[], metavar="ARGUMENT", help="a further argument of pytest's, as --pytest=-k --pytest=fft")
parser.add_argument("--skip", action="append", default=[], metavar="REGEX", help="of files and modules, not to run")
parser.add_argument("--every", type=int, default=1, metavar="N", help="one test of N, always the same")
parser.add_argument("--shard", default="1/1", metavar="I/N", help="the I-th of N shares of the files")
parser.add_argument("--jobs", type=int, default=4, help="processes at once")
parser.add_argument("--seconds", type=float, default=500, help="for all together")
parser.add_argument("--test-seconds", type=float, default=60, help="for one test")
parser.add_argument("--load-seconds", type=float, default=120, help="until the first test starts, and from the last to the end")
parser.add_argument("--reasons", action="store_true", help="tests that do not pass must say the same, but for numbers")
parser.add_argument("--no-pressure", action="store_true", help="a mode may spill nothing")
parser.add_argument("--rows", type=int, default=100, help="rows of the table that are printed")
parser.add_argument("suites", nargs="+", metavar="SUITE")


def is_test(name):
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def files_of(folder):
    """Paths of the test files, relative to the folder."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        yield from (os.path.relpath(os.path.join(parent, name), folder) for name in sorted(names) if is_test(name))


def place_of(module):
    """Where an installed module lies, asked in a process of its own, as finding it may import its parents."""
    program = "import importlib.util, sys; s = importlib.util.find_spec(sys.argv[1]); " \
              "print('\\n' + (list(s.submodule_search_locations)[0] if s.submodule_search_locations else s.origin))"
    found = subprocess.run([sys.executable, "-c", program, module], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if found.returncode != 0:
        sys.exit(f"others.py: {module} is neither a file or folder nor an installed module: "
                 f"{(found.stderr.splitlines() or [''])[-1]}")
    return found.stdout.splitlines()[-1]


def targets_of(suite):
    """Files by path, modules of an installed package by name."""
    if os.path.isdir(suite):
        return [os.path.join(os.path.abspath(suite), path) for path in files_of(suite)]
    if os.path.exists(suite):
        return [os.path.abspath(suite)]
    place = place_of(suite)
    if not os.path.isdir(place):
        return [suite]
    return [".".join([suite, *path.removesuffix(".py").split(os.sep)]) for path in files_of(place)]


@dataclass
class Progress:
    """What the log of one file in one variant says."""
    path: str
    ended: dict = field(default_factory=dict)  # ID: (outcome, why)
    running: str = ""
    collected: bool = False
    finished: bool = False
    restart: bool = False
    done: bool = False  # there is nothing left to run
    processes: list = field(default_factory=list)
    seconds: float = 0.0
    changed: float = 0.0  # when a line was last read, by time.monotonic()
    offset: int = 0

    def begin(self):
        """A new process: nothing is known of it."""
        self.read()
        self.running, self.collected, self.finished, self.restart = "", False, False, False
        self.changed = time.monotonic()

    def read(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines[:-1]:  # the last has no end yet
            self.offset += len(line) + 1
            self.changed = time.monotonic()
            self.take(json.loads(line))

    def take(self, event):
        kind = event["event"]
        if kind == "start":
            self.running = event["test"]
        elif kind == "end":
            self.ended[event["test"]] = event["outcome"], event["why"]
            self.seconds += event["seconds"]
            self.running = ""
        elif kind == "process":
            self.processes.append(event)
        else:
            setattr(self, kind, True)  # collected, restart, finished, done

    def write(self, event, **fields):
        with open(self.path, "a") as file:
            file.write(json.dumps({"event": event, **fields}) + "\n")
        self.read()

    def end(self, test, outcome, why):
        self.write("end", test=test, outcome=outcome, why=why, seconds=0)


def said_of(output):
    """What Spillway said in it, as fields of an event: how many processes wrote a summary, did one spill, was it stopped
    by `fast` and told why, bytes moved, bytes on the host at most."""
    moved = [bars.bytes_in(text) or 0 for line in re.findall(r"^spillway: +moved (.*)$", output, re.MULTILINE)
             for text in re.findall(r"([\d.]+ [KMGT]?i?B) to ", line)]
    host = bars.host_peak(output) or 0
    spilled = "SPILLING BEGINS" in output or host > 0 or sum(moved) > 0
    stopped = bool(re.search(r"spillway:.*in transit", output, re.IGNORECASE))
    return {"summaries": len(re.findall(r"^spillway: summary", output, re.MULTILINE)), "spilled": spilled,
            "stopped": stopped, "moved": sum(moved), "host": host}


def reason_of(output):
    """The line that says most about why a process ended."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern in r"spillway:.*in transit.*", r"Fatal Python error.*":  # pytest's dots may stand before it
        told = re.findall(pattern, output, re.IGNORECASE)
        if told:
            return told[-1][:300]
    return lines[-1][:300] if lines else ""


class Runs:
    """All runs of all files, natively and in each mode."""

    def __init__(self, options):
        self.options = options
        self.variants = NATIVE + options.modes
        self.deadline = time.monotonic() + options.seconds
        # The plug-in alone: the other files here would hide modules of those names from the tests.
        self.plug = os.path.join(options.state, "plug")
        os.makedirs(self.plug, exist_ok=True)
        shutil.copy(os.path.join(HERE, "others_plug.py"), self.plug)
        self.lock = threading.Lock()

    def stop(self, *_):
        """As if the time were over: what runs is ended, and counts as not run."""
        self.deadline = 0

    def path(self, target, variant, ending):
        name = re.sub(r"\W+", "_", target)[-80:] + "-" + hashlib.sha256(target.encode()).hexdigest()[:8]
        folder = os.path.join(self.options.state, variant)
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, name + ending)

    def progress(self, target, variant):
        progress = Progress(self.path(target, variant, ".jsonl"))
        progress.read()
        return progress

    def command(self, target):
        if self.options.runner == "unittest":
            return [sys.executable, os.path.join(self.plug, "others_plug.py"), target]
        # Captured in the file descriptors, what Spillway says while a test runs would be lost with the test's output.
        installed = [] if os.path.exists(target) else ["--pyargs", "--import-mode=importlib"]
        return [sys.executable, "-m", "pytest", "-p", "others_plug", "-p", "no:cacheprovider", "-q", "--capture=sys",
                *self.options.pytest, *installed, target]

    def environment(self, variant, log):
        added = dict(setting.split("=", 1) for setting in self.options.env)
        if variant not in NATIVE:
            settings = {"device.budget": self.options.budget, "spill.mode": variant,
                        **dict(setting.split("=", 1) for setting in self.options.set)}
            added.update(harness.shim_environment(self.options.build, settings))
        path = os.pathsep.join(filter(None, [self.plug, added.get("PYTHONPATH", os.environ.get("PYTHONPATH"))]))
        return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **added, "PYTHONPATH": path, "OTHERS_LOG": log,
                "OTHERS_EVERY": str(self.options.every)}

    def is_over(self):
        return time.monotonic() >= self.deadline

    def wait(self, child, progress):
        """"ended", "hung", or "no time" left."""
        while child.poll() is None:
            progress.read()
            limit = self.options.test_seconds if progress.running else self.options.load_seconds
            if self.is_over() or time.monotonic() - progress.changed > limit:
                harness.kill_all(child.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):  # the driver may keep it for a while
                    child.wait(30)
                progress.read()
                return "no time" if self.is_over() else "hung"
            time.sleep(LOOK)
        progress.read()
        return "ended"

    def judge(self, target, progress, how, code, output):
        """What a process that has ended leaves behind, where it did not come to its end as it should."""
        status = harness.status_of(code, "") if how == "ended" else "hung"
        outcome = "hung" if how == "hung" else "crashed" if code < 0 else "error"
        why = f"{status}: {reason_of(output)}"
        if progress.running:
            progress.end(progress.running, "hung" if how == "hung" else "crashed", why)
        elif progress.finished:
            if outcome != "error":
                progress.end(f"{target} (exit)", outcome, why)
            progress.write("done")
        elif not progress.collected:
            progress.end(f"{target} (load)", outcome, why)
            progress.write("done")
        elif not progress.restart:
            progress.end(f"{target} (between tests)", outcome, why)
            if len(progress.processes) > 1 and progress.processes[-2]["ended"] == len(progress.ended):
                progress.write("done")  # it comes to no further test

    def once(self, target, variant, progress):
        """Run what is left of the file in one process."""
        progress.begin()
        output_path = self.path(target, variant, f".{len(progress.processes) + 1}.out")
        with tempfile.TemporaryDirectory() as folder, open(output_path, "wb") as output:
            child = subprocess.Popen(self.command(target), env=self.environment(variant, progress.path), cwd=folder,
                                     stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                     start_new_session=True)
            how = self.wait(child, progress)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # what its tests have left running
        with open(output_path, errors="replace") as file:
            text = file.read()
        progress.write("process", **said_of(text), output=output_path, ended=len(progress.ended))
        if how != "no time":
            self.judge(target, progress, how, child.returncode, text)

    def run(self, target, variant):
        progress = self.progress(target, variant)
        while not progress.done and not self.is_over() and len(progress.processes) < RESTARTS:
            self.once(target, variant, progress)
        if progress.processes and progress.done:
            outcomes = collections.Counter(outcome for outcome, _ in progress.ended.values())
            said = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items()))
            with self.lock:
                print(f"  {variant} {target}: {said}, {len(progress.processes)} processes", flush=True)


def same(first, second, reasons):
    """Two results (outcome, why): are they equal?"""
    if first is None or second is None or first[0] != second[0]:
        return first is second
    if not reasons or first[0] in ("passed", "xpassed", "xfailed"):
        return True
    if first[0] in ("crashed", "hung"):
        return first[1].split(":")[0] == second[1].split(":")[0]  # the signal; what was said last is chance
    plain = [re.sub(r"0x[0-9a-f]+|[\d.]+(e[+-]?\d+)?", "#", why) for _, why in (first, second)]
    return plain[0] == plain[1]


def compare(natives, other, reasons):
    """Of the Progress of one file, twice natively and once in a mode: (rows of tests that differ, those of tests that are
    unstable natively, how many have not run)."""
    differ, unstable, missing = [], [], 0
    one, two = (native.ended for native in natives)
    complete = all(native.done for native in natives)
    strange = one.keys() != two.keys()  # names that change from run to run
    for test in {**one, **two, **other.ended}:
        first, second, there = one.get(test), two.get(test), other.ended.get(test)
        row = [test, first[0] if first else "absent", there[0] if there else "absent", there[1] if there else ""]
        if not complete and not (first and second) or not there and not other.done:
            missing += 1
        elif not same(first, second, reasons) or first is None and strange:
            unstable.append(row)
        elif not same(first, there, reasons):
            differ.append(row)
    return differ, unstable, missing


def report(runs, targets):
    """Prints the table, a line for each mode, and the closing line; returns the exit status."""
    options = runs.options
    all_differ, n_missing, idle = [], 0, []
    passed, unstable_names = 0, set()
    natives = {target: [runs.progress(target, variant) for variant in NATIVE] for target in targets}
    passed = sum(outcome == "passed" for pair in natives.values() for outcome, _ in pair[0].ended.values())
    lines = []
    for mode in options.modes:
        n, gone, processes = 0, 0, []
        mode_differ = 0
        for target in targets:
            progress = runs.progress(target, mode)
            differ, unstable, missing = compare(natives[target], progress, options.reasons)
            all_differ += [[row[0], row[1], mode, *row[2:]] for row in differ]
            mode_differ += len(differ)
            unstable_names.update(row[0] for row in unstable)
            n += len(progress.ended)
            started = all(p.done for p in [*natives[target], progress])
            gone += missing or int(not started)  # of a file that has not been collected nobody knows how many
            processes += progress.processes
        n_missing += gone
        spilled = sum(process["spilled"] for process in processes)
        if not spilled:
            idle.append(mode)
        moved = sum(process["moved"] for process in processes) / (1 << 30)
        peak = max((process["host"] for process in processes), default=0) / (1 << 20)
        stopped = sum(process["stopped"] for process in processes)
        lines.append(f"{mode}: {n} tests, {mode_differ} differ, {gone} not run; {spilled} of {len(processes)} processes "
                     f"spilled, {moved:.2f} GiB moved, {peak:.0f} MiB on the host at most"
                     + (f"; {stopped} stopped, and told why" if stopped else ""))
    head = ["test", "natively", "mode", "there", "why"]
    with open(os.path.join(options.state, "differences.txt"), "w") as file:
        for row in [head, *all_differ]:
            file.write("\t".join(row) + "\n")
    if all_differ:
        harness.table([head] + [[*row[:4], row[4][:120]] for row in all_differ[:options.rows]])
    for name in sorted(unstable_names)[:options.rows]:
        print(f"unstable natively: {name}")
    print("\n".join(lines))
    reasons = [f"{len(all_differ)} DIFFER"] if all_differ else []
    if not passed and not n_missing:
        reasons.append("NO TEST PASSED natively")
    if idle and not n_missing and not options.no_pressure:
        reasons.append(f"NOTHING SPILLED in {', '.join(idle)}: no proof")
    status = 1 if reasons else 2 if n_missing else 0
    if n_missing:
        reasons.append(f"{n_missing} not run: call it again")
    print(f"others: {len(targets)} files, {passed} tests passed natively, {len(unstable_names)} unstable natively: "
          f"{', '.join(reasons) or 'none differs'}")
    return status


def main():
    options = parser.parse_args()
    options.build, options.state = os.path.abspath(options.build), os.path.abspath(options.state)
    runs = Runs(options)
    signal.signal(signal.SIGTERM, runs.stop)
    signal.signal(signal.SIGINT, runs.stop)
    share, shares = map(int, options.shard.split("/"))
    targets = [target for suite in options.suites for target in targets_of(suite)]
    targets = [target for target in dict.fromkeys(targets) if not any(re.search(skip, target) for skip in options.skip)]
    targets = targets[share - 1::shares]
    if not targets:
        sys.exit("others.py: no tests in " + ", ".join(options.suites))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in [pool.submit(runs.run, target, variant) for target in targets for variant in runs.variants]:
            result.result()
    sys.exit(report(runs, targets))


if __name__ == "__main__":
    main()
