# SPDX-License-Identifier: Apache-2.0
"""More bars of sharing a GPU, on a real one: python share_more_bars.py --build BUILD --log FILE [--seconds N] [PART...]

The first six parts are the default, and take less than 9 minutes together on an H200. Each takes 75 s at most, beside its native runs: of the GPT, for
--steps steps, before the first part that compares with it, and of a job of ranks.

  neighbour  a GPT of 14.4 GiB with device.budget: auto on what another process leaves of the GPU (--leave), and a third one
             without Spillway that grows there in steps of 1 GiB, 4 a second, keeps them for 5 s, and ends; and once more.
             The memory of the GPT on the GPU before and after is compared, not its budget, which grows only as it is used
  set        `spillway set` down by 10 GiB while the GPT works, up, and down again, when host memory is pinned
  kill       GPTs in turns, with so little left beside them (--kill-leave) that one needs the memory of the killed one;
             the holder is killed by SIGKILL within its turn
  jobs       two jobs of two ranks each, of about 6 GiB a rank, in turns
  queue      share.queue, where host.total does not hold what one of two jobs would give up: one waits until the other ends
  launch     what turns cost a launch of a process that is alone
  gpus       two jobs of two ranks of 14.4 GiB on two GPUs, in turns: the ranks of a job add up their gradients by NCCL
  lost       two such jobs; the rank that leads one of them (--lost 1: the other rank) is killed in the turn of its job. Its
             partner waits for it on the GPU, keeps its memory, and is killed later
  away       `spillway suspend --job` of such a job of 14.4 GiB a rank in the middle of its steps, and resume; and once more

Losses are compared bit for bit with those of native runs, as far as a job came. Rows and exit status: parts.py; the account
of the GPU: share_bars.py.
"""
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

import bars
import harness
import parts
import ranks
from share_bars import FIRST, Account, Job, Share, shared_time

GIB = 1 << 30
RUNS = 0  # enum gpu_job_state (shim/plan/gpu_job.h): it runs, or takes turns without a job
LOOK = 0.02  # s between looks at what others print
MORE = 5  # steps


# ---- of the account's samples ----


def is_running(member):
    """Is it one that takes turns, and passes submissions? (A process that cannot be stopped takes none: kind 0.)"""
    return bool(member["kind"]) and not member["away"] and not member["moving"] and member["state"] == RUNS


def double_turns(samples, job_of, ended):
    """(samples in which processes of several jobs ran, those in which there were turns). job_of: {pid: job}; who is not in
    it is a job of its own. ended: {pid: when it had nothing more to do}; the account keeps what a dead process said last.

    Who has just entered, or was there before there were turns, runs until it has read the account: a process counts
    once it was seen away, or had the turn."""
    known, wrong, looked = set(), 0, 0
    for sample in samples:
        if not sample["on"]:
            known.clear()
            continue
        living = {pid: member for pid, member in sample["members"].items() if sample["time"] < ended.get(pid, float("inf"))}
        known |= {pid for pid, member in living.items() if member["away"] or pid == sample["holder"]}
        looked += 1
        wrong += len({job_of.get(pid, pid) for pid in known & living.keys() if is_running(living[pid])}) > 1
    return wrong, looked


def holder_within_turn(samples, least):
    """The process whose turn has lasted for `least` s since its memory was back, or None."""
    if not samples or samples[-1]["holder"] not in samples[-1]["members"]:
        return None
    holder, number = samples[-1]["holder"], samples[-1]["number"]
    for sample in reversed(samples):
        if sample["number"] != number or not sample["on"] or not is_running(sample["members"].get(holder, {"kind": 0})):
            return None
        if samples[-1]["time"] - sample["time"] >= least:
            return holder
    return None


def after_kill(samples, free, killed, held, others):
    """(when the driver showed the memory free, when the next one's turn began, who that is), in s of this clock, None
    where it did not happen. free: [(when, bytes)] of the driver; held: bytes of the killed one; others: who lives. The
    next one may take memory at the same time, so what becomes free is added up."""
    shown, began, heir, gained = None, None, None, 0
    for before, after in zip(free, free[1:]):
        if after[0] > killed and after[1] > before[1]:
            gained += after[1] - before[1]
            if shown is None and gained >= held / 2:
                shown = after[0]
    for sample in samples:
        running = [pid for pid, member in sample["members"].items() if pid in others and is_running(member)]
        if sample["time"] > killed and running:
            began, heir = sample["time"], running[0]
            break
    return shown, began, heir


# ---- of what programs print ----


def free_of(lines):
    """Of share_neighbour.py's: [(when, bytes)]."""
    words = [line.split() for _, line in lines]
    return [(float(line[2]), int(line[1])) for line in words if len(line) == 3 and line[0] == "free"]


def left_of(text):
    """Bytes that left, of what `spillway set` said, or None."""
    found = re.search(r", ([\d.]+) ?([KMGT]?i?B) left in", text)
    return float(found[1]) * harness.UNITS[found[2]] if found else None


def budgets_of(line, pid):
    """(budget, used) of the GPU that the process uses most of, of one reading of `spillway top --json`, or None."""
    try:
        processes = json.loads(line)["processes"]
        devices = next(process["devices"] for process in processes if process["pid"] == pid)
        return max((int(device["used"]), int(device["budget"])) for device in devices)[::-1]
    except (ValueError, KeyError, StopIteration, TypeError):
        return None


def follows(losses, native):
    """Are these the first of the native ones? No loss is no result."""
    return 0 < len(losses) <= len(native) and losses == native[:len(losses)]


class Budgets:
    """The device budget of a process, and what it uses of it, while the body runs: `samples` of (when, budget, used)."""

    def __init__(self, tool, environment, pid):
        self.pid, self.samples = pid, []
        self.top = subprocess.Popen([tool, "top", "--json", "--interval", "0.1"], text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                    env={**os.environ, "XDG_RUNTIME_DIR": environment["XDG_RUNTIME_DIR"]})
        self.thread = threading.Thread(target=self.read)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.top.kill()
        self.thread.join()
        self.top.wait()

    def read(self):
        for line in self.top.stdout:
            found = budgets_of(line, self.pid)
            if found:
                self.samples.append((time.monotonic(), *found))

    def now(self):
        """(budget, used) of a reading that is made from now on, or the last one if none comes in 2 s. The first may take
        longer, where the machine is loaded."""
        begun = time.monotonic()
        while (time.monotonic() - begun < 2 and self.samples and self.samples[-1][0] - begun < 0.15
               or time.monotonic() - begun < 20 and not self.samples):
            time.sleep(LOOK)
        if not self.samples:
            raise RuntimeError("`spillway top` does not show the job")
        return self.samples[-1][1:]

    def used(self):
        return self.samples[-1][2] if self.samples else 0

    def between(self, begin, end):
        return [(budget, used) for when, budget, used in self.samples if begin <= when <= end]


class More(Share):
    PARTS = {"neighbour": 75, "set": 75, "kill": 75, "jobs": 75, "queue": 75, "launch": 75, "gpus": 260, "lost": 110, "away": 90}
    DEFAULT = [part for part in PARTS if part not in ("gpus", "lost", "away")]

    def __init__(self, options):
        super().__init__(options)
        self.started = []

    def run_part(self, part):
        try:
            super().run_part(part)
        finally:
            started, self.started = self.started, []
            for job in started:
                if job.child.poll() is None:
                    harness.kill_all(job.child.pid)
            for i, job in enumerate(started):
                self.end(job)
                self.log(f"{part}, program {i}: {job.child.returncode}: {' '.join(job.child.args)}", job.output)

    def start(self, command, environment):
        job = Job(command, environment)
        self.started.append(job)
        return job

    @staticmethod
    def end(job):
        if job.child.poll() is None:
            harness.kill_all(job.child.pid)
        job.wait(5)

    def until(self, met, seconds, jobs=()):
        """Waits until it is met; not for longer than that, nor after one of these jobs has ended. Was it met?"""
        end = time.monotonic() + min(seconds, self.left())
        while not met():
            if time.monotonic() > end or any(job.child.poll() is not None for job in jobs):
                return bool(met())
            time.sleep(LOOK)
        return True

    def not_counted(self, function, *arguments):
        """Of the time of the part."""
        begin = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self.part_end += time.monotonic() - begin

    def native_losses(self):
        return self.not_counted(self.native)[1]

    def shared(self, **own):
        """Environment of jobs, with a folder of their own for what they share."""
        return {**self.environment(**own), "XDG_RUNTIME_DIR": self.place()}

    def beside(self, *arguments):
        return self.start(self.python("share_neighbour.py", *arguments), {})

    def ballast(self, leave):
        """Takes all of the GPU's free memory but so many GiB."""
        job = self.beside("hold", leave, 2 * self.PARTS[self.part])
        if not self.until(lambda: "holds" in job.output, 20, [job]):
            raise RuntimeError(f"the memory beside the jobs could not be taken: {job.output[-200:]}")
        return job

    def add_losses(self, jobs, natives, failed=()):
        """natives: for each job. failed: what some of them ended with, which is not right."""
        counts = " ".join(str(len(job.losses())) for job in jobs)
        equal = all(follows(job.losses(), native) for job, native in zip(jobs, natives))
        self.add("losses equal", float(equal and not failed), 1, f"{counts} steps, of {len(natives[0])} natively"
                 + "".join(f"; one has ended with {code}" for code in failed), least=True)

    def end_and_compare(self, jobs, native, killed=()):
        """killed: ids of those that may have ended."""
        failed = [job.child.poll() for job in jobs if job.child.poll() and job.child.pid not in killed]
        for job in jobs:
            self.end(job)
        self.add_losses(jobs, [native] * len(jobs), failed)

    def add_end(self, jobs):
        """Waits for all of them. Returns whether all are right."""
        codes = [job.wait(self.left()) for job in jobs]
        good = all(code == 0 and job.span() for code, job in zip(codes, jobs))
        said = [line for job in jobs if job.child.returncode for line in job.output.splitlines()[-1:]]
        self.add("to their end", 1.0 if good else None, 1, f"{codes} {' '.join(said)[:150]}", least=True)
        return good

    # ---- a neighbour ----

    def neighbour(self):
        native = self.native_losses()
        ballast = self.ballast(self.options.leave)
        environment = self.shared(share="off", device_total="auto", device_budget="auto")
        job = self.start(self.gpt(), environment)
        if not self.until(lambda: len(job.steps()) >= FIRST + 2 * MORE, 40, [job]):
            raise RuntimeError(f"the job has not begun: {job.output[-200:]}")
        cycles = []
        with Budgets(self.tool("spillway"), environment, job.child.pid) as budgets:
            while len(cycles) < self.options.neighbours and (not cycles or self.left() > 30):
                cycles.append(self.cycle(job, budgets))
        self.end(ballast)
        self.end_and_compare([job], native)
        for name, rows in zip(("first", "second"), cycles):
            for what, *row in rows:
                self.add(f"{name} time: {what}", *row[:3], **row[3])

    def cycle(self, job, budgets):
        """One neighbour that comes, grows, and ends: rows."""
        options = self.options
        before, begun, steps = budgets.now(), time.monotonic(), len(job.steps())
        grower = self.beside("grow", options.step, options.times, options.pause, options.hold)
        self.until(lambda: grower.child.poll() is not None, 30, [job])
        code, ended = grower.child.poll(), time.monotonic()
        self.end(grower)
        took = [int(line.split()[2]) for _, line in grower.lines if line.startswith("took ")]
        failed = sum(line.startswith("failed ") for _, line in grower.lines)
        whole = code == 0 and "ended" in grower.output
        back = self.until(lambda: budgets.used() >= 0.95 * before[1], options.back, [job]) and time.monotonic() - ended
        after, lowest = budgets.now(), min(budgets.between(begun, ended), key=lambda pair: pair[1], default=before)
        gave = before[1] - lowest[1]
        figures = " -> ".join(f"{budget / GIB:.1f}/{used / GIB:.1f}" for budget, used in (before, lowest, after))
        return [
            ("allocations of the neighbour that failed", failed if whole or failed else None, 0,
             f"{len(took)} of {options.times} x {options.step} GiB; {min(took, default=0) / GIB:.2f} GiB free at least"
             + ("" if whole else f"; it ended with {code}: {grower.output[-100:].strip()}"), {}),
            # Where nothing had to leave, nothing is shown.
            ("given up", gave / GIB if gave > options.step * GIB / 2 else None, 0,
             f"{len(job.steps()) - steps} steps meanwhile", {"unit": " GiB", "least": True}),
            ("on the GPU, after / before", after[1] / before[1] if back is not False else None, 0.95,
             f"budget/used {figures} GiB" + (f"; after {back:.1f} s" if back is not False else f"; not so in {options.back:.0f} s"),
             {"least": True}),
        ]

    # ---- set ----

    def set(self):
        native = self.native_losses()
        environment = self.shared(share="off", device_total="auto")
        job = self.start(self.gpt(), environment)
        if not self.until(lambda: len(job.steps()) >= FIRST + MORE, 40, [job]):
            raise RuntimeError(f"the job has not begun: {job.output[-200:]}")
        with Budgets(self.tool("spillway"), environment, job.child.pid) as budgets:
            cycles = [self.set_down(job, budgets, environment) for _ in range(2)]
        self.end_and_compare([job], native)
        for (took, answer, left, step, back), name, bar in zip(cycles, ("not pinned", "pinned"), (2.6, 0.35)):
            self.add(f"{name}: bytes that left / asked for", left and left / self.options.down / GIB, 0.95, answer,
                     least=True)
            self.add(f"{name}: the command's answer", took, bar, unit=" s")
            self.add(f"{name}: the next step, after the answer", step, 2,
                     "" if back else "what left has not come back in 15 s", unit=" s")

    def set_down(self, job, budgets, environment):
        """Down, some steps, up: (s, what was said, bytes that left or None, s until the next step or None, is it back?)"""
        _, used = budgets.now()
        took, answer = self.tell(job, int(used - self.options.down * GIB), environment)
        answered, n = time.monotonic(), len(job.steps())
        self.until(lambda: len(job.steps()) > n + 2, 10, [job])
        steps = job.steps()[n:]
        self.tell(job, used + GIB, environment)
        n = len(job.steps())
        back = self.until(lambda: budgets.used() >= 0.95 * used and len(job.steps()) >= n + MORE, 15, [job])
        return took, answer, left_of(answer), steps[0][0] - answered if steps else None, back

    def tell(self, job, budget, environment):
        _, took, text = self.ask(environment, "set", job.child.pid, f"device.budget={budget >> 20}MiB")
        return took, text

    def ask(self, environment, *words):
        """(exit status, s, what was said) of the tool's command."""
        command = [self.tool("spillway"), *map(str, words)]
        begin = time.monotonic()
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
                              env={**os.environ, "XDG_RUNTIME_DIR": environment["XDG_RUNTIME_DIR"]})
        took = time.monotonic() - begin
        text = (said.stdout + said.stderr).strip()
        self.log(f"{' '.join(command)}: {said.returncode}, {took:.3f} s", text)
        return said.returncode, took, text.replace("\n", " ")[:150]

    # ---- kill ----

    def kill(self):
        native, kills = self.native_losses(), []
        ballast = self.ballast(self.options.kill_leave)
        environment = self.shared(share_quantum=self.options.quantum)
        with Account(environment["XDG_RUNTIME_DIR"]) as account:
            jobs = [self.start(self.gpt(), environment) for _ in range(self.options.kills + 1)]
            # With fewer kills if the time that is left is too short for all to begin.
            self.until(lambda: all(len(job.steps()) > FIRST for job in jobs), 45, jobs)
            ready = [job for job in jobs if len(job.steps()) > FIRST and job.child.poll() is None]
            if len(ready) < 2:
                raise RuntimeError(f"{len(ready)} of {len(jobs)} have begun: {[len(job.steps()) for job in jobs]} steps "
                                   + jobs[0].output[-200:])
            for _ in range(self.options.kills):
                living = {job.child.pid: job for job in jobs if job.child.poll() is None}
                if len(living) > 1 and self.left() > 8:
                    kills.append(self.kill_holder(account.samples, living, ballast))
        self.log("kill: turns", "\n".join(account.turn_lines()))
        free = free_of(ballast.lines)
        self.log("kill: free", "\n".join(f"{when:.3f} {size / GIB:.2f}" for when, size in free))
        self.end_and_compare(jobs, native, [kill["pid"] for kill in kills])
        wrong, looked = double_turns(account.samples, {}, {kill["pid"]: kill["killed"] for kill in kills})
        self.add("looks at which two ran", wrong if looked else None, 0, f"of {looked}")
        for i in range(self.options.kills):
            what = f"kill {i + 1}: the next turn began, after the memory was free"
            if i < len(kills):
                self.add(what, kills[i]["after"], 0.3, kills[i]["text"], unit=" s")
            else:
                self.add(what, None, 0.3, "there was no time for it")

    def kill_holder(self, samples, living, ballast):
        """Kills who has been in its turn for a while: {"after": s, or None; "pid"; "killed": when; "text"}. living: {pid:
        Job}."""
        within = self.options.within
        if not self.until(lambda: holder_within_turn(samples, within) in living, 12):
            return {"after": None, "pid": None, "killed": None, "text": f"no turn has lasted for {within} s"}
        last, n_samples, n_lines = samples[-1], len(samples), len(ballast.lines)
        pid, killed = last["holder"], time.monotonic()
        if pid not in living:
            return {"after": None, "pid": None, "killed": None, "text": "the turn has just changed"}
        os.kill(pid, signal.SIGKILL)
        held, others = last["members"][pid]["holds"], living.keys() - {pid}

        def figures():
            shown, began, heir = after_kill(samples[n_samples:], free_of(ballast.lines[max(0, n_lines - 1):]), killed, held,
                                            others)
            steps = living[heir].steps() if heir else []
            return shown, began, next((when for when, _ in steps if when > killed), None)

        self.until(lambda: None not in figures(), 8)
        shown, began, step = figures()
        times = ", ".join(f"{name} {when - killed:.2f}" if when is not None else f"{name} never"
                          for name, when in (("memory free", shown), ("turn", began), ("step", step)))
        return {"after": None if None in (shown, began) else began - shown, "pid": pid, "killed": killed,
                "text": f"s after the kill: {times}; {held / GIB:.1f} GiB were held"}

    # ---- jobs of ranks ----

    def ranks(self, port, environment, shape, steps, over):
        """Starts the ranks of one job. over: ["nccl"], each on a GPU of its own; []: all on one."""
        return [self.start([*self.python("share_rank.py", *shape, steps), "each", "deterministic", *over],
                           {**environment, **ranks.environment(rank, 2, port)}) for rank in range(2)]

    def two_jobs(self, environment, *job):
        """(the ranks of each of two jobs, all of them)"""
        found = [self.ranks(port, environment, *job) for port in ranks.free_ports(2)]
        return found, [rank for pair in found for rank in pair]

    def ranks_alone(self, *job):
        """The ranks of a job, natively: jobs that have ended."""
        jobs = self.ranks(ranks.free_ports(1)[0], {}, *job)
        codes = [rank.wait(self.left()) for rank in jobs]
        if any(codes) or not all(rank.span() for rank in jobs):
            raise RuntimeError(f"the job alone: {codes}, {[len(rank.steps()) for rank in jobs]} steps "
                               f"{jobs[0].output[-200:].strip()}")
        return jobs

    def jobs(self):
        self.jobs_of_ranks(self.shared(), None, self.options.small, self.options.rank_steps, [])

    def gpus(self):
        environment = self.shared(device_total=self.options.gpus_total)
        self.jobs_of_ranks(environment, 1.1, self.options.gpt, self.options.gpus_steps, ["nccl"])

    def jobs_of_ranks(self, environment, bar, *job):
        alone = self.not_counted(self.ranks_alone, *job)
        span = alone[0].span()
        need = sum(bars.steps_of(rank.output).need for rank in alone)
        self.add("a job alone", span[1] - span[0], None, f"{len(alone[0].losses())} steps, {need / GIB:.1f} GiB", unit=" s")
        with Account(environment["XDG_RUNTIME_DIR"]) as account:
            found, both = self.two_jobs(environment, *job)
            good = self.add_end(both)
        self.log(f"{self.part}: turns", "\n".join(account.turn_lines()))
        for first, _ in found:
            self.log(f"{self.part}: s and ms of each step", " ".join(f"{when % 1000:.2f}:{ms:.0f}" for when, ms in first.steps()))
        self.add_losses(both, [rank.losses() for rank in alone] * 2)
        wrong, looked = double_turns(account.samples, {rank.child.pid: i for i, job in enumerate(found) for rank in job},
                                     {rank.child.pid: rank.lines[-1][0] for rank in both if rank.lines})
        self.add("looks at which two jobs ran", wrong if looked else None, 0, f"of {looked}")
        self.add("changes of the turn", account.switches(), None)
        # After eight tries a job is asked again some seconds later: the other one has less memory for so long.
        self.add("ranks that have kept their memory at a turn's end", sum("keeps its memory" in rank.output for rank in both), None,
                 f"{sum('cannot be stopped' in rank.output for rank in both)} were asked again")
        if good:
            took, left = shared_time([job[0] for job in found], 2 * [span[1] - span[0]])
            self.add("time / sum of those alone", took / left if left else None, bar, f"{took:.1f} s / {left:.1f}")

    @staticmethod
    def by_turn(found):
        """The job whose latest step is the later one comes last: it has the turn."""
        return sorted(found, key=lambda pair: pair[0].steps()[-1][0])

    def lost(self):
        job = self.options.gpt, self.options.gpus_steps, ["nccl"]
        alone = self.not_counted(self.ranks_alone, *job)
        environment = self.shared(device_total=self.options.gpus_total)
        with Account(environment["XDG_RUNTIME_DIR"]) as account:
            found, both = self.two_jobs(environment, *job)
            if not self.until(lambda: all(len(rank.steps()) > FIRST + MORE for rank in both), 60, both):
                raise RuntimeError(f"the jobs have not begun: {[len(rank.steps()) for rank in both]} {both[0].output[-200:]}")
            first = self.by_turn(found)[1]
            self.until(lambda: self.by_turn(found)[1] is not first, 30, both)  # its turn has just begun then
            others, pair = self.by_turn(found)
            for name, victim in ("the other job goes on after the kill", pair[self.options.lost]), \
                    ("and after its partner was killed", pair[1 - self.options.lost]):
                n, killed, hangs = len(others[0].steps()), time.monotonic(), victim.child.poll() is None
                if hangs:
                    os.kill(victim.child.pid, signal.SIGKILL)
                good = self.until(lambda: len(others[0].steps()) >= n + MORE, 40, others)
                self.add(name, others[0].steps()[n + MORE - 1][0] - killed if good else None, 40,
                         f"{MORE} steps" + ("" if hangs else "; it had ended by itself"), unit=" s")
        self.log("lost: turns", "\n".join(account.turn_lines()))
        failed = [rank.child.poll() for rank in others if rank.child.poll()]
        for rank in both:
            self.end(rank)
        self.add_losses(others, [rank.losses() for rank in alone], failed)

    def away(self):
        job = self.options.gpt, self.options.away_steps, ["nccl"]
        alone = self.not_counted(self.ranks_alone, *job)
        environment = {**self.shared(share="off", device_total="auto"), "SPILLWAY_JOB": "pair"}
        pair = self.ranks(ranks.free_ports(1)[0], environment, *job)
        for which, bar in ("first", None), ("second", 1.5):  # at first host memory is pinned
            if not self.until(lambda: all(len(rank.steps()) >= FIRST + MORE for rank in pair), 40, pair):
                raise RuntimeError(f"the job has not begun: {pair[0].output[-200:]}")
            if not self.away_once(pair, environment, which, bar):
                break
        self.add_end(pair)
        self.add_losses(pair, [rank.losses() for rank in alone])

    def away_once(self, pair, environment, which, bar):
        """One suspension and resumption, each between two steps. It is refused where a rank is caught in a collective."""
        for tries in range(1, 11):
            n = len(pair[0].steps())
            self.until(lambda: len(pair[0].steps()) > n + 1, 10, pair)
            code, took, said = self.ask(environment, "suspend", "--job", "pair")
            if not code:
                break
        self.add(f"{which} time: suspend", None if code else took, bar, f"{tries} tries; {said}", unit=" s")
        if code:
            return False
        n = [len(rank.steps()) for rank in pair]
        time.sleep(0.5)
        self.add(f"{which} time: stood still", float(n == [len(rank.steps()) for rank in pair]), 1, least=True)
        begun = time.monotonic()
        code, _, said = self.ask(environment, "resume", "--job", "pair")
        back = self.until(lambda: all(len(rank.steps()) > before for rank, before in zip(pair, n)), 20, pair)
        self.add(f"{which} time: resume, until the next step has ended",
                 max(rank.steps()[before][0] for rank, before in zip(pair, n)) - begun if back and not code else None, bar,
                 said, unit=" s")
        return bool(back and not code)

    # ---- queue ----

    def queue(self):
        native = self.native_losses()
        environment = self.shared(share_queue="yes", host_total=self.options.queue_host)
        jobs = [self.start(self.gpt(steps=self.options.queue_steps), environment)]
        time.sleep(self.options.queue_apart)
        jobs.append(self.start(self.gpt(steps=self.options.queue_steps), environment))
        self.add_end(jobs)
        self.add_losses(jobs, [native] * 2)
        said = ["share.queue: this process waits" in job.output for job in jobs]
        self.add("one of them waited, and said so", float(sum(said) == 1), 1,
                 " ".join(re.findall(r"has waited for \d+ s", jobs[0].output + jobs[1].output)), least=True)
        first, second = sorted((job.steps() for job in jobs), key=lambda steps: steps[0][0] if steps else float("inf"))
        apart = second[0][0] - first[-1][0] if first and second else None
        self.add("the second's first step, after the first's last", apart, 0, unit=" s", least=True)

    # ---- launch ----

    def launch(self):
        sides = {"off": {"share": "off", "spill.mode": self.options.mode},
                 "turns": {"share": "turns", "spill.mode": self.options.mode, "device.total": "16GiB", "host.total": "75%"}}
        found = {(side, name): [] for side in sides for name in ("launch_added", "launch")}
        for i in range(self.options.rounds):
            for side in parts.sides_of_round(sides, i):
                place = {"XDG_RUNTIME_DIR": self.place()}
                result, _ = self.run(f"launch, share={side}", [self.tool("bench/bench"), "launch"], sides[side], place, 20)
                for name, (median, _, _) in bars.lines_of(result.output).items():
                    if (side, name) in found:
                        found[side, name].append(median)
        rounds = min(len(values) for values in found.values())
        for name, bar in ("launch_added", 5), ("launch", None):
            off, turns = (found[side, name] for side in sides)
            if rounds < min(3, self.options.rounds):
                self.add(f"{name}: turns - off", None, bar, f"{len(off)} and {len(turns)} measurements")
                continue
            texts = [f"{bars.spread(values)[0]:.1f} ({min(values):.1f} .. {max(values):.1f})" for values in (turns, off)]
            self.add(f"{name}: turns - off", statistics.median(turns) - statistics.median(off), bar,
                     f"{' - '.join(texts)} ns, {rounds} times in turn", unit=" ns")


def main():
    arguments = parts.parser()
    arguments.add_argument("--gpt", nargs=3, default=["1536", "16", "8"])
    arguments.add_argument("--small", nargs=3, default=["1024", "12", "5"], help="a rank: about 6 GiB")
    arguments.add_argument("--steps", type=int, default=400, help="of the native run, and of jobs at most")
    arguments.add_argument("--mode", default="exact")
    arguments.add_argument("--set", type=lambda t: dict(w.split("=", 1) for w in t.split(",")), default={}, help="KEY=VALUE,...")
    arguments.add_argument("--leave", type=float, default=26, help="GiB for the job and its neighbour")
    arguments.add_argument("--neighbours", type=int, default=2, help="that come one after the other, as far as there is time")
    arguments.add_argument("--step", type=float, default=1, help="GiB that the neighbour takes at a time")
    arguments.add_argument("--times", type=int, default=12, help="that it does so")
    arguments.add_argument("--pause", type=float, default=0.25, help="s between")
    arguments.add_argument("--hold", type=float, default=5, help="s that it keeps them")
    arguments.add_argument("--back", type=float, default=25, help="s that it is waited for until the memory is back")
    arguments.add_argument("--down", type=float, default=10, help="GiB that `set` takes")
    arguments.add_argument("--kills", type=int, default=3)
    arguments.add_argument("--kill-leave", type=float, default=24, help="GiB for the jobs of kill")
    arguments.add_argument("--quantum", default="3s", help="of the jobs of kill")
    arguments.add_argument("--within", type=float, default=1, help="s of its turn, after which the holder is killed")
    arguments.add_argument("--rank-steps", type=int, default=80)
    arguments.add_argument("--gpus-steps", type=int, default=1000,
                           help="of each of two jobs on two GPUs; 6 minutes with the run alone, within --seconds")
    arguments.add_argument("--gpus-total", default="16GiB", help="of each GPU for them: a rank of 14.4 GiB fits, two do not")
    arguments.add_argument("--lost", type=int, default=0, help="rank that is killed")
    arguments.add_argument("--away-steps", type=int, default=150)
    arguments.add_argument("--queue-steps", type=int, default=60)
    arguments.add_argument("--queue-host", default="8GiB")
    arguments.add_argument("--queue-apart", type=float, default=1.5, help="s between the starts of the two")
    arguments.add_argument("--rounds", type=int, default=7)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what it has started ends with it
    parts.main(More, arguments)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
