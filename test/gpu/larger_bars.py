# SPDX-License-Identifier: Apache-2.0
"""Jobs larger than the card against their limits: python larger_bars.py --build BUILD --log FILE [OPTION...] PART...

  train lora decode prompt batch   larger_jobs.py
  sharded                          the same on two GPUs; the limit is that of one while the links of both are busy
  blocks                           test/bench/blocks_job.c, built here by nvcc, or the program --blocks
  binary                           the program --binary, e.g. llm.c: it prints "step 1/10 | loss 11.0 ... | 27.8 ms"; a word
                                   {tokens} in its command becomes a file of random tokens as llm.c reads it
  insurance                        a train that is in memory until its batch grows: what its steps cost before, at that moment
                                   and after, beside the native ones, which stand in the place of the limit

Each runs natively, twice; where it does not fit, at a half and a quarter of its layers, from which the time in memory is drawn
on as a line. Then, --times times, in each of --modes, with each --set, and in turn in each --against (an older build) and in
the build. One that fits gets a budget of its need / --ratio; for one that does not the card is the budget.

First losses are compared: with the native ones; without, with those of the first run, within 1e-3. The limit of a steady step
(all after the second) is the time in memory, less what of it the link hides, plus the bytes over the rate of a bare pair of
copies of this machine. Bytes: what was alive at most less the budget, once for each pass over the memory. Hidden is, of a
training, the optimizer alone, which comes when most is alive; of all others what computes on memory while the next one comes.
--plan prints the commands and runs nothing. Exit status: 0 all ran with equal losses, 1 not all.
"""
import array
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import statistics
import sys
from dataclasses import dataclass, field

import bars
import harness
import larger_jobs
import parts

HEAD = ["job", "build", "mode, settings", "losses", "steps 1+2, s", "steady, ms", "optimizer, ms", "GB in", "GB out",
        "limit, ms", "limit / steady"]
FIRST = 2  # steps that are not steady
GROWS_AT, GROWN_BATCH, GROWN_STEPS = 13, 32, 7  # of insurance: a step, its batch from then on, and how many such steps


@dataclass
class Job:
    kind: str  # of larger_jobs.py; "": a program of its own
    passes: int = 1  # over the memory, in a step
    hidden: str = "all"
    ratio: float = 1.5
    gpus: int = 1


JOBS = {"train": Job("train", hidden="optimizer", ratio=1.34),
        "sharded": Job("sharded", hidden="optimizer", ratio=1.34, gpus=2), "lora": Job("lora", passes=2), "decode": Job("generate"),
        "prompt": Job("generate"), "batch": Job("generate", passes=8), "blocks": Job(""), "binary": Job("")}


@dataclass
class Outcome:
    status: str = "ok"
    ms: list = field(default_factory=list)
    optimizer: list = field(default_factory=list)
    values: list = field(default_factory=list)
    copied: list = field(default_factory=list)  # (GB in, GB out) of steady steps
    alive: int = 0
    need: int = 0
    before: int = 0  # what was reserved before it grew
    budget: float = None  # bytes, of the shim's summary


def outcome_of(result):
    """Of a run's output."""
    found = Outcome(result.status)
    for line in result.output.splitlines():
        with contextlib.suppress(ValueError):
            said = json.loads(line) if line.startswith("{") else {}
            if "step" in said:
                found.ms.append(said["ms"])
                found.values.append(said["value"])
                found.optimizer += [said["optimizer_ms"]] if said["optimizer_ms"] else []
                if said["step"] > FIRST and "in_gb" in said:
                    found.copied.append((said["in_gb"], said["out_gb"]))
            elif "before_growing" in said:
                found.before = said["reserved"]
            elif "alive" in said:
                found.alive, found.need = said["alive"], said["reserved"]
        if step := re.match(r"step +\d+/\d+ \| loss ([\d.]+) .*\| ([\d.]+) ms ", line):
            found.values.append(step[1])
            found.ms.append(float(step[2]))
        if budget := re.match(r"spillway: +device (?:.*, )?budget ([\d.]+ ?[KMGT]?i?B)", line):
            found.budget = bars.bytes_in(budget[1])
    if not found.ms:
        steps = bars.steps_of(result.output)
        found.ms, found.values, found.need = steps.ms, steps.losses + list(result.checks.values()), steps.need
    found.alive = found.alive or found.need
    if found.status == "ok" and len(found.ms) <= FIRST:
        found.status = f"{len(found.ms)} steps"
    return found


def drawn_on(many, more, few, less, layers):
    """What takes more with many layers and less with few: with so many layers, on the line through both."""
    return more + (more - less) / (many - few) * (layers - many)


def limit_ms(in_memory, hideable, size, pair):
    """A step's limit: size bytes, which the link moves at pair GB/s each way and meanwhile hides of hideable ms."""
    moving = size / pair / 1e6
    return in_memory - min(hideable, moving) + moving


def compared(natives, first, values):
    """(are they equal, how)"""
    if natives:
        said = {tuple(native) for native in natives}
        if len(said) > 1 and any(bars.number(text) is None for native in said for text in native):
            good, text = True, "not compared: native digests differ"
        else:
            good, text = bars.losses_equal(natives, values)
        return good and len(values) >= len(natives[0]), text
    pairs = [(bars.number(a), bars.number(b)) for a, b in zip(first, values)]
    if first == values:
        return True, "as the first run's"
    if len(first) != len(values) or any(a is None or b is None for a, b in pairs):
        return False, "DIFFER from the first run's"
    worst = max(abs(a - b) / max(abs(a), 1e-9) for a, b in pairs)
    return worst <= 1e-3, f"{'within' if worst <= 1e-3 else 'DIFFER by'} {worst:.0e} of the first run's"


class Larger(parts.Parts):
    PARTS = dict.fromkeys([*JOBS, "insurance"], 3600)

    def __init__(self, options):
        super().__init__(options)
        self.table, self.bad, self.card_bytes = [], False, None

    def card(self):
        """Bytes of the GPU's memory."""
        if not self.card_bytes:
            said = harness.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], {}, 30)
            self.card_bytes = int(said.output.split()[0]) << 20
        return self.card_bytes

    def layers(self, job):
        if self.options.layers or not job.kind:
            return self.options.layers or 1
        return 16 if job.kind == "generate" else larger_jobs.layers_for(job.kind, self.options.over * job.gpus * self.card())

    def command(self, name, layers, tool=None):
        steps = self.options.steps
        if name == "binary":
            return [self.tokens() if word == "{tokens}" else word for word in shlex.split(self.options.binary)]
        if name == "blocks":
            return [self.blocks_program(), self.options.blocks_batch, str(steps)]
        what = ["--what", name] if JOBS[name].kind == "generate" else []
        return [*self.python("larger_jobs.py", JOBS[name].kind, "--layers", layers, "--steps", steps), *what,
                *self.options.job, *(["--top", tool] if tool else [])]

    def tokens(self):
        path = os.path.join(self.folder.name, "tokens.bin")
        if not os.path.exists(path):
            words = array.array("H", random.Random(1).choices(range(50257), k=1 << 20))
            with open(path, "wb") as file:
                array.array("i", [20240520, 1, len(words)] + 253 * [0]).tofile(file)
                words.tofile(file)
        return path

    def blocks_program(self):
        if not self.options.blocks:
            root = os.path.dirname(os.path.dirname(parts.HERE))
            self.options.blocks = os.path.join(self.folder.name, "blocks_job")
            nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
            self.run("nvcc", [nvcc, "-x", "cu", "-arch", "native", "-O2", "-I", root, "-o", self.options.blocks,
                              os.path.join(root, "test", "bench", "blocks_job.c")])
        return self.options.blocks

    def native(self, name, layers):
        result, _ = self.run(f"{name}, native, {layers} layers", self.command(name, layers), limit=600)
        return outcome_of(result)

    def in_memory(self, name, job, layers):
        """(ms, ms of the optimizer, native runs of the whole job); None: not known."""
        whole = [self.native(name, layers)]
        if whole[0].status == "ok":
            whole.append(self.native(name, layers))
            whole = [run for run in whole if run.status == "ok"]
            found = whole
        elif whole[0].status == "out of memory" and job.kind and layers >= 4:
            whole, found = [], [self.native(name, layers // 2), self.native(name, layers // 4)]
            if any(run.status != "ok" for run in found):
                return None, None, []
        else:
            return None, None, []
        ms, optimizer = ([statistics.median(values[FIRST:]) if values else 0 for values in lists]
                         for lists in ([run.ms for run in found], [run.optimizer for run in found]))
        if whole:
            return statistics.median(ms), statistics.median(optimizer), whole
        return tuple(drawn_on(layers // 2, more, layers // 4, less, layers) for more, less in (ms, optimizer)) + ([],)

    def spilled(self, name, job, layers, build, settings):
        """One run under the library."""
        title = f"{name}, {build}, {settings}"
        if job.kind:
            command = self.command(name, layers, os.path.join(build, "spillway"))
            return outcome_of(self.run(title, command, settings, limit=600, build=build)[0])
        with harness.watch_counters(build) as samples:
            result, _ = self.run(title, self.command(name, layers), settings, limit=600, build=build)
        found = outcome_of(result)
        if samples and found.status == "ok" and (step := bars.a_step(samples, found.ms[FIRST:])):
            found.copied = [bars.copied(step)]
        return found

    def tell(self, name, job, build, label, runs, equal, memory, pair):
        """The row of one build with one setting."""
        ms, optimizer = ([value for run in runs for value in values(run)[FIRST:]]
                         for values in (lambda run: run.ms, lambda run: run.optimizer))
        row = [name, build, label, equal, f"{statistics.median(sum(run.ms[:FIRST]) for run in runs) / 1e3:.1f}",
               "{:.1f} ({:.1f} .. {:.1f})".format(*bars.spread(ms)), f"{statistics.median(optimizer):.0f}" if optimizer else ""]
        copied = [step for run in runs for step in run.copied]
        row += [f"{statistics.mean(way):.2f}" for way in zip(*copied)] if copied else ["", ""]
        in_memory, own, _ = memory
        if in_memory is None or not pair or runs[0].budget is None:
            return row + ["n/a", "n/a"]
        size = max(0, (runs[0].alive or self.options.need << 20) - runs[0].budget) * job.passes
        limit = limit_ms(in_memory, own if job.hidden == "optimizer" else in_memory, size, pair)
        return row + [f"{limit:.0f}" if limit >= 100 else f"{limit:.1f}", f"{limit / statistics.median(ms):.2f}"]

    def judge(self, name):
        job, layers = JOBS[name], self.layers(JOBS[name])
        if self.options.plan:
            print(" ", shlex.join(map(str, self.command(name, layers))))
            return
        memory = self.in_memory(name, job, layers)
        natives = memory[2]
        need = natives[0].need or self.options.need << 20 if natives else 0
        own = parts.settings("", need, self.options.ratio or job.ratio) if need else {}
        runs = {}
        for _ in range(self.options.times):
            for mode in self.options.modes:
                for more in self.options.set or [{}]:
                    for build in [*self.options.against, self.options.build]:
                        label = " ".join([mode, *(f"{key}={value}" for key, value in more.items())])
                        found = self.spilled(name, job, layers, build, {**own, "spill.mode": mode, **more})
                        runs.setdefault((build, label), []).append(found)
        first = next((run.values for every in runs.values() for run in every if run.status == "ok"), [])
        pair = self.link_rates(3, job.gpus).get("pinned_pair_64", (None,))[0]
        if memory[0] is not None:
            how = "by halves" if not natives else f"whole, need {need >> 20} MiB"
            self.table.append([name, "native", how, "", "", f"{memory[0]:.1f}", f"{memory[1]:.0f}", "", "", "",
                               f"pair {pair} GB/s"])
        if self.options.instead:
            result, _ = self.run(f"{name}, instead", [*self.command(name, layers), "--instead"], limit=600)
            self.table.append(self.tell(name, job, "native", "instead", [outcome_of(result)], result.status, (None,) * 3, None)
                              if result.status == "ok" else [name, "native", "instead", result.status, *7 * [""]])
        for (build, label), every in runs.items():
            good = [run for run in every if run.status == "ok"]
            verdicts = [compared([run.values for run in natives], first, run.values) for run in good]
            worst = next((text for equal, text in verdicts if not equal), verdicts[-1][1] if verdicts else "")
            self.bad |= len(good) < len(every) or not all(equal for equal, _ in verdicts)
            print(f"  losses of {name}, {label}: {worst}", flush=True)
            failed = " ".join(run.status for run in every if run.status != "ok")
            self.table.append(self.tell(name, job, build, label, good, f"{worst} {failed}".strip(), memory, pair) if good
                              else [name, build, label, failed, *7 * [""]])

    def insurance(self):
        layers = self.options.layers or 8
        command = [*self.python("larger_jobs.py", "train", "--layers", layers, "--steps", GROWS_AT - 1 + GROWN_STEPS, "--grow",
                                GROWS_AT, GROWN_BATCH), *self.options.job]
        if self.options.plan:
            print(" ", shlex.join(map(str, command)))
            return
        runs = {}
        for _ in range(self.options.times + 1):
            natives = runs.setdefault("native", [])
            natives.append(outcome_of(self.run("insurance, native", command)[0]))
            for mode in self.options.modes if len(natives) <= self.options.times else []:
                own = parts.settings(mode, natives[0].before, 1 / 1.1)
                runs.setdefault(mode, []).append(outcome_of(self.run(f"insurance, {mode}", command, own)[0]))
        for stretch, steps in (("before", slice(FIRST, GROWS_AT - 1)), ("the moment", slice(GROWS_AT - 1, GROWS_AT)),
                               ("after", slice(GROWS_AT, None))):
            native = statistics.median(ms for run in runs["native"] for ms in run.ms[steps])
            for mode, every in runs.items():
                verdicts = [compared([run.values for run in runs["native"]], [], run.values) for run in every]
                self.bad |= not all(equal and run.status == "ok" for (equal, _), run in zip(verdicts, every))
                median, least, most = bars.spread([ms for run in every for ms in run.ms[steps]])
                self.table.append([f"insurance, {stretch}", self.options.build, mode, verdicts[-1][1], "",
                                   f"{median:.1f} ({least:.1f} .. {most:.1f})", "", "", "", f"{native:.1f}",
                                   f"{native / median:.3f}"])

    def __getattr__(self, name):
        if name in JOBS:
            return lambda: self.judge(name)
        raise AttributeError(name)


def arguments():
    def pairs(text):
        return dict(word.split("=", 1) for word in text.split(","))

    parser = parts.parser()
    parser.add_argument("--against", action="append", type=os.path.abspath, default=[], help="a folder of an older build")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["fast", "exact"])
    parser.add_argument("--set", action="append", type=pairs, help="KEY=VALUE,...; each one is a row of its own")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--over", type=float, default=1.25, help="train, lora: times the card's memory")
    parser.add_argument("--ratio", type=float, help="need / budget of what fits")
    parser.add_argument("--need", type=int, default=0, help="MiB, of a --binary, which does not say it")
    parser.add_argument("--job", type=shlex.split, default=[], help="more arguments of larger_jobs.py")
    parser.add_argument("--instead", action="store_true", help="also what a user would pick without Spillway, natively")
    parser.add_argument("--blocks", type=os.path.abspath, help="a ready blocks_job")
    parser.add_argument("--blocks-batch", default="8")
    parser.add_argument("--binary", default="")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("parts", nargs="+", choices=Larger.PARTS, metavar="PART")
    return parser


def main():
    options = arguments().parse_args()
    options.build = os.path.abspath(options.build)
    if "binary" in options.parts and not (options.binary and options.need):
        sys.exit("larger_bars.py: binary needs --binary COMMAND and --need MIB")
    bench = Larger(options)
    for part in options.parts:
        bench.run_part(part)
    print()
    if bench.table:
        harness.table([HEAD] + bench.table)
    sys.exit(1 if bench.bad or bench.rows else 0)  # a row of bars: a part broke off


if __name__ == "__main__":
    main()
