# SPDX-License-Identifier: Apache-2.0
"""The bars of serving, on a real GPU: python serve_bars.py --build BUILD --log FILE [--seconds N] [PART...]

The default is all parts, in 530 seconds at most (--seconds). The jobs are serve_job.py's, whose head says what they do.

  suspend  a server with about 34 GiB, to which requests come while it works: suspended by `spillway suspend` while at
           least 8 requests wait, and resumed. More requests come while it is suspended. How long the suspension takes when
           no host memory is pinned, when that of a suspension just before still is, and when it was pinned ahead
           (host.pin_ahead); what others see on the GPU meanwhile; how long after the resume the first token comes; and
           tokens and logits bit for bit those of a native run that was not suspended
  static   a language model generates with transformers' static cache, at 1.5 times its budget in each mode: tokens and
           logits bit for bit those of a native run, tokens a second beside `static`
  paged    the same with transformers' continuous batching, whose cache is paged, with requests that wait. Where this
           transformers has none, or another one, the row says so

Memory is oversubscribed by Spillway's device.budget alone, and in `suspend` not at all. Rows and exit status: parts.py.
"""
import json
import subprocess
import sys
import time

import bars
import harness
import parts
import suspend
from parts import settings

RATIO = 1.5
WAITING = 8  # requests, at least, while the server is suspended
HELD = 34 << 30  # bytes, at least, of the server
START = 120  # seconds: until a job has loaded its libraries and made its model
POLICY = "inference"


# ---- what jobs print ----

def word_after(output, name):
    """The rest of the last line "NAME REST"; '': there is none."""
    found = [line[len(name) + 1:].strip() for line in output.splitlines() if line.startswith(name + " ")]
    return found[-1] if found else ""


def rate_of(output):
    """Tokens a second; None: it did not come so far."""
    return harness.number(word_after(output, "rate"))


def waiting_of(output):
    """How many requests waited after the last token; None: there was none."""
    found = [line.split() for line in output.splitlines() if line.startswith("each ")]
    return int(found[-1][3]) if found and len(found[-1]) == 4 else None


def late_requests(output, numbers):
    """Of these requests, how many have been answered."""
    done = {line.split()[1] for line in output.splitlines() if line.startswith("done ")}
    return sum(str(number) in done for number in numbers)


def host_used_of(text, pid):
    """Host memory that a process has pinned, by `spillway top --once --json`; None when nobody says."""
    try:
        found = [process for process in json.loads(text)["processes"] if process.get("pid") == pid]
        return int(found[0]["host_used"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def is_settled(samples, wanted, seconds):
    """Is what is pinned ahead complete, or has nothing been added for so long? samples: [(when, bytes)]"""
    if not samples:
        return False
    last, most = samples[-1]
    return most >= wanted or (most > 0 and last - min(when for when, value in samples if value == most) >= seconds)


class Serving(parts.Parts):
    PARTS = {"suspend": 330, "static": 200, "paged": 200}
    DEFAULT = list(PARTS)

    # ---- generation at 1.5 ----

    def generation(self, kind):
        command = self.python("serve_job.py", kind, *self.options.job)
        natives = []
        for which in "native", "native again":
            result, _ = self.run(f"{kind}, {which}", command, limit=START)
            api = word_after(result.output, "api")
            if api.startswith("none"):
                self.add(f"{kind}: transformers", None, None, api)
                return
            if result.status != "ok" or not result.checks or not result.need:
                self.failed(f"{kind}, {which}", 1, result)
                return
            natives.append(result)
        first, second = natives
        same = harness.compare(first, first, second)
        self.add(f"{kind}, native: two runs equal", float(same == "bit for bit"), 1, same, least=True)
        self.add(f"{kind}, native: tokens a second", rate_of(first.output), None,
                 f"need {first.need >> 20} MiB; {word_after(first.output, 'api')}")
        beside = None
        for mode in self.options.modes:
            what = f"{kind}, {mode} {RATIO}"
            result, _ = self.run(what, command, settings(mode, first.need, RATIO), {"SPILLWAY_POLICY": POLICY}, START)
            if result.status != "ok":
                self.failed(f"{what}: tokens equal", 1, result, least=True)
                continue
            text = harness.compare(first, first, result)
            spilled = result.spilled not in ("", "none")
            self.add(f"{what}: tokens equal", float(text == "bit for bit") if spilled else None, 1,
                     f"{text}; {result.spilled or 'nothing'} lay on the host at most", least=True)
            rate, own = rate_of(result.output), rate_of(first.output)
            beside = rate if mode == "static" else beside
            than = f"; {rate / beside:.2f} of static" if beside and rate and mode != "static" else ""
            self.add(f"{what}: tokens a second", rate, None, f"{rate / own:.2f} of native{than}" if rate and own else "")

    def static(self):
        self.generation("static")

    def paged(self):
        self.generation("paged")

    # ---- a server that is suspended ----

    def tell(self, job, line):
        try:
            job.child.stdin.write(line + "\n")
            job.child.stdin.flush()
        except OSError:
            pass  # it has ended, which is noticed by what it does not print

    def wait_line(self, job, text, seconds):
        end = time.monotonic() + min(seconds, self.left())
        while time.monotonic() < end and job.child.poll() is None:
            if any(line == text for _, line in list(job.lines)):
                return True
            time.sleep(0.01)
        return any(line == text for _, line in list(job.lines))

    def host_used(self, job):
        tool = [self.tool("spillway"), "top", "--once", "--json"]
        try:
            answer = subprocess.run(tool, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return host_used_of(answer.stdout, job.child.pid)

    def wait_until_pinned(self, name, job, need):
        samples, start = [], time.monotonic()
        end = start + min(self.options.pin_seconds, self.left())
        while time.monotonic() < end and not is_settled(samples, 0.98 * need, 5):
            used = self.host_used(job)
            if used is not None:
                samples.append((time.monotonic(), used))
            time.sleep(0.2)
        used, took = (samples[-1][1], samples[-1][0] - start) if samples else (None, 0)
        self.add(f"{name}: pinned ahead / held", used and used / need, 0.95,
                 f"{(used or 0) / (1 << 30):.1f} GiB, {took:.1f} s after the first requests were answered", least=True)

    def cycle(self, name, job, need, pinned, late):
        """One suspension, while requests wait and more come; False if it did not work."""
        held, waits = suspend.used_mib(), waiting_of(job.output())
        took, good = suspend.command(self, "suspend", job)
        if not good:
            self.add(f"{name}: suspension", None, self.options.most, "the tool failed")
            return False
        self.add(f"{name}: requests waiting", waits, WAITING, least=True)
        self.add(f"{name}: suspension", took, self.options.most if pinned else None, unit=" s")
        time.sleep(0.3)
        n, left = len(job.step_times()), suspend.used_mib()
        self.tell(job, f"request {late[0]} {len(late)}")
        came = self.wait_line(job, f"asked {late[0]} {len(late)}", 10)
        time.sleep(self.options.stand)
        self.add(f"{name}: no token meanwhile, and requests came", float(len(job.step_times()) == n and came), 1, least=True)
        given = held - left if held is not None and left is not None else None
        self.add(f"{name}: memory given back / held", given * (1 << 20) / need if given is not None else None, 0.95,
                 f"{held} -> {left} MiB in use on the GPU", least=True)
        start = time.monotonic()
        resumed, good = suspend.command(self, "resume", job)
        if not good or not job.wait_steps(n + 1):
            self.add(f"{name}: first token after the resume", None, self.options.most, "the tool failed, or none came")
            return False
        self.add(f"{name}: first token after the resume", job.step_times()[n] - start, self.options.most,
                 f"from the start of the command, which took {resumed:.3f} s", unit=" s")
        return True

    def serve(self, name, environment, cycles, pins_ahead=False):
        """A server to its end: 8 requests, 24 more, 8 in each suspension. (job, status). cycles: is memory pinned in each?"""
        tokens, batch = self.options.tokens, WAITING
        command = self.python("serve_job.py", "serve", "--tokens", tokens, "--batch", batch, *self.options.job)
        job = suspend.Job(command, environment, subprocess.PIPE)
        try:
            good = self.wait_line(job, "ready", START)
            self.tell(job, f"request 0 {batch}")
            good = good and job.wait_steps(tokens, min(START, self.left()))
            need = bars.steps_of(job.output()).need
            if good and pins_ahead:
                self.wait_until_pinned(name, job, need)
            self.tell(job, f"request {batch} {3 * batch}")
            for i, pinned in enumerate(cycles):
                late = range((4 + i) * batch, (5 + i) * batch)
                # In the middle of a batch, so that the cache has contents that are needed.
                good = good and job.wait_steps((1 + i) * tokens + tokens // 4)
                if good and pinned is None:
                    self.tell(job, f"request {late[0]} {batch}")
                elif good:
                    which = f"{name}, {'first' if i == 0 else 'second'} time"
                    good = self.cycle(which, job, need, pinned, late)
            self.tell(job, "end")
            status = job.finish(min(START, max(self.left(), 1))) if good else "it did not go on"
        finally:
            job.end()
            self.log(f"server, {name}", job.output())
        return job, status

    def checks(self, job):
        return {line.split()[1]: line.split()[2] for _, line in job.lines if line.startswith("check ") and len(line.split()) == 3}

    def suspend(self):
        cycles = 2
        runs = [("native", None, {}, [None] * cycles)]
        runs += [(f"server, {self.options.modes[-1]}", self.options.modes[-1], {}, [False, True])]
        runs += [(f"server, {mode}, pinned ahead", mode, {"host.pin_ahead": "auto"}, [True, True])
                 for mode in self.options.modes if mode != "static"]
        wanted = None
        for name, mode, more, which in runs:
            environment = {}
            if mode:
                environment = harness.shim_environment(self.options.build, {"spill.mode": mode, **more})
                environment["SPILLWAY_POLICY"] = POLICY
            job, status = self.serve(name, environment, which, bool(more))
            output, found = job.output(), self.checks(job)
            n = (4 + cycles) * WAITING
            good = status == "ok" and found and int(word_after(output, "served") or 0) == n
            if mode is None:
                need = bars.steps_of(output).need
                self.add("server: holds", need / (1 << 30), self.options.held / (1 << 30), word_after(output, "api"), least=True,
                         unit=" GiB")
                if not good:
                    self.add("server, native", None, 1, f"{status} {output[-150:]}", least=True)
                    return
                wanted = found
                continue
            late = late_requests(output, range(4 * WAITING, n))
            self.add(f"{name}: tokens equal", float(bool(good) and found == wanted and late == cycles * WAITING), 1,
                     f"{status}; {late} of {cycles * WAITING} requests that came while it was suspended were answered", least=True)


def arguments():
    parser = parts.parser()
    # `static` first, because the others are compared with it; the last one is that of the server.
    parser.add_argument("--modes", type=lambda t: t.split(","), default=["static", "fast", "exact"])
    parser.add_argument("--tokens", type=int, default=48, help="of each answer of the server")
    parser.add_argument("--held", type=int, default=HELD, help="bytes that the server holds at least")
    parser.add_argument("--pin-seconds", type=float, default=45, help="at most, until host memory is pinned ahead")
    parser.add_argument("--most", type=float, default=1, help="s, of a suspension with pinned memory, and to the first token")
    parser.add_argument("--stand", type=float, default=1, help="s, after which it is seen that a suspended server stands still")
    parser.add_argument("--job", type=str.split, default=[], help="more arguments for serve_job.py")
    return parser


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    parts.main(Serving, arguments())
