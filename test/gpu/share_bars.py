# SPDX-License-Identifier: Apache-2.0
"""The bars of turns (share), on a real GPU: python share_bars.py --build BUILD --log FILE [--seconds N] [PART...]

The default parts take less than 9 minutes on an H200, and the other three, too.

  two      two GPT training jobs of 14.4 GiB in 16 GiB to their end together, against the sum of their times alone; and
           beside it both with half of the memory each, without turns
  unequal  the same with one of 14.4 and one of about 6 GiB
  four     four of them (share.wait.max=30s: with 10 s their turns are shorter than switches are worth)
  burst    50 ms of work on 6 GiB every 2 s, beside a training job
  weights  two jobs of weights 3 and 1: the time that each got

Losses are compared bit for bit with those of the job alone. What a switch takes, and who got how much of the time, is read
from the account of the GPU while the jobs run. Of a job's time counts what comes after its step number FIRST: loading of
libraries and the first pinning of host memory are not what turns cost. Rows and exit status: parts.py.
"""
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

import bars
import harness
import parts

TOTAL = "16GiB"
LOOK = 0.01  # s between looks into the account
FIRST = 4  # a step: by then the job has its memory and its kernels
# struct account_page (shim/accounting/gpu_account.h): a head, and slots of pid and three more, may_have, holds, needs,
# stuck, worked, the claim of turns, and that of jobs, of which the state is read
VERSION, HEAD, MEMBER, CLAIM, JOB_STATE = 5, 128, 9, 15, 8
FIELDS = ("kind", "weight", "beat", "moving", "away", "waits", "idle", "served", "got", "burst", "cost", "loss", "quantum",
          "patience", "n")


class Account:
    """Reads the account of the GPU some times a second while jobs run."""

    def __init__(self, folder):
        self.folder, self.samples, self.stop, self.wrong = folder, [], threading.Event(), None
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        if self.wrong:
            raise self.wrong

    def read(self):
        place = os.path.join(self.folder, "spillway")
        for name in os.listdir(place) if os.path.isdir(place) else []:
            if not name.endswith(".account"):
                continue
            with open(os.path.join(place, name), "rb") as file:
                page = file.read()
            words = struct.unpack_from("<11Q", page)
            if not words[1]:  # the process that makes the file has not written its head yet
                return None
            if words[1] != VERSION:
                raise RuntimeError(f"{name} is of version {words[1]}; this script reads {VERSION}")
            slot = (words[0] - HEAD) // 64
            members, slots = {}, {}
            for i in range(64):
                values = struct.unpack_from(f"<{MEMBER + CLAIM + JOB_STATE + 1}Q", page, HEAD + i * slot)
                if values[0]:
                    members[values[0]] = {"may_have": values[4], "holds": values[5], "state": values[-1],
                                          **dict(zip(FIELDS, values[MEMBER:]))}
                    slots[i + 1] = values[0]
            return {"time": time.monotonic(), "number": words[7], "on": words[8], "holder": slots.get(words[9]),
                    "since": words[10] / 1e9, "members": members}
        return None

    def watch(self):
        while not self.stop.wait(LOOK):
            try:
                sample = self.read()
            except (OSError, struct.error):
                continue
            except RuntimeError as error:
                self.wrong = error
                return
            if sample:
                self.samples.append(sample)

    def turns(self):
        """Of each turn: who had it, when it was given, when it began and ended, and what was on the GPU of the others at its
        beginning. Times in s of this clock, as exact as the looks; `given` is what the process has written that gave it."""
        turns, number = [], None
        for sample in self.samples:
            who, member = sample["holder"], sample["members"].get(sample["holder"])
            if sample["number"] != number:
                number = sample["number"]
                if turns and turns[-1]["ended"] is None:
                    turns[-1]["ended"] = sample["since"]
                if member:
                    turns.append({"who": who, "given": sample["since"], "began": None, "ended": None, "others": None,
                                  "out": None})
            if not member or not turns:
                continue
            turn = turns[-1]
            others = [other for pid, other in sample["members"].items() if pid != who]
            if turn["out"] is None and not any(other["moving"] for other in others):
                turn["out"] = sample["time"]
            if turn["began"] is None and not member["moving"] and not member["away"]:
                turn["began"], turn["others"] = sample["time"], sum(other["holds"] for other in others)
        return turns

    def turn_lines(self):
        """The list of turns, for the log."""
        turns = self.turns()
        start = turns[0]["given"] if turns else 0
        pids = list(dict.fromkeys(turn["who"] for turn in turns))

        def after(turn, key):
            return f"{turn[key] - turn['given']:6.2f}" if turn[key] is not None else "     -"
        return ["  given  job  others out after  began after  lasted  of others there (s, GiB)"] + [
            f"{turn['given'] - start:7.2f}  {pids.index(turn['who']):3}  {after(turn, 'out'):>16}  {after(turn, 'began'):>11}  "
            f"{after(turn, 'ended')}  {(turn['others'] or 0) / 2**30:.2f}" for turn in turns]

    def pauses(self):
        """s, from the stop of one process until the next went on, without the first turn of each (pinning)."""
        seen, found = set(), []
        for turn in self.turns():
            if turn["who"] in seen and turn["began"] is not None:
                found.append(turn["began"] - turn["given"])
            seen.add(turn["who"])
        return found

    def costs(self):
        """s, of a switch, out and in, as each process has measured it, without the first ones (pinning)."""
        found = []
        for pid in {pid for sample in self.samples for pid in sample["members"]}:
            seen = [sample["members"][pid]["cost"] for sample in self.samples if pid in sample["members"]]
            different = [b for a, b in zip(seen, seen[1:]) if a != b]
            found += different[2:]
        return [cost / 1e9 for cost in found]

    def switches(self):
        numbers = [sample["number"] for sample in self.samples]
        return max(numbers) - min(numbers) if numbers else 0

    def shares(self):
        """{pid: s of turns by weight}, between the first and the last moment at which all took turns."""
        together = [sample for sample in self.samples if sample["on"] and len(sample["members"]) ==
                    max(len(other["members"]) for other in self.samples)]
        if len(together) < 2:
            return {}
        first, last = together[0]["members"], together[-1]["members"]
        return {pid: (last[pid]["got"] - first[pid]["got"]) / 1e9 / last[pid]["weight"] for pid in last if pid in first}


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values)) if any(values) else 0


class Job:
    """A program that runs beside others; the time of each of its lines is noted."""

    def __init__(self, command, environment):
        self.lines = []
        self.child = subprocess.Popen(command, env={**os.environ, **environment}, text=True, errors="replace",
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                      start_new_session=True)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append((time.monotonic(), line))

    def wait(self, seconds):
        try:
            self.child.wait(max(1, seconds))
        except subprocess.TimeoutExpired:
            self.lines.append((time.monotonic(), harness.threads_of(self.child.pid)))
            harness.kill_all(self.child.pid)
        self.child.wait(10)
        self.thread.join(10)  # whom it has started may have its output open
        return self.child.returncode

    @property
    def output(self):
        return "".join(line for _, line in self.lines)

    def steps(self):
        return [(when, float(line.split()[2])) for when, line in self.lines
                if re.match(r"each \d+ [\d.]+ ", line)]

    def losses(self):
        return bars.steps_of(self.output).losses

    def span(self):
        """(when step number FIRST had ended, when the last had), or None."""
        steps = self.steps()
        return (steps[FIRST - 1][0], steps[-1][0]) if len(steps) > FIRST else None


def shared_time(jobs, alone):
    """(s of the jobs together, s that their steps of that time take alone). alone: s, of all steps of each. Each works
    alone while another is before its step FIRST; that time is not of all."""
    spans = [job.span() for job in jobs]
    began, ended = max(span[0] for span in spans), max(span[1] for span in spans)
    return ended - began, sum(seconds * sum(when > began for when, _ in job.steps()) / max(1, len(job.steps()) - FIRST)
                              for job, seconds in zip(jobs, alone))


class Share(parts.Parts):
    PARTS = {"two": 380, "unequal": 170, "four": 170, "burst": 100, "weights": 190}
    DEFAULT = ["two", "burst"]

    def __init__(self, options):
        super().__init__(options)
        self.alone = {}

    def gpt(self, small=False, steps=None):
        size = self.options.small if small else self.options.gpt
        return [*self.python("gpt.py", *size, steps or self.options.steps), "each", "deterministic"]

    def environment(self, **own):
        settings = {"device.total": TOTAL, "host.total": "75%", "share": "turns", "spill.mode": self.options.mode,
                    **self.options.set, **{key.replace("_", "."): value for key, value in own.items()}}
        return harness.shim_environment(self.options.build, settings)

    def start(self, command, environment):
        return Job(command, environment)

    def place(self):
        """A folder for the account of jobs that run at the same time."""
        return tempfile.mkdtemp(dir=self.folder.name)

    def native(self, small=False, steps=None):
        """(s from step FIRST to the last, losses), of one run without Spillway."""
        key = (small, steps)
        if key not in self.alone:
            job = self.start(self.gpt(small, steps), {})
            code = job.wait(self.left())
            self.log(f"alone {key}: {code}", job.output)
            span = job.span()
            # One that the limit of its part has ended is not a measurement: its losses are those of fewer steps.
            if code or not span:
                raise RuntimeError(f"the job alone ended with {code} after {len(job.losses())} steps")
            self.alone[key] = (span[1] - span[0], job.losses())
            need = bars.steps_of(job.output).need
            self.add(f"alone{', the small one' if small else ''}", self.alone[key][0], None,
                     f"{len(job.losses())} steps, {need / 2**30:.1f} GiB", unit=" s")
        return self.alone[key]

    def together(self, what, kinds, steps=None, environments=None):
        """Runs them at the same time. kinds: whether each is the small one. Returns (Account, jobs), or None."""
        environments = environments or [self.environment()] * len(kinds)
        place = self.place()
        with Account(place) as account:
            jobs = [Job(self.gpt(small, steps), {**environment, "XDG_RUNTIME_DIR": place})
                    for small, environment in zip(kinds, environments)]
            codes = [job.wait(self.left()) for job in jobs]
        for i, job in enumerate(jobs):
            self.log(f"{what}, number {i}: {codes[i]}", job.output)
        self.log(f"{what}: turns", "\n".join(account.turn_lines()))
        good = all(code == 0 and job.span() for code, job in zip(codes, jobs))
        if not good:
            said = [line for job in jobs for line in job.output.splitlines() if line.startswith("spillway:")]
            self.add(f"{what}: to their end", None, 1, f"{codes} {' '.join(said[-1:])[:150]}", least=True)
            return None
        equal = all(job.losses() == self.native(small, steps)[1] for small, job in zip(kinds, jobs))
        self.add(f"{what}: losses equal", float(equal), 1, least=True)
        return account, jobs

    def against_alone(self, what, kinds, bar, environments=None, steps=None):
        alone = sum(self.native(small, steps)[0] for small in kinds)
        found = self.together(what, kinds, steps, environments)
        if not found:
            return
        account, jobs = found
        took, left = shared_time(jobs, [self.native(small, steps)[0] for small in kinds])
        self.add(f"{what}: time / sum of those alone", took / left, bar,
                 f"{took:.1f} s / {left:.1f} (all steps alone {alone:.1f})")
        if account.switches():
            costs = account.costs()
            self.add(f"{what}: switches", account.switches(), None)
            if costs:
                self.add(f"{what}: a switch, out and in", statistics.median(costs), 0.45,
                         f"{min(costs):.2f} .. {max(costs):.2f}", unit=" s")
            pauses = account.pauses()
            if pauses:
                self.add(f"{what}: a switch at steps' ends, from stop to go", statistics.median(pauses), 0.18,
                         f"{min(pauses):.2f} .. {max(pauses):.2f}, {sum(pauses):.1f} s in all", unit=" s")
            got = account.shares()
            self.add(f"{what}: Jain's index", jain(list(got.values())), 0.98,
                     " ".join(f"{value:.1f}" for value in got.values()), least=True)

    def two(self):
        self.against_alone("two", [False, False], 1.06)
        if self.left() < 60:  # what is shown beside it must not cost the other parts their time
            return
        half = self.environment(share="off", spill_mode="fast")
        self.against_alone("two, half of the memory each", [False, False], None, [half, half], self.options.short)

    def unequal(self):
        self.against_alone("14.4 and 6 GiB", [False, True], 1.08, None, self.options.some)

    def four(self):
        environment = self.environment(**{"share_wait_max": "30s"})
        self.against_alone("four", [False] * 4, 1.08, [environment] * 4, self.options.few)

    def weights(self):
        environments = [self.environment(share_weight=weight) for weight in (3, 1)]
        found = self.together("3:1", [False, False], self.options.some, environments)
        if found:
            got = found[0].shares()
            self.add("3:1: Jain's index of time / weight", jain(list(got.values())), 0.98,
                     " ".join(f"{value:.1f}" for value in got.values()), least=True)

    def burst(self):
        seconds = 45
        command = self.python("share_job.py", 6, seconds, 2000, 50)
        alone = Job(command[:-4] + ["6", "12", "2000", "50"], {})
        alone.wait(self.left())
        own = [float(line.split()[1]) for _, line in alone.lines if line.startswith("burst ")]
        if not own:
            raise RuntimeError(f"the bursts alone ended with {alone.child.returncode}: {alone.output[-200:]}")
        seconds_alone, losses = self.native(steps=self.options.short)
        step_alone = seconds_alone / (len(losses) - FIRST)
        place = self.place()
        environment = {**self.environment(), "XDG_RUNTIME_DIR": place}
        with Account(place) as account:
            job = Job(self.gpt(steps=10000), environment)
            while job.child.poll() is None and len(job.steps()) < FIRST and self.left() > 60:
                time.sleep(0.1)
            bursts = Job(command, environment)
            code = bursts.wait(self.left() - 5)
            harness.kill_all(job.child.pid)
            job.wait(5)
        self.log(f"bursts: {code}", bursts.output)
        self.log("bursts, the job beside them", job.output)
        self.log("bursts: turns", "\n".join(account.turn_lines()))
        times = [(when, float(line.split()[1])) for when, line in bursts.lines if line.startswith("burst ")]
        if code or len(times) < 8:
            self.add("bursts", None, 0.3, f"status {code}")
            return
        self.add("bursts: contents", float("check wrong 0" in bursts.output), 1, least=True)
        late = sorted(ms for _, ms in times[3:])  # until it is known that they are short
        base = statistics.median(own)
        self.add("bursts: latency above alone, p50", (statistics.median(late) - base) / 1e3, 0.3,
                 f"alone {base:.0f} ms", unit=" s")
        self.add("bursts: the same, p99", (late[-1] - base) / 1e3, 0.6, f"the longest of {len(late)}", unit=" s")
        first, last = times[3][0], times[-1][0]
        done = sum(first < when <= last for when, _ in job.steps())
        self.add("bursts: the training job / alone", done * step_alone / (last - first), 0.8,
                 f"{done} steps in {last - first:.1f} s, {step_alone * 1e3:.0f} ms alone; {account.switches()} switches",
                 least=True)


def main():
    arguments = parts.parser()
    arguments.add_argument("--gpt", nargs=3, default=["1536", "16", "8"])
    arguments.add_argument("--small", nargs=3, default=["1024", "12", "5"], help="of about 6 GiB")
    arguments.add_argument("--steps", type=int, default=1100)
    arguments.add_argument("--some", type=int, default=300, help="steps of each of unequal ones, and of those with weights")
    arguments.add_argument("--few", type=int, default=250, help="steps of each of four")
    arguments.add_argument("--short", type=int, default=20, help="steps of each with half of the memory")
    arguments.add_argument("--mode", default="exact")
    arguments.add_argument("--set", type=lambda t: dict(w.split("=", 1) for w in t.split(",")), default={}, help="KEY=VALUE,...")
    parts.main(Share, arguments)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
