# SPDX-License-Identifier: Apache-2.0
"""The bars of several GPUs: python peers_bars.py --build BUILD --log FILE [--seconds N] [PART...]. Needs two GPUs.

  copies   one process, two GPUs: copies and kernels between them, in memory and at half of what it needs; and peer_check,
           natively and at half of what it needs
  nccl     what torch.distributed does by NCCL between two ranks, on int32 (rank_job.py), likewise
  ddp fsdp a training job on two ranks: its step in memory / native; its losses at half of what it needs
  rate     what the link to a GPU that lends (spill.peers) carries, bare
  lend     the GPT job at 1.5 times its budget, spilling to the other GPU first / to the host
  ranks    the GPT job on both GPUs at once, each at half of what it needs / on one alone; whether their links are separate

Oversubscription is by Spillway's device.budget alone. Rows and exit status: parts.py.
"""
import os
import statistics
import subprocess
import sys

import bars
import harness
import parts
from parts import last_median, settings

RANKS = 2
CHECKED = 64  # MiB of a block of peer_check, which has three on a GPU
# What was built beside the simulated GPU finds that one, unless it is told where the real one's driver is.
REAL_DRIVER = '. "$0" && LD_LIBRARY_PATH=$(libcuda_folder) exec "$@"'
GPT = ["1536", "16", "8"]
FITS = 8  # times as many steps where a hundredth is looked for: with 12 FSDP's medians were 58 to 77 ms natively


class Peers(parts.Parts):
    PARTS = {"copies": 150, "nccl": 200, "ddp": 300, "fsdp": 300, "rate": 60, "lend": 250, "ranks": 300}
    DEFAULT = list(PARTS)

    def __init__(self, options):
        super().__init__(options)
        self.gpt_natives, self.rates = [], {}

    def ranks_command(self, *arguments):
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
                os.path.join(self.options.scripts, "rank_job.py"), *arguments]

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

    def training(self):
        command = self.ranks_command(self.part, str(self.options.steps))
        long = self.ranks_command(self.part, str(FITS * self.options.steps))
        native, shim = [], []
        for _ in range(self.options.rounds):
            result, steps = self.run("native", long)
            native.append(steps)
            if result.status != "ok" or not steps.need:
                self.add("native", None, 0, result.status)
                return
            _, steps = self.run("in memory", long, {"device.budget": f"{2 * native[0].need >> 20}MiB"})
            shim.append(steps)
        times = [[last_median(steps) for steps in runs if steps.complete] for runs in (native, shim)]
        if times[1]:
            base, own = (statistics.median(t) for t in times)
            self.add("in memory: step / native", own / base, 1.01,
                     f"{own:.1f} ({min(times[1]):.1f} .. {max(times[1]):.1f}) / {base:.1f} ({min(times[0]):.1f} .. "
                     f"{max(times[0]):.1f}) ms", near=min(times[1]) / base)
        else:
            self.add("in memory: step / native", None, 1.01)
        for mode in ("exact", "fast"):
            result, steps = self.run(f"{mode} 2.0", command, settings(mode, native[0].need, 2.0))
            if not steps.complete or result.status != "ok":
                self.add(f"{mode} 2.0: losses equal", None, 1, result.status, least=True)
                continue
            good, said = bars.losses_equal([steps.losses for steps in native], steps.losses)
            self.add(f"{mode} 2.0: losses equal", float(good), 1, said, least=True)
            self.add(f"{mode} 2.0: step", last_median(steps), None, unit=" ms")

    ddp = fsdp = training

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

    # ---- two ranks, one host ----

    def at_once(self, command, environment):
        """What each rank prints, all of them started together; nothing of one that took too long."""
        children = [subprocess.Popen(command, env={**environment, "CUDA_VISIBLE_DEVICES": str(i)}, text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for i in range(RANKS)]
        try:
            return [child.communicate(timeout=150)[0] for child in children]
        except subprocess.TimeoutExpired:
            for child in children:
                child.kill()
                child.wait()
            return [""] * RANKS

    def links(self):
        """GB/s of the bare pair of one GPU, alone, and the least of all at once."""
        command = [self.tool("bench/link"), "5"]
        alone, _ = self.run("link alone", command, environment={"CUDA_VISIBLE_DEVICES": "0"}, limit=60)
        rates = [bars.lines_of(said).get("vmm_pair_64", (None,))[0]
                 for said in (alone.output, *self.at_once(command, dict(os.environ)))]
        return rates[0], min(rates[1:]) if all(rates[1:]) else None

    def ranks(self):
        natives = self.natives(1)
        if not natives:
            return
        bar, said = bars.ranks_bar(*self.links())
        for mode in ("fast", "exact"):
            own = settings(mode, natives[0].need, 2.0)
            alone = last_median(self.gpt(f"{mode} 2.0 alone", own)[1])
            printed = self.at_once(self.gpt_command(),
                                   {**os.environ, **harness.shim_environment(self.options.build, own)})
            times = [last_median(bars.steps_of(text)) for text in printed]
            if alone and all(times):
                self.add(f"{mode} 2.0: step of two at once / alone", max(times) / alone, bar,
                         f"{' and '.join(f'{t:.0f}' for t in times)} / {alone:.0f} ms; {said}")
            else:
                self.add(f"{mode} 2.0: step of two at once / alone", None, bar, said)


def arguments():
    parser = parts.parser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    return parser


parts.main(Peers, arguments())
