# SPDX-License-Identifier: Apache-2.0
"""What the real-GPU scripts share: run a program natively or under Spillway, and read what it and the shim printed.

A program's output is compared by its lines "check NAME VALUE". VALUE is a number (compared within the spread of two
native runs; bit for bit when those agree) or any other word (compared as it is). "need BYTES" says how much device memory
the program took.
"""
import contextlib
import json
import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass, field

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass
class Run:
    status: str  # "ok", "out of memory", "timeout", "exit N", "no time"
    seconds: float = 0.0
    checks: dict = field(default_factory=dict)
    need: int = 0
    spilled: str = ""
    output: str = ""


def spilled_from_summary(text):
    """The only place that knows what the shim's summary (report: full) looks like: the peak of host-backed bytes, or ''.

    The line is "spillway:   host  0 B live at exit, 64.0 MiB at most, ..."; of several processes the largest counts.
    """
    found = re.findall(r"^spillway: +host +.*?, +([\d.]+) ?([KMGT]?i?B)\b at most", text, re.MULTILINE)
    peaks = [(float(value) * UNITS.get(unit, 0), f"{value} {unit}") for value, unit in found]
    return max(peaks, default=(0, "none" if "spillway: summary" in text else ""))[1]


def shim_environment(build, settings):
    """The scripts read figures of the summary, which come only where they are asked for."""
    settings = {"report.summary": "full", **settings}
    return {
        "LD_PRELOAD": os.path.join(build, "libspillway.so"),
        "SPILLWAY_POLICY": os.environ.get("SPILLWAY_POLICY", "heap"),
        "SPILLWAY_SET": ",".join(f"{key}={value}" for key, value in settings.items()),
    }


def status_of(code, output):
    if code == 0:
        return "ok"
    if re.search(r"out of memory|OutOfMemory|RESOURCE_EXHAUSTED|MemoryAllocation", output):
        return "out of memory"
    return f"exit {code}" if code > 0 else f"signal {-code}"


def descendants(ancestor):
    """The process and all it has started, also in sessions of their own, as torchrun's workers are."""
    parents = {}
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue  # no process, or one that has just ended
    found = [ancestor]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def kill_all(leader):
    """The leader of a process group, all it has started, and of the group also those whose parent has ended."""
    pids = descendants(leader)
    for kill, victim in [(os.killpg, leader), *((os.kill, pid) for pid in pids)]:
        try:
            kill(victim, 9)
        except ProcessLookupError:
            pass


def threads_of(pid):
    """A line: what each thread of a process waits for in the kernel, by /proc, as far as that may be read."""
    def read(thread, name):
        try:
            with open(f"/proc/{pid}/task/{thread}/{name}") as file:
                return file.read().split("\n")[0]
        except OSError:
            return "?"
    threads = os.listdir(f"/proc/{pid}/task") if os.path.isdir(f"/proc/{pid}/task") else []
    return "threads: " + "; ".join(f"{thread} {read(thread, 'comm')} {read(thread, 'wchan')} {read(thread, 'syscall')}"
                                   for thread in sorted(threads, key=int)) + "\n"


def run(command, environment, seconds):
    """Run it; a time-out takes all it has started along: who keeps its output open would be waited for."""
    if seconds < 5:
        return Run("no time")
    start = time.monotonic()
    child = subprocess.Popen(command, env={**os.environ, **environment}, text=True, errors="replace",
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                             start_new_session=True)
    try:
        output, _ = child.communicate(timeout=seconds)
        status = status_of(child.returncode, output)
    except subprocess.TimeoutExpired:
        kill_all(child.pid)
        try:
            output, _ = child.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # somebody whose parent ended before has it open
            child.stdout.close()
            output = ""
        status = "timeout"
    result = Run(status, time.monotonic() - start, output=output, spilled=spilled_from_summary(output))
    for line in output.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "check":
            result.checks[words[1]] = words[2]
        elif len(words) > 3 and words[0] in ("step", "final"):
            result.checks[".".join(words[:3])] = words[-1]
        elif len(words) >= 2 and words[0] == "need" and words[1].isdigit():
            result.need = int(words[1])
    return result


def stopped(result):
    """Ended by `fast` itself, which names what was in transit and the way out?"""
    return result.status != "ok" and re.search(r"^spillway:.*in transit", result.output, re.MULTILINE | re.IGNORECASE) and \
        "spill.mode: exact" in result.output


@contextlib.contextmanager
def answering(command, environment, seconds):
    """
    with answering(...) as ask: a program that does its work once for each line it reads, and then prints "answer VALUE";
    ask() is that value of the next time, or None when the program has ended. It is killed after so many seconds.
    """
    child = subprocess.Popen(command, env={**os.environ, **environment}, text=True, errors="replace",
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.PIPE,
                             start_new_session=True)
    end = threading.Timer(seconds, kill_all, [child.pid])
    end.start()

    def ask():
        try:
            child.stdin.write("\n")
            child.stdin.flush()
        except BrokenPipeError:
            return None
        return next((number(line.split()[1]) for line in child.stdout if line.startswith("answer ")), None)

    try:
        yield ask
    finally:
        end.cancel()
        kill_all(child.pid)
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        child.stdout.close()
        child.wait()


def in_turn(asks, turns):
    """[(answer of the first, of the second, ...)] of programs that are asked in turn; [] if one of them ends."""
    found = [tuple(ask() for ask in asks) for _ in range(turns + 1)]
    return [] if any(None in answers for answers in found) else found[1:]  # the first time, caches are cold


def counter_samples(lines):
    """Of what `spillway top --json` printed: [(seconds, counters)] of the process that moved most."""
    found = {}
    for line in lines:
        try:
            reading = json.loads(line)
        except ValueError:
            continue  # it was stopped in the middle
        for process in reading["processes"]:
            found.setdefault(process["pid"], []).append((reading["time_ns"] / 1e9, process["counters"]))
    return max(found.values(), key=lambda samples: moved_bytes(samples[-1][1]), default=[])


def moved_bytes(counters):
    return counters["moved_in_bytes"] + counters["moved_out_bytes"]


@contextlib.contextmanager
def watch_counters(build, interval=0.2):
    """with watch_counters(build) as samples: what is counted while the body runs; samples is filled at its end."""
    samples = []
    top = subprocess.Popen([os.path.join(build, "spillway"), "top", "--json", "--interval", str(interval)], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    lines = [top.stdout.readline()]  # it runs
    reader = threading.Thread(target=lambda: lines.extend(top.stdout))
    reader.start()
    try:
        yield samples
    finally:
        top.terminate()
        reader.join()
        top.wait()
        samples += counter_samples(lines)


def moved_samples(samples):
    """[(seconds, bytes moved both ways, seconds the link was busy)] of watch_counters()'s."""
    return [(when, moved_bytes(counters), counters["link_us"] / 1e6) for when, counters in samples]


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def compare(first, second, other):
    """Is other equal to the native runs first and second, as far as those are equal to each other?"""
    if not other.checks or other.checks.keys() != first.checks.keys():
        return "no result"
    exact, worst = True, 0.0
    for name, text in first.checks.items():
        a, b, c = number(text), number(second.checks.get(name, text)), number(other.checks[name])
        if text == second.checks.get(name, text):
            if other.checks[name] != text:
                return f"DIFFERS: {name} {other.checks[name]} for {text}"
        elif a is None or b is None or c is None:
            exact = False  # natively not the same from run to run, and no number: nothing can be said
        else:
            exact = False
            scale = max(abs(v - v0) for v0, v in ((a, b),)) or 1e-9
            worst = max(worst, min(abs(c - a), abs(c - b)) / scale)
    if exact:
        return "bit for bit"
    return f"within spread x{worst:.1f}" if worst <= 2 else f"DIFFERS: {worst:.1f} times the native spread"


def table(rows, out=print):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        out(" | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())
