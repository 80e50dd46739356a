# SPDX-License-Identifier: Apache-2.0
"""The bars of several GPUs: python peers_bars.py --build BUILD --log FILE [--seconds N] [PART...]. Needs two GPUs.

  copies     one process, two GPUs: copies and kernels between them, in memory and at half of what it needs; and peer_check,
             natively and at half of what it needs
  nccl       what torch.distributed does by NCCL between two ranks, on int32 (rank_job.py), likewise
  steps      --kinds of training on two ranks (rank_job.py), one after the other in each process, natively and in memory in
             turn, --runs of each: the ratio of the medians, and what 95 of 100 such ratios lie between
  calls      what CUDA's functions take of the CPU in a step of each kind, in memory beside native, by PyTorch's profiler
  half       each kind at half of what it needs: its losses, and its step
  bandwidth  the bus bandwidth of an all-reduce of 1 GiB in memory / natively, in turn, by the programs in --nccl-tests
  tests      all of these programs, which check every element: natively, in memory, and with buffers that spill
  hang       one of two ranks is killed, or stopped for a while, or finds no host memory: all end, or go on
  rate       what the link to a GPU that lends (spill.peers) carries, bare
  lend       the GPT job at 1.5 times its budget, spilling to the other GPU first / to the host
  readers    both GPUs read the same 1 GiB: on one of them natively and in the heap, in stripes over both (place: stripe), and
             in managed memory natively, on demand, and with managed.advise: read-mostly
  recall     one process on both GPUs, first with more than its budget on the one, then on the other: both lend and take back
  ranks      the GPT job on both GPUs at once, each at half of what it needs / on one alone; whether their links are separate

Oversubscription is by Spillway's device.budget alone. --nccl-tests: a folder of ready programs (all_reduce_perf, ...); there
is none in this repository. Rows and exit status: parts.py.
"""
import concurrent.futures
import os
import signal
import statistics
import sys
import time

import bars
import harness
import parts
import share_bars
from parts import last_median, settings

RANKS = 2
READ, ROUNDS = 1024, 12  # MiB of what both read, rounds
CHECKED = 64  # MiB of a block of peer_check, which has three on a GPU
# What was built beside the simulated GPU finds that one, unless it is told where the real one's driver is.
REAL_DRIVER = '. "$0" && LD_LIBRARY_PATH=$(libcuda_folder) exec "$@"'
GPT = ["1536", "16", "8"]
KINDS = "ddp,fsdp1,fsdp2,pipeline,tensor"
FIRST = 10  # steps of a run of `steps` that are not counted: loading of kernels, first allocations
ENDS = 25  # s more in which all have ended
AT_ONCE = 6  # programs, where their time does not matter


class Peers(parts.Parts):
    PARTS = {"copies": 150, "nccl": 200, "steps": 530, "calls": 220, "half": 200, "bandwidth": 90, "tests": 150, "hang": 110,
             "rate": 60, "lend": 250, "readers": 90, "recall": 110, "ranks": 300}
    DEFAULT = list(PARTS)

    def __init__(self, options):
        super().__init__(options)
        self.gpt_natives, self.rates, self.kind_natives = [], {}, {}

    def ranks_command(self, *arguments):
        return self.python("rank_job.py", *arguments, "--ranks", RANKS)

    # ---- right? ----

    def same(self, command, modes=("static", "exact", "fast")):
        """In memory and at half of it: what is printed is what is printed natively."""
        native, _ = self.run("native", command)
        if native.status != "ok" or not native.need:
            self.add("native", None, 0, native.status)
            return
        again, _ = self.run("native again", command)
        ample = {"device.budget": f"{2 * native.need >> 20}MiB"}
        for name, own in [("in memory", ample), *((mode, settings(mode, native.need, 2.0)) for mode in modes)]:
            result, _ = self.run(name, command, own)
            said = harness.compare(native, again, result) if result.status == "ok" else result.status
            good = result.status == "ok" and not said.startswith(("DIFFERS", "no result"))
            self.add(f"{name}: equal", float(good), 1, said, least=True)

    def peer_check(self):
        common = os.path.join(parts.HERE, "..", "..", "scripts", "common.sh")
        command = ["bash", "-c", REAL_DRIVER, common, self.tool("test/gpu/peer_check"), str(CHECKED)]
        for name in ("native", "static", "exact", "fast"):
            own = None if name == "native" else settings(name, 3 * CHECKED << 20, 2.0)
            result, _ = self.run(f"peer_check {name}", command, own)
            said = [line for line in result.output.splitlines() if line.startswith("peer_check:")][-1:]
            self.add(f"peer_check, {name}: every word right", float(result.status == "ok"), 1,
                     " ".join(said) or result.status, least=True)

    def copies(self):
        self.same(self.python("peer_job.py"))
        self.peer_check()

    def nccl(self):
        self.same(self.ranks_command("nccl", "3"))

    # ---- training on two ranks ----

    def kinds(self, name, steps, own=None, kinds=None, more=()):
        """(harness.Run, {kind: bars.Steps}) of one run of --kinds, or of these."""
        result, steps = self.run(name, self.ranks_command(kinds or self.options.kinds, steps, *more), own)
        return result, bars.jobs_of(result.output)

    def steps(self):
        """Of both sides the first run may be the longest; there is one more of each as long as it fits."""
        found, longest = {"native": [], "in memory": []}, 0
        for i in range(self.options.runs):
            begun = time.monotonic()
            if self.left() < 1.1 * longest:
                break
            for side in parts.sides_of_round(found, i):
                result, kinds = self.kinds(side, self.options.long, None if side == "native" else {})
                if result.status == "ok":
                    found[side].append(kinds)
                elif not found[side]:
                    self.failed(f"{side}: to its end", 1, result, least=True)
                    return
            longest = max(longest, time.monotonic() - begun)
        for kind in self.options.kinds.split(","):
            native, own = ([run[kind] for run in runs if kind in run and len(run[kind].ms) > FIRST] for runs in found.values())
            self.kind_natives[kind] = native
            self.in_memory(kind, native, own)

    def in_memory(self, kind, native, own):
        what = f"{kind}: step in memory / native, least of 95 %"
        if len(native) < 2 or len(own) < 2:
            self.add(what, None, 1.02, f"{len(native)} and {len(own)} runs")
            return
        base, times = ([statistics.median(steps.ms[FIRST:]) for steps in runs] for runs in (native, own))
        ratio, least, most = bars.ratio(times, base)
        texts = ["{:.1f} ({:.1f} .. {:.1f})".format(*bars.spread(values)) for values in (times, base)]
        self.add(what, least, 1.02, f"{ratio:.3f} ({least:.3f} .. {most:.3f}); {' / '.join(texts)} ms, {len(own)} and "
                 f"{len(native)} runs of {self.options.long - FIRST} steps")
        for steps in own:
            good, said = bars.losses_equal([steps.losses for steps in native], steps.losses)
            if not good or steps is own[-1]:
                self.add(f"{kind}: losses in memory equal", float(good), 1, said, least=True)
                break

    def calls(self):
        """Some runs of both sides in turn: by the profiler, what CUDA's functions take differs from run to run by more than
        the bar. So what is added is told, too, by how many calls there are and by what bench/bench finds of a launch."""
        found = {"native": [], "in memory": []}
        bench, _ = self.run("bench launch", [self.tool("bench/bench"), "launch"], {}, limit=30)
        added = bars.lines_of(bench.output).get("launch_added")
        for i in range(self.options.call_runs):
            for side in parts.sides_of_round(found, i):
                result, kinds = self.kinds(side, FIRST + 2, None if side == "native" else {}, more=["--calls"])
                found[side].append((bars.calls_of(result.output), kinds, result.status))
        for kind in self.options.kinds.split(","):
            what = f"{kind}: what CUDA's functions take more / step"
            native, own = ([calls[kind] for calls, kinds, _ in runs if calls.get(kind) and kinds[kind].complete]
                           for runs in found.values())
            if not native or not own:
                self.add(what, None, 0.01, " ".join(status for runs in found.values() for _, _, status in runs))
                continue
            step = statistics.median(last_median(kinds[kind]) for calls, kinds, _ in found["native"] if calls.get(kind))
            base, sums = ([sum(us for _, us in calls.values()) for calls in runs] for runs in (native, own))
            more = {name: statistics.median(calls.get(name, (0, 0))[1] for calls in own)
                    - statistics.median(calls.get(name, (0, 0))[1] for calls in native) for name in own[0]}
            worst = sorted(more, key=more.get)[:-4:-1]
            texts = ["{:.0f} ({:.0f} .. {:.0f})".format(*bars.spread(values)) for values in (sums, base)]
            self.add(what, (statistics.median(sums) - statistics.median(base)) / 1e3 / step, 0.01,
                     f"{' - '.join(texts)} us; most " + ", ".join(f"{name} {more[name]:+.0f}" for name in worst))
            if added:
                n = statistics.median(sum(count for count, _ in calls.values()) for calls in own)
                self.add(f"{kind}: calls, by what a launch costs more, / step", n * added[0] / 1e6 / step, 0.01,
                         f"{n:.0f} calls of {added[0]:.0f} ({added[1]:.0f} .. {added[2]:.0f}) ns, {step:.1f} ms")

    def half(self):
        if not all(self.kind_natives.get(kind) for kind in self.options.kinds.split(",")):
            runs = [self.kinds("native", self.options.steps)[1] for _ in range(2)]
            for kind in self.options.kinds.split(","):
                self.kind_natives[kind] = [run[kind] for run in runs if kind in run and run[kind].need]
        for kind, mode in ((kind, mode) for kind in self.options.kinds.split(",") for mode in self.options.modes):
            natives = self.kind_natives[kind]
            if len(natives) < 2:
                self.add(f"{kind}, {mode} 2.0: losses equal", None, 1, "no native runs", least=True)
                continue
            result, found = self.kinds(f"{kind}, {mode} 2.0", self.options.steps, settings(mode, natives[0].need, 2.0), kind)
            steps = found.get(kind, bars.Steps())
            if not steps.complete or result.status != "ok":
                self.failed(f"{kind}, {mode} 2.0: losses equal", 1, result, least=True)
                continue
            good, said = bars.losses_equal([native.losses for native in natives], steps.losses)
            self.add(f"{kind}, {mode} 2.0: losses equal", float(good), 1, said, least=True)
            self.add(f"{kind}, {mode} 2.0: step", last_median(steps), None,
                     f"native {last_median(natives[0]):.1f}; needs {natives[0].need >> 20} MiB", unit=" ms")

    # ---- nccl-tests ----

    def nccl_test(self, name, *arguments):
        return [os.path.join(os.path.abspath(self.options.nccl_tests or "nccl-tests"), name), "-g", str(RANKS), *arguments]

    def bandwidth(self):
        """Both out of place and in place, of which the better one says what the links carry."""
        command = self.nccl_test("all_reduce_perf", "-b", "1G", "-e", "1G", "-n", "20", "-w", "5", "-c", "0")
        found = {"native": [], "in memory": []}
        for i in range(self.options.pairs):
            for side in parts.sides_of_round(found, i):
                result, _ = self.run(side, command, None if side == "native" else {}, limit=40)
                found[side] += [max(out, place or 0) for _, out, _, place, _ in bars.nccl_rows(result.output)]
        if min(map(len, found.values())) < 2:
            self.add("all-reduce of 1 GiB: bus bandwidth / native", None, 0.99, str(found), least=True)
            return
        ratio, least, most = bars.ratio(found["in memory"], found["native"])
        texts = ["{:.1f} ({:.1f} .. {:.1f})".format(*bars.spread(values)) for values in reversed(found.values())]
        self.add("all-reduce of 1 GiB: bus bandwidth / native", ratio, 0.99,
                 f"{least:.3f} .. {most:.3f}; {' / '.join(texts)} GB/s, {self.options.pairs} runs each", least=True, near=most)

    def tests(self):
        try:
            names = sorted(name for name in os.listdir(self.options.nccl_tests) if name.endswith("_perf"))
        except (OSError, TypeError):
            names = []
        if not names:
            self.add("nccl-tests", None, 1, "--nccl-tests names no folder with them", least=True)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self.test, names))

    def test(self, name):
        """The need is what was on a GPU at most where all fits. These programs make their buffers by cuMemCreate."""
        command = self.nccl_test(name, "-b", "8M", "-e", "512M", "-f", "8", "-n", "3", "-w", "1", "-c", "1", "-d", "int32")
        need = 0
        for side in ("native", "in memory", "static", "exact", "fast"):
            if side in ("static", "exact", "fast") and not need:
                self.add(f"{name}, {side}: elements right", None, 1, "what it needs is not known", least=True)
                continue
            own = None if side == "native" else {"vmm.spill": "move", **(settings(side, need, 1.25) if need else {})}
            result, _ = self.run(f"{name} {side}", command, own, limit=60)
            need = need or bars.device_peak(result.output) or 0
            rows = bars.nccl_rows(result.output)
            wrong = sum((out or 0) + (place or 0) for _, _, out, _, place in rows)
            good = result.status == "ok" and len(rows) == 3 and not wrong
            moved = f"; {result.spilled} on the host at most" if own else ""
            self.add(f"{name}, {side}: elements right", float(good), 1, f"{result.status}, {len(rows)} sizes, {wrong} wrong{moved}",
                     least=True)

    # ---- who waits for a rank that does not come ----

    def hang(self):
        cases = [(case, mode) for case in ("killed", "stopped", "without host memory") for mode in ("native", *self.options.modes)
                 if mode != "native" or case != "without host memory"]
        native, _ = self.kinds("native", FIRST, kinds="ddp")
        if native.status != "ok" or not native.need:
            self.failed("native: to its end", 1, native, least=True)
            return
        with concurrent.futures.ThreadPoolExecutor(2) as pool:  # seven that spill at once took 10 s for each of their steps
            list(pool.map(lambda case: self.one_fails(*case, native.need), cases))

    def one_fails(self, case, mode, need):
        """A job of two ranks of which one fails. Each of the two says why it ends, if it does."""
        environment = {} if mode == "native" else harness.shim_environment(self.options.build, settings(mode, need, 2.0))
        if case == "without host memory":
            poor = harness.shim_environment(self.options.build, {**settings(mode, need, 2.0), "host.budget": "64MiB"})
            environment["RANK1_SPILLWAY_SET"] = poor["SPILLWAY_SET"]
        command = self.ranks_command("ddp", 100000, "--patience", self.options.patience)
        job, begun, pid = share_bars.Job(command, environment), time.monotonic(), None
        try:
            while job.child.poll() is None and time.monotonic() < begun + 40 and not (pid and len(job.steps()) >= 2 * FIRST):
                time.sleep(0.05)
                pid = next((int(line.split()[2]) for _, line in job.lines if line.startswith("rank 1 ")), None)
            self.after_failure(case, f"{case}, {mode}", job, pid)
        finally:
            harness.kill_all(job.child.pid)
            job.wait(5)
            self.log(f"{case}, {mode}: {job.child.returncode}", job.output)

    def after_failure(self, case, name, job, pid):
        steps, failed = len(job.steps()), time.monotonic()
        if case != "without host memory" and (not pid or steps < 2 * FIRST):
            self.add(f"{name}: began", None, 1, job.output[-150:].replace("\n", " "), least=True)
            return
        if case == "stopped":
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.options.patience / 3)
            os.kill(pid, signal.SIGCONT)
        elif case == "killed":
            os.kill(pid, signal.SIGKILL)
        while job.child.poll() is None and time.monotonic() < failed + self.options.patience + ENDS:
            if case == "stopped" and len(job.steps()) >= steps + 2 * FIRST:
                self.add(f"{name}: goes on", 1.0, 1, f"{time.monotonic() - failed:.1f} s after the stop", least=True)
                return
            time.sleep(0.05)
        took, ended = time.monotonic() - failed, job.child.poll() is not None
        if case == "stopped":
            self.add(f"{name}: goes on", 0.0, 1, f"it ended: {job.child.poll()}", least=True)
            return
        said = [line.strip() for _, line in job.lines if line.startswith("spillway:") or "rror" in line or "imeout" in line]
        self.add(f"{name}: all have ended, and said why", took if ended and said else None, self.options.patience + ENDS,
                 f"{job.child.poll()}: {said[0][:100] if said else 'nothing was said'}", unit=" s")

    # ---- lending ----

    def rate(self):
        result, _ = self.run("link", [self.tool("bench/link"), "5", "0", "1"], limit=60)
        self.rates = bars.lines_of(result.output)
        for name, (median, least, most) in self.rates.items():
            if "pinning" not in name:
                self.add(name, median, None, f"{least:.0f} .. {most:.0f}", unit=" GB/s")

    def gpt_command(self):
        return self.python("gpt.py", *GPT, self.options.steps, "each")

    def gpt(self, name, own=None, environment=None):
        return self.run(name, self.gpt_command(), own, environment)

    def natives(self, times):
        """Native runs; none when it does not run. Two differ from each other, too."""
        while len(self.gpt_natives) < times:
            result, steps = self.gpt("gpt native")
            if result.status != "ok" or not steps.need:
                self.add("gpt native", None, 0, result.status)
                return []
            self.gpt_natives.append(steps)
        return self.gpt_natives

    def lend(self):
        natives = self.natives(2)
        if not natives:
            return
        base = statistics.median(last_median(steps) for steps in natives)
        for mode in ("fast", "exact"):
            own = {}
            for where, more in (("host", {}), ("peer", {"spill.peers": "1", "spill.peer_budget": "40GiB"})):
                result, steps = self.gpt(f"{mode} 1.5 {where}", {**settings(mode, natives[0].need, 1.5), **more})
                own[where] = last_median(steps)
                if not steps.complete:
                    self.add(f"{mode} 1.5 {where}", None, 0, result.status)
                    continue
                good, said = bars.losses_equal([native.losses for native in natives], steps.losses)
                self.add(f"{mode} 1.5 {where}: losses equal", float(good), 1, said, least=True)
                self.add(f"{mode} 1.5 {where}: step", own[where], None, f"native {base:.0f}", unit=" ms")
                if where == "peer":
                    self.spill_rate(mode, result)
            if own.get("host") and own.get("peer"):
                self.add(f"{mode} 1.5: excess over in memory, peer / host", (own["peer"] - base) / (own["host"] - base),
                         0.6 if mode == "fast" else None, f"{own['peer']:.0f} and {own['host']:.0f} of {base:.0f} ms")

    def spill_rate(self, mode, result):
        moved, pair = bars.moved(result.output), self.rates.get("lent_pair_64")
        bar = 0.85 if mode == "fast" else None
        if moved and moved[2] and pair:
            rate = (moved[0] + moved[1]) / moved[2] / 1e9 / (2 * pair[0])
            self.add(f"{mode} 1.5 peer: rate / bare pair", rate, bar, f"of {pair[0]:.0f} GB/s each way", least=True)
        else:
            self.add(f"{mode} 1.5 peer: rate / bare pair", None, bar, "part rate comes first", least=True)

    def readers(self):
        base = None
        for name, managed, rule in (("natively", False, None), ("in the heap", False, "use: heap"),
                                    ("in stripes", False, "use: heap, place: stripe"), ("managed natively", True, None),
                                    ("managed", True, "use: managed"),
                                    ("managed, read-mostly", True, "use: managed, managed.advise: [read-mostly]")):
            own, environment = None, {}
            if rule:
                own = {"spill.peers": "1", "spill.peer_budget": "4GiB"}
                environment["SPILLWAY_POLICY"] = policy = os.path.join(self.folder.name, "readers.yaml")
                with open(policy, "w") as file:
                    file.write(f'version: 1\nrules:\n- {{match: {{size: ">= {READ}MiB"}}, {rule}}}\n')
            result, _ = self.run(name, self.python("peer_read_job.py", READ, ROUNDS, *(["managed"] if managed else [])), own,
                                 environment, limit=30)
            rates = bars.lines_of(result.output)
            self.add(f"{name}: every sum right", float(result.status == "ok" and "check sums 0" in result.output), 1, result.status,
                     least=True)
            if {"gpu0", "gpu1", "first"} <= rates.keys():
                slowest = min((rates["gpu0"], rates["gpu1"]))
                base = base or slowest[0]
                self.add(f"{name}: rate of the slower GPU", slowest[0], None, f"{slowest[1]:.0f} .. {slowest[2]:.0f}; both "
                         f"{rates['gpu0'][0]:.0f} and {rates['gpu1'][0]:.0f}, in the first round {rates['first'][0]:.0f} GB/s; "
                         f"{slowest[0] / base:.2f} of natively", unit=" GB/s")

    def recall(self):
        """Other programs have the rest of both GPUs, so that what is lent comes out of the lender's budget."""
        ballast = [share_bars.Job([*self.python("share_neighbour.py", "hold", self.options.recall + 2, 100)],
                                  {"CUDA_VISIBLE_DEVICES": str(i)}) for i in range(RANKS)]
        try:
            while not all("holds" in job.output for job in ballast):
                if any(job.child.poll() is not None for job in ballast) or self.left() < 60:
                    raise RuntimeError(f"the memory beside it could not be taken: {ballast[0].output[-200:]}")
                time.sleep(0.1)
            for mode in self.options.modes:
                own = {"device.budget": f"{self.options.recall}GiB", "spill.mode": mode, "spill.peers": "0 .. 1"}
                result, _ = self.run(f"{mode}, lending both ways", self.python("peer_job.py", "lend", self.options.recall), own,
                                     limit=50)
                moved = bars.moved(result.output)
                self.add(f"{mode}: all words right", float(result.status == "ok" and "check lend 0" in result.output), 1,
                         f"{result.status}; {' '.join(line for line in result.output.splitlines() if 'moved' in line)[:150]}",
                         least=True)
                self.add(f"{mode}: went to the other GPU or the host", moved and moved[1] / 1e9, None, unit=" GB")
        finally:
            for job in ballast:
                harness.kill_all(job.child.pid)
                job.wait(5)

    # ---- two ranks, one host ----

    def ranks(self):
        natives = self.natives(1)
        if not natives:
            return
        # Both GPUs are asked in the same way, so that the first has its own link in both.
        bar, said = bars.ranks_bar(*(self.link_rates(5, gpus).get("vmm_pair_64", (None,))[0] for gpus in (1, RANKS)))
        for mode in ("fast", "exact"):
            own = settings(mode, natives[0].need, 2.0)
            alone = last_median(self.gpt(f"{mode} 2.0 alone", own)[1])
            printed = self.at_once(self.gpt_command(),
                                   {**os.environ, **harness.shim_environment(self.options.build, own)}, RANKS)
            times = [last_median(bars.steps_of(text)) for text in printed]
            if alone and all(times):
                self.add(f"{mode} 2.0: step of two at once / alone", max(times) / alone, bar,
                         f"{' and '.join(f'{t:.0f}' for t in times)} / {alone:.0f} ms; {said}")
            else:
                self.add(f"{mode} 2.0: step of two at once / alone", None, bar, said)


def arguments():
    parser = parts.parser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--kinds", default=KINDS, help="of training")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["exact", "fast"], help="of half, hang, recall")
    parser.add_argument("--runs", type=int, default=10, help="of each side of `steps`, as far as there is time")
    parser.add_argument("--long", type=int, default=FIRST + 50, help="steps of each of them")
    parser.add_argument("--call-runs", type=int, default=3, help="of each side of `calls`")
    parser.add_argument("--pairs", type=int, default=6, help="of runs of `bandwidth`")
    parser.add_argument("--nccl-tests", metavar="FOLDER")
    parser.add_argument("--patience", type=float, default=10, help="s after which a rank of `hang` gives a collective up")
    parser.add_argument("--recall", type=int, default=6, help="GiB of each GPU in `recall`")
    return parser


if __name__ == "__main__":
    parts.main(Peers, arguments())
