# SPDX-License-Identifier: Apache-2.0
"""share_more_bars.py without a GPU: python share_test.py. What it reads out of samples is tried with made-up ones. With SHARE_ALL
and BUILD set (a build with the simulated GPU in LD_LIBRARY_PATH), as at night, all parts are run: the jobs are small programs that use the driver, the
library and the tool are real. The neighbour and the GPU's free memory only pretend: each process has a simulated GPU of its
own."""
import os
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import share_bars
import share_more_bars as more

# A job of MIB BLOCKS MILLISECONDS STEPS: in each step all blocks are read, and filled anew. Ranks wait for each other.
PRETENDED_JOB = """
import ctypes, os, sys, time
mib, blocks, ms, steps = map(int, sys.argv[1:5])
here, rank, port = os.environ["PRETENDED"], os.environ.get("RANK"), os.environ.get("MASTER_PORT")
cuda, total, size = ctypes.CDLL("libcuda.so.1"), 256 << 20, (mib << 20) // blocks
def must(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: {code}")
def meet(step):
    if rank is None:
        return
    open(os.path.join(here, f"{port}-{rank}-{step}"), "w").close()
    while not os.path.exists(os.path.join(here, f"{port}-{1 - int(rank)}-{step}")):
        time.sleep(0.001)
device, context = ctypes.c_int(), ctypes.c_void_p()
must("cuInit", 0)
must("cuDeviceGet", ctypes.byref(device), int(rank) if "nccl" in sys.argv else 0)
must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
must("cuCtxSetCurrent", context)
places = [ctypes.c_uint64() for _ in range(blocks)]
for i, place in enumerate(places):
    must("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(size))
    must("cuMemsetD32_v2", place, i, ctypes.c_size_t(size // 4))
with open(os.path.join(here, f"holds-{os.getpid()}"), "w") as file:
    file.write(str(mib << 20))
for step in range(1, 4 + steps):
    if step > int(os.environ.get("DIES", step)) and "SPILLWAY_SET" in os.environ:
        sys.exit(3)
    begun, found = time.monotonic(), 0
    meet(step)
    for i, place in enumerate(places):
        word = ctypes.c_uint32()
        must("cuMemcpyDtoH_v2", ctypes.byref(word), ctypes.c_uint64(place.value + size - 4), ctypes.c_size_t(4))
        found += word.value
        must("cuMemsetD32_v2", place, i + step, ctypes.c_size_t(size // 4))
    must("cuCtxSynchronize")
    time.sleep(ms / 1e3)
    print(f"each {step} {(time.monotonic() - begun) * 1e3:.2f} {found}", flush=True)
    try:
        with open(os.path.join(here, "taken")) as file:
            cuda.sim_switch(b"MEMORY", ctypes.c_size_t(total - int(file.read())))
    except OSError:
        pass
print(f"gpt: reserved {mib} MiB", flush=True)
"""
PRETENDED_NEIGHBOUR = """
import os, re, sys, time
here, what, numbers = os.environ["PRETENDED"], sys.argv[1], [float(a) for a in sys.argv[2:]]
def take(size):
    path = os.path.join(here, "taken")
    with open(path + ".new", "w") as file:
        file.write(str(int(size)))
    os.rename(path + ".new", path)
def held():
    for name in os.listdir(here):
        pid = re.fullmatch(r"holds-([0-9]+)", name)
        try:
            with open(f"/proc/{pid and pid[1]}/stat") as stat, open(os.path.join(here, name)) as size:
                if stat.read().rpartition(")")[2].split()[0] not in "ZX":
                    yield int(size.read() or 0)
        except OSError:
            continue
if what == "grow":
    size, steps, pause, seconds = numbers
    for i in range(int(steps)):
        take((i + 1) * size * (1 << 30))
        print("took" if i or "FAILS" not in os.environ else "failed", i + 1, 2, flush=True)
        time.sleep(pause)
    time.sleep(seconds)
    take(0)
    print("ended", flush=True)
else:
    print("holds", 1 << 30, flush=True)
    last, end = None, time.monotonic() + numbers[1]
    while time.monotonic() < end:
        free = (1 << 30) - sum(held())
        if free != last:
            print("free", free, f"{time.monotonic():.4f}", flush=True)
        last = free
        time.sleep(0.005)
"""


def sample(time, number, holder, on=1, **members):
    """members: (away, moving, state) of each, and its kind, if it is not that of one that takes turns."""
    return {"time": time, "number": number, "on": on, "holder": holder, "since": time, "members": {
        pid: {"away": values[0], "moving": values[1], "state": values[2], "kind": (*values, 2)[3], "holds": 14 << 30}
        for pid, values in members.items()}}


RUN, AWAY, MOVES = (0, 0, 0), (1, 0, 2), (0, 1, 0)


class Samples(unittest.TestCase):
    def test_two_that_run_are_seen(self):
        samples = [sample(1, 1, "a", a=RUN, b=RUN),  # b has not read the account yet
                   sample(2, 1, "a", a=RUN, b=AWAY),
                   sample(3, 2, "b", a=MOVES, b=(1, 1, 2)),
                   sample(4, 2, "b", a=AWAY, b=RUN)]
        self.assertEqual(more.double_turns(samples, {}, {}), (0, 4))
        both = sample(5, 2, "b", a=RUN, b=RUN)
        self.assertEqual(more.double_turns([*samples, both], {}, {}), (1, 5))
        self.assertEqual(more.double_turns([*samples, both], {"a": 1, "b": 1}, {}), (0, 5))  # ranks of one job
        self.assertEqual(more.double_turns([*samples, both], {}, {"a": 4.5}), (0, 5))  # a has died
        stopped = sample(5, 2, "b", a=(0, 0, 1), b=RUN)  # with its job; its memory is still there
        back = sample(5, 2, "b", a=(0, 0, 3), b=RUN)
        alone = sample(5, 2, "b", a=(0, 0, 0, 0), b=RUN)  # it cannot be stopped, and takes no turns
        self.assertEqual(more.double_turns([*samples, stopped, back, alone], {}, {}), (0, 7))
        off = sample(5, 2, None, on=0, a=RUN, b=RUN)
        begins = sample(6, 3, "a", a=RUN, b=RUN)
        self.assertEqual(more.double_turns([*samples, off, begins], {}, {}), (0, 5))

    def test_who_is_within_its_turn(self):
        samples = [sample(1, 1, "b", a=AWAY, b=RUN), sample(2, 2, "a", a=(1, 1, 2), b=MOVES), sample(3, 2, "a", a=RUN, b=AWAY),
                   sample(3.5, 2, "a", a=RUN, b=AWAY)]
        self.assertEqual(more.holder_within_turn(samples, 0.5), "a")
        self.assertIsNone(more.holder_within_turn(samples, 0.6))  # its memory was not back
        self.assertIsNone(more.holder_within_turn(samples[:2], 0))
        self.assertIsNone(more.holder_within_turn([sample(1, 1, "c", a=RUN)], 0))  # it is not there any more
        self.assertIsNone(more.holder_within_turn([], 0))

    def test_after_a_kill(self):
        free = [(1, 10), (2.05, 14), (2.1, 12), (2.2, 18), (2.3, 30)]
        samples = [sample(2.01, 2, "a", a=RUN, b=AWAY), sample(2.06, 3, "b", a=RUN, b=(1, 1, 2)),
                   sample(2.4, 3, "b", a=RUN, b=RUN)]
        self.assertEqual(more.after_kill(samples, free, 2, 20, {"b"}), (2.2, 2.4, "b"))
        self.assertEqual(more.after_kill(samples[:2], free[:2], 2, 20, {"b"}), (None, None, None))

    def test_lines(self):
        self.assertEqual(more.free_of([(0, "holds 5\n"), (0, "free 7 1.5\n"), (0, "free 7")]), [(1.5, 7)])
        self.assertEqual(more.left_of("process 7: device.budget=4GiB, 10.0 GiB left in 0.31 s"), 10 << 30)
        self.assertIsNone(more.left_of("spillway: process 7: no"))
        line = '{"processes": [{"pid": 7, "devices": [{"budget": 1, "used": 0}, {"budget": 9, "used": 8}]}, {"pid": 8}]}'
        self.assertEqual(more.budgets_of(line, 7), (9, 8))
        for bad in (line, 8), (line, 9), (line[:-9], 7), ("[]", 7):
            self.assertIsNone(more.budgets_of(*bad))
        self.assertTrue(more.follows(["1", "2"], ["1", "2", "3"]))
        for bad in [], ["1", "3"], ["1", "2", "3", "4"]:
            self.assertFalse(more.follows(bad, ["1", "2", "3"]))

    def test_the_account_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "spillway"))
            words = list(range(100, 180))
            slot = struct.pack("<80Q", *words)
            page = struct.pack("<11Q", share_bars.HEAD + 64 * len(slot), share_bars.VERSION, 0, 1, 0, 1, 0, 5, 1, 2, 3 * 10**9)
            page = page.ljust(share_bars.HEAD, b"\0") + bytes(len(slot)) + slot + bytes(62 * len(slot))
            with open(os.path.join(folder, "spillway", "gpu-0.account"), "wb") as file:
                file.write(page)
            read = share_bars.Account(folder).read()
        self.assertEqual((read["number"], read["on"], read["holder"], read["since"]), (5, 1, 100, 3))
        member = read["members"][100]
        first = 100 + share_bars.MEMBER
        self.assertEqual((member["holds"], member["kind"], member["n"]), (105, first, first + share_bars.CLAIM - 1))
        self.assertEqual(member["state"], first + share_bars.CLAIM + share_bars.JOB_STATE)


class Jobs(unittest.TestCase):
    def test_of_a_job_that_does_not_end_its_threads_are_told(self):
        job = share_bars.Job([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"], {})
        self.assertEqual(job.wait(1), -9)
        self.assertRegex(job.output, rf"(?s)begun.*threads: {job.child.pid} python")


@unittest.skipUnless({"BUILD", "SHARE_ALL"} <= os.environ.keys(), "it needs BUILD and SHARE_ALL (scripts/nightly.sh)")
class Whole(unittest.TestCase):
    def run_parts(self, *arguments, **environment):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in ("gpt.py", PRETENDED_JOB), ("share_rank.py", PRETENDED_JOB), \
                    ("share_neighbour.py", PRETENDED_NEIGHBOUR):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
            clean = {key: value for key, value in os.environ.items() if not key.startswith(("SPILLWAY", "LD_PRELOAD"))}
            run = subprocess.run([sys.executable, os.path.join(HERE, "share_more_bars.py"), "--build", os.environ["BUILD"],
                                  "--log", os.path.join(folder, "log"), "--scripts", folder, "--gpt", "96", "12", "10",
                                  "--small", "12", "4", "5", *arguments],
                                 capture_output=True, text=True, env={**clean, "PRETENDED": folder, **environment})
            text = run.stdout + run.stderr
            if "\npart " not in text:
                self.fail(text)
            self.text = text[text.rindex("\npart "):]
            try:
                with open(os.path.join(folder, "log")) as file:
                    self.text += file.read()[-4000:]
            except OSError:
                pass

    def row(self, what):
        rows = [[cell.strip() for cell in line.split("|")] for line in self.text.splitlines() if f" {what}" in line]
        self.assertEqual(len(rows), 1, f"{what} in {self.text}")
        return rows[0]

    def passes(self, *rows):
        for what in rows:
            self.assertEqual(self.row(what)[4], "pass", self.text)

    def measures(self, what):
        self.assertRegex(self.row(what)[2], r"^-?[\d.e-]+( \w+)?$", self.text)

    def test_neighbour(self):
        self.run_parts("--steps", "200", "--set", "host.total=400MiB", "--step", "0.0078125", "--times", "24", "--pause", "0.05",
                       "--hold", "1", "--back", "3", "--neighbours", "1", "neighbour")
        self.passes("losses equal", "first time: allocations of the neighbour", "first time: given up")
        self.assertIn("24 of 24", self.row("first time: allocations")[5])
        self.row("first time: on the GPU")

    def test_neighbour_that_fails(self):
        self.run_parts("--steps", "60", "--times", "2", "--pause", "0.01", "--hold", "0.1", "--step", "0.001", "--back", "3",
                       "--neighbours", "1", "neighbour", FAILS="1")
        self.assertEqual(self.row("first time: allocations")[2:5], ["1", "<= 0", "MISS"])
        self.assertEqual(self.row("first time: given up")[4], "n/a")  # there was nothing to give up

    def test_a_job_that_dies_is_not_right(self):
        self.run_parts("--steps", "60", "--times", "2", "--pause", "0.01", "--hold", "0.1", "--step", "0.001", "--back", "1",
                       "--neighbours", "1", "neighbour", DIES="15")
        self.assertEqual(self.row("losses equal")[2:5], ["0", ">= 1", "MISS"])
        self.assertIn("one has ended with 3", self.row("losses equal")[5])

    def test_set(self):
        self.run_parts("--steps", "200", "--set", "host.total=400MiB", "--down", "0.03125", "set")
        self.passes("losses equal", "not pinned: bytes that left", "| pinned: bytes that left")
        for name in "not pinned", "| pinned":
            self.measures(f"{name}: the command's answer")
            self.measures(f"{name}: the next step")

    def test_kill(self):
        self.run_parts("--steps", "200", "--set", "device.total=128MiB,host.total=400MiB", "--kills", "2", "--quantum", "400ms",
                       "--within", "0.1", "kill")
        self.passes("losses equal", "looks at which two ran")
        self.measures("kill 1: ")
        self.measures("kill 2: ")
        self.assertRegex(self.row("kill 2: ")[5], r"memory free [\d.]+, turn [\d.]+, step [\d.]+; ")

    def test_jobs(self):
        self.run_parts("--set", "device.total=40MiB,host.total=400MiB", "--rank-steps", "300", "jobs")
        self.passes("to their end", "losses equal", "looks at which two jobs ran")
        self.measures("changes of the turn")
        self.measures("time / sum of those alone")

    def test_jobs_on_two_gpus(self):
        self.run_parts("--set", "host.total=400MiB", "--gpus-total", "128MiB", "--gpus-steps", "300", "gpus", SIM_DEVICES="2")
        self.passes("to their end", "losses equal", "looks at which two jobs ran")
        self.measures("ranks that have kept their memory")
        self.measures("changes of the turn")
        self.measures("time / sum of those alone")

    def test_a_job_on_two_gpus_loses_a_rank(self):
        for lost in "0", "1":
            self.run_parts("--set", "host.total=400MiB", "--gpus-total", "128MiB", "--gpus-steps", "500", "--lost", lost,
                           "lost", SIM_DEVICES="2")
            self.passes("the other job goes on after the kill", "and after its partner was killed", "losses equal")

    def test_a_job_on_two_gpus_is_suspended(self):
        self.run_parts("--set", "host.total=400MiB", "--away-steps", "400", "away", SIM_DEVICES="2")
        self.passes("to their end", "losses equal", "first time: stood still", "second time: stood still")
        for which in "first", "second":
            self.measures(f"{which} time: suspend")
            self.measures(f"{which} time: resume")

    def test_queue(self):
        self.run_parts("--steps", "120", "--set", "device.total=128MiB", "--queue-steps", "120", "--queue-host", "64MiB",
                       "--queue-apart", "0", "queue")
        self.passes("to their end", "losses equal", "one of them waited", "the second's first step")

    def test_launch(self):
        self.run_parts("--rounds", "1", "launch")
        self.measures("launch_added: turns - off")

    def test_a_job_that_ends_is_no_measurement(self):
        self.run_parts("--steps", "1", "kill", "set")
        self.assertIn("broke off", self.row("kill broke off")[1])
        self.assertIn("broke off", self.row("set broke off")[1])


if __name__ == "__main__":
    unittest.main()
