"""The bars of several GPUs: python peers_bars.py --build BUILD --log FILE [--seconds N] [PART...]. Needs two GPUs.

  copies   one process, two GPUs: copies and kernels between them, in memory and at half of what it needs
  nccl     every collective between two ranks, likewise
  ddp fsdp a training job on two ranks: its step in memory / native; its losses at half of what it needs
  rate     what the link to a GPU that lends (spill.peers) carries, bare
  lend     the GPT job at 1.5 times its budget, spilling to the other GPU first / to the host
  ranks    the GPT job on both GPUs at once, each at half of what it needs / on one alone

Oversubscription is by Spillway's device.budget alone. Exit status: as spill_bars.py.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

import bars
import harness

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2
GPT = ["1536", "16", "8"]


class Peers:
    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.seconds
        self.part, self.rows, self.gpt_native = "", [], None

    def run(self, name, command, settings=None, environment=None, limit=110):
        env = dict(environment or {})
        if settings is not None:
            env.update(harness.shim_environment(self.options.build, settings))
        result = harness.run(command, env, min(limit, self.deadline - time.monotonic()))
        steps = bars.steps_of(result.output)
        with open(self.options.log, "a") as file:
            file.write(f"==== {name}: {result.status}: {env} {' '.join(command)}\n{result.output[-20000:]}\n")
        print(f"  {name}: {result.status}, {result.seconds:.0f} s", flush=True)
        return result, steps

    def add(self, what, value, bar, text="", **more):
        row = bars.Bar(self.part, what, value, bar, text, **more)
        self.rows.append(row)
        print("  " + " | ".join(str(cell) for cell in row.row()), flush=True)

    def ranks_command(self, *arguments):
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
                os.path.join(HERE, "rank_job.py"), *arguments]

    def half(self, mode, need, ratio=2.0):
        return {"device.budget": f"{int(need / ratio) >> 20}MiB", "spill.mode": mode}

    def median(self, steps):
        return statistics.median(bars.last_half(steps.ms)) if steps.complete else None

    # ---- right? ----

    def same(self, command, modes=("static", "exact", "fast")):
        """In memory and at half of it: what is printed is what is printed natively."""
        native, _ = self.run("native", command)
        if native.status != "ok" or not native.need:
            self.add("native", None, 0, native.status)
            return
        again, _ = self.run("native again", command)
        ample = {"device.budget": f"{2 * native.need >> 20}MiB"}
        for name, settings in [("in memory", ample), *((mode, self.half(mode, native.need)) for mode in modes)]:
            result, _ = self.run(name, command, settings)
            said = harness.compare(native, again, result) if result.status == "ok" else result.status
            good = result.status == "ok" and not said.startswith(("DIFFERS", "no result"))
            self.add(f"{name}: equal", float(good), 1, said, least=True)

    def copies(self):
        self.same([sys.executable, os.path.join(HERE, "peer_job.py")])

    def nccl(self):
        self.same(self.ranks_command("nccl", "3"))

    # ---- training on two ranks ----

    def training(self):
        command = self.ranks_command(self.part, str(self.options.steps))
        native, shim = [], []
        for _ in range(self.options.rounds):
            result, steps = self.run("native", command)
            native.append(steps)
            if result.status != "ok" or not steps.need:
                self.add("native", None, 0, result.status)
                return
            _, steps = self.run("in memory", command, {"device.budget": f"{2 * native[0].need >> 20}MiB"})
            shim.append(steps)
        times = [[self.median(steps) for steps in runs if steps.complete] for runs in (native, shim)]
        if times[1]:
            base, own = (statistics.median(t) for t in times)
            self.add("in memory: step / native", own / base, 1.01,
                     f"{own:.1f} ({min(times[1]):.1f} .. {max(times[1]):.1f}) / {base:.1f} ({min(times[0]):.1f} .. "
                     f"{max(times[0]):.1f}) ms", near=min(times[1]) / base)
        else:
            self.add("in memory: step / native", None, 1.01)
        for mode in ("exact", "fast"):
            result, steps = self.run(f"{mode} 2.0", command, self.half(mode, native[0].need))
            if not steps.complete or result.status != "ok":
                self.add(f"{mode} 2.0: losses equal", None, 1, result.status, least=True)
                continue
            good, said = bars.losses_equal(native[0].losses, native[-1].losses, steps.losses)
            self.add(f"{mode} 2.0: losses equal", float(good), 1, said, least=True)
            self.add(f"{mode} 2.0: step", self.median(steps), None, unit=" ms")

    ddp = fsdp = training

    # ---- lending ----

    def rate(self):
        result, _ = self.run("link", [os.path.join(self.options.build, "bench", "link"), "5", "0", "1"], limit=60)
        self.rates = bars.lines_of(result.output)
        for name, (median, least, most) in self.rates.items():
            if "pinning" not in name:
                self.add(name, median, None, f"{least:.0f} .. {most:.0f}", unit=" GB/s")

    def gpt(self, name, settings=None, environment=None):
        command = [sys.executable, os.path.join(HERE, "gpt.py"), *GPT, str(self.options.steps), "each"]
        return self.run(name, command, settings, environment)

    def native(self):
        if not self.gpt_native:
            result, steps = self.gpt("gpt native")
            self.gpt_native = steps if result.status == "ok" and steps.need else None
            if not self.gpt_native:
                self.add("gpt native", None, 0, result.status)
        return self.gpt_native

    def lend(self):
        native = self.native()
        if not native:
            return
        base = self.median(native)
        for mode in ("fast", "exact"):
            own = {}
            for where, more in (("host", {}), ("peer", {"spill.peers": "1", "spill.peer_budget": "40GiB"})):
                result, steps = self.gpt(f"{mode} 1.5 {where}", {**self.half(mode, native.need, 1.5), **more})
                own[where] = self.median(steps)
                if not steps.complete:
                    self.add(f"{mode} 1.5 {where}", None, 0, result.status)
                    continue
                good, said = bars.losses_equal(native.losses, native.losses, steps.losses)
                self.add(f"{mode} 1.5 {where}: losses as native's, bit for bit", float(good), None, said)
                self.add(f"{mode} 1.5 {where}: step", own[where], None, f"native {base:.0f}", unit=" ms")
                if where == "peer":
                    self.spill_rate(mode, result)
            if own.get("host") and own.get("peer"):
                self.add(f"{mode} 1.5: excess over in memory, peer / host", (own["peer"] - base) / (own["host"] - base),
                         0.6 if mode == "fast" else None, f"{own['peer']:.0f} and {own['host']:.0f} of {base:.0f} ms")

    def spill_rate(self, mode, result):
        moved, pair = bars.moved(result.output), getattr(self, "rates", {}).get("lent_pair_64")
        bar = 0.85 if mode == "fast" else None
        if moved and moved[2] and pair:
            rate = (moved[0] + moved[1]) / moved[2] / 1e9 / (2 * pair[0])
            self.add(f"{mode} 1.5 peer: rate / bare pair", rate, bar, f"of {pair[0]:.0f} GB/s each way", least=True)
        else:
            self.add(f"{mode} 1.5 peer: rate / bare pair", None, bar, "part rate comes first", least=True)

    # ---- two ranks, one host ----

    def ranks(self):
        native = self.native()
        if not native:
            return
        for mode in ("fast", "exact"):
            settings = self.half(mode, native.need)
            alone = self.median(self.gpt(f"{mode} 2.0 alone", settings)[1])
            env = {**os.environ, **harness.shim_environment(self.options.build, settings)}
            command = [sys.executable, os.path.join(HERE, "gpt.py"), *GPT, str(self.options.steps), "each"]
            both = [subprocess.Popen(command, env={**env, "CUDA_VISIBLE_DEVICES": str(i)}, text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for i in range(RANKS)]
            try:
                times = [self.median(bars.steps_of(child.communicate(timeout=150)[0])) for child in both]
            except subprocess.TimeoutExpired:
                for child in both:
                    child.kill()
                times = [None]
            if alone and all(times):
                self.add(f"{mode} 2.0: step of two at once / alone", max(times) / alone, 1.15,
                         f"{' and '.join(f'{t:.0f}' for t in times)} / {alone:.0f} ms")
            else:
                self.add(f"{mode} 2.0: step of two at once / alone", None, 1.15)


PARTS = ["copies", "nccl", "ddp", "fsdp", "rate", "lend", "ranks"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--seconds", type=float, default=530, help="for all together")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("parts", nargs="*", default=PARTS)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}; there are {' '.join(PARTS)}")
    options.build = os.path.abspath(options.build)
    peers = Peers(options)
    for part in options.parts:
        peers.part = part
        print(f"{part}:", flush=True)
        try:
            getattr(peers, part)()
        except Exception as error:  # a broken part must not take the others' results along
            peers.add(f"{part} broke off", None, 0, f"{type(error).__name__}: {error}")
    print()
    harness.table([bars.HEAD] + [row.row() for row in peers.rows])
    sys.exit(1 if any(row.bar is not None and row.verdict in ("MISS", "n/a") for row in peers.rows) else 0)


main()
