# SPDX-License-Identifier: Apache-2.0
"""The bars' arithmetic and tables, with canned output and jobs that only pretend: python bars_test.py. No GPU is needed."""
import argparse
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import bars
import harness
import larger_bars
import larger_jobs
import managed_bars
import programs_bars
import programs_jobs
import share_bars
from bars import Bar

SUMMARY = """\
spillway: summary of process 467: spilled: 1.5 GiB lay on the host at most, of 2.0 GiB in all; the device budget is 600.0 MiB
spillway:   cost: 3.0 % of the run: for 0.1 of 3.3 s at least one submission waited for memory
spillway:   change: nothing that the figures show
spillway:   3.3 s, policy heap (0123456789abcdef), spill exact, Some GPU
spillway:   device    600.0 MiB live at exit,   600.0 MiB at most, budget 600.0 MiB
spillway:   host      580.0 MiB live at exit,   1.5 GiB at most, budget 62.4 GiB
spillway:   moved 23.0 GiB to the device and 22.5 GiB to the host, in 9 pieces; 3 submissions waited, 0.1 s in all, link busy 500 ms
"""


def rows_of(lines, which):
    """Of the rows of a table of bars: {what: its cells that `which` picks}."""
    table = ([cell.strip() for cell in line.split("|")] for line in lines)
    return {cells[1]: cells[which] for cells in table if len(cells) == 6}


class Answers(unittest.TestCase):
    """Programs that are asked in turn."""

    WORKS = """if True:
        import sys
        for i, line in enumerate(sys.stdin):
            print("a line of another kind")
            print("answer", int(sys.argv[1]) + i, flush=True)
            if i == int(sys.argv[2]):
                break
        """

    def asked(self, *ends):
        with contextlib.ExitStack() as stack:
            asks = [stack.enter_context(harness.answering([sys.executable, "-c", self.WORKS, str(100 * i), str(end)], {}, 30))
                    for i, end in enumerate(ends)]
            return harness.in_turn(asks, 3)

    def test_programs_answer_in_turn_and_the_first_answers_do_not_count(self):
        self.assertEqual(self.asked(99, 99), [(1.0, 101.0), (2.0, 102.0), (3.0, 103.0)])

    def test_there_is_nothing_if_one_of_them_ends(self):
        self.assertEqual(self.asked(99, 1), [])

    def test_one_that_does_not_answer_is_killed(self):
        with harness.answering(["sleep", "60"], {}, 0.2) as ask:
            self.assertIsNone(ask())


class Turns(unittest.TestCase):
    """share_bars.py, with an account that only pretends."""

    @staticmethod
    def sample(time, number, holder, since, **members):
        known = {pid: {"moving": moving, "away": away, "holds": holds << 30, "cost": 0, "got": 0, "weight": 1}
                 for pid, (moving, away, holds) in members.items()}
        return {"time": time, "number": number, "on": 1, "holder": holder, "since": since, "members": known}

    def test_turns_are_read_from_samples(self):
        account = share_bars.Account("nowhere")
        account.samples = [
            self.sample(10.0, 1, "a", 10.0, a=(0, 0, 14), b=(0, 1, 1)),
            self.sample(20.0, 1, "a", 10.0, a=(1, 0, 14), b=(0, 1, 1)),
            self.sample(20.2, 2, "b", 20.1, a=(1, 0, 8), b=(1, 1, 5)),
            self.sample(20.4, 2, "b", 20.1, a=(0, 1, 1), b=(1, 1, 14)),
            self.sample(20.5, 2, "b", 20.1, a=(0, 1, 1), b=(0, 0, 14)),
            self.sample(29.0, 3, "a", 28.9, a=(1, 1, 4), b=(1, 0, 10)),
            self.sample(29.3, 3, "a", 28.9, a=(0, 0, 14), b=(0, 1, 1)),
            self.sample(40.0, 4, None, 39.5, b=(0, 1, 1)),
        ]
        turns = account.turns()
        self.assertEqual([turn["who"] for turn in turns], ["a", "b", "a"])
        self.assertEqual([turn["given"] for turn in turns], [10.0, 20.1, 28.9])
        self.assertEqual([turn["began"] for turn in turns], [10.0, 20.5, 29.3])
        self.assertEqual([turn["ended"] for turn in turns], [20.1, 28.9, 39.5])
        self.assertEqual([turn["out"] for turn in turns], [10.0, 20.4, 29.3])
        # The first turn of each does not count.
        self.assertAlmostEqual(account.pauses()[0], 0.4)
        self.assertEqual(len(account.pauses()), 1)
        self.assertEqual(len(account.turn_lines()), 4)
        self.assertIn("10.10    1", account.turn_lines()[2])

    def test_a_job_alone_that_did_not_end_by_itself_is_no_measurement(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "gpt.py"), "w") as job:
                job.write("import sys\nfor i in range(9):\n    print(f'each {i} 1.0 5.0', flush=True)\n"
                          "print('gpt 8x1 batch 1: 1 ms/step, reserved 10 MiB')\nsys.exit(3)\n")
            options = argparse.Namespace(gpt=["1", "1", "1"], small=["1", "1", "1"], steps=9, scripts=folder,
                                         log=os.path.join(folder, "log"), seconds=60, build=folder)
            share = share_bars.Share(options)
            share.part, share.part_end = "two", time.monotonic() + 60
            with self.assertRaisesRegex(RuntimeError, "ended with 3 after 9 steps"):
                share.native()


class Layout(unittest.TestCase):
    """share_bars.py reads the account as the library lays it out."""

    def test_version(self):
        header = os.path.join(os.path.dirname(__file__), "../../shim/accounting/gpu_account.h")
        with open(header, encoding="utf-8") as file:
            self.assertIn(f"#define GPU_ACCOUNT_VERSION {share_bars.VERSION}\n", file.read())

    @staticmethod
    def words_of(header, struct_name):
        """Names of the words of a struct of uint64_t alone, {name: number of its word}, and how many there are."""
        path = os.path.join(os.path.dirname(__file__), "../../shim/plan", header)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        sizes = {name: int(value) for name, value in re.findall(r"#define (\w+) +(\d+)", text)}
        body = re.search(r"struct %s \{(.*?)\n\};" % struct_name, text, re.DOTALL)[1]
        names, n = {}, 0
        for name, size in re.findall(r"^\tuint64_t (\w+)(?:\[(\w+)\])?;", body, re.MULTILINE):
            names[name] = n
            n += sizes[size] if size else 1
        return names, n

    def test_words_of_the_claims(self):
        names, n = self.words_of("gpu_turn.h", "gpu_turn_claim")
        self.assertEqual((tuple(names), n), (share_bars.FIELDS, share_bars.CLAIM))
        self.assertEqual(self.words_of("gpu_job.h", "gpu_job_claim")[0]["state"], share_bars.JOB_STATE)

    def test_another_version_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "spillway"))
            with open(os.path.join(folder, "spillway", "gpu-0.account"), "wb") as file:
                file.write(struct.pack("<11Q", 4096, share_bars.VERSION + 1, *[0] * 9))
            with self.assertRaisesRegex(RuntimeError, "version"):
                with share_bars.Account(folder) as account:
                    account.thread.join()


class Parsing(unittest.TestCase):
    def test_steps_of_a_job(self):
        steps = bars.steps_of("each 1 100.5 7.9\nnoise\neach 2 50 7.8\ngpt 8x1 batch 1: 50 ms/step, reserved 10 MiB\n")
        self.assertEqual(steps.ms, [100.5, 50])
        self.assertEqual(steps.losses, ["7.9", "7.8"])
        self.assertEqual(steps.need, 10 << 20)
        self.assertEqual(bars.steps_of("each 1 2 3\nneed 77\n").need, 77)
        self.assertFalse(bars.steps_of("").complete)

    def test_summary(self):
        self.assertEqual(bars.host_peak(SUMMARY), 1.5 * (1 << 30))
        self.assertIsNone(bars.host_peak("nothing"))
        self.assertEqual(bars.moved(SUMMARY), (23 << 30, 22.5 * (1 << 30), 0.5))
        self.assertEqual(bars.moved(SUMMARY.replace("busy", "idle"))[2], None)
        lent = SUMMARY.replace("device and 22.5 GiB to the host", "device, 2.5 GiB to the host and 20.0 GiB to other GPUs")
        self.assertEqual(bars.moved(lent), (23 << 30, 22.5 * (1 << 30), 0.5))
        self.assertIsNone(bars.moved("nothing"))

    def test_rate_of_the_settled_steps(self):
        def reading(time, moved, busy_us, pid=7):
            counters = {"moved_in_bytes": moved, "moved_out_bytes": moved, "link_us": busy_us}
            return json.dumps({"time_ns": int(time * 1e9), "processes": [{"pid": pid, "counters": counters}]}) + "\n"

        lines = [reading(0.5, 1, 1, pid=8)]
        lines += [reading(t, m * 10**9, b) for t, m, b in
                  ((1, 0, 0), (2, 1, 10**6), (3, 2, 2 * 10**6), (4, 42, 3 * 10**6), (5, 82, 4 * 10**6), (6, 82, 4 * 10**6))]
        counted = harness.counter_samples([*lines, '{"time_ns": 7, "proc'])
        self.assertEqual(len(counted), 6)
        samples = harness.moved_samples(counted)
        self.assertAlmostEqual(bars.settled_rate(samples, [1000, 1000]), 80)
        self.assertAlmostEqual(bars.settled_rate(samples, [4000]), 164 / 4)
        self.assertIsNone(bars.settled_rate(samples, []))
        self.assertIsNone(bars.settled_rate([], [1000]))
        self.assertEqual(harness.counter_samples([]), [])
        step = bars.a_step(counted, [500, 500, 500, 500])
        self.assertAlmostEqual(step["moved_in_bytes"], 20 * 10**9)
        self.assertAlmostEqual(step["link_us"], 0.5 * 10**6)
        self.assertIsNone(bars.a_step(counted, []))
        self.assertIsNone(bars.a_step([], [500]))
        step = {"moved_in_bytes": 9e9, "moved_out_bytes": 8e9, "dead_bytes": 5e9, "dead_in_bytes": 2e9}
        self.assertEqual(bars.copied(step), (7, 5))

    def test_lines_of_programs(self):
        self.assertEqual(bars.lines_of("a_64 50.8 50.1 51.0 GB/s\nother\n"), {"a_64": (50.8, 50.1, 51.0)})
        text = '{"schema": 1, "budgets": [{"budget": 209715200, "least_bytes_in": 10018000000.0}, ' \
            '{"budget": 104857600, "least_bytes_in": null}]}'
        self.assertEqual(bars.belady_of(text, 300 << 20, [1.5, 3.0]), {1.5: 10.018})
        self.assertEqual(bars.belady_of("", 1, [1.5]), {})


    def test_lines_that_ask(self):
        source = "a\nb = f()  # asks forward 2\n# asks\nc = g()  # asks forward 1, backward 3\nh()  # backward 4\n"
        self.assertEqual(bars.asked_by_line(source), {2: ("forward", 2 << 20), 4: ("forward", 1 << 20)})
        self.assertEqual(bars.asked_in_backward(source), {4: 3 << 20, 5: 4 << 20})
        sites = [{"name": "job.py:2 in f", "bytes": 5}, {"name": "job.py:2 in f [lib.so]", "bytes": 1},
                 {"name": "my_job.py:2 in f", "bytes": 7}, {"name": "backward", "bytes": 11}]
        made = [{"name": "job.py:2 in f [backward]", "bytes": 13}, {"name": "my_job.py:2 in f [backward]", "bytes": 17}]
        self.assertEqual(bars.bytes_by_line(sites + made, "job.py"), {2: 6, "backward": 11, None: 7})
        self.assertEqual(bars.bytes_by_line(sites + made, "job.py", backward=True), {2: 13, None: 17})
        sites = [{"name": "job.py:2 in f", "bytes_in": 5, "bytes_out": 3}, {"name": "?", "bytes_in": 1, "bytes_out": 0}]
        self.assertEqual(bars.bytes_by_line(sites, "job.py", "bytes_in", "bytes_out"), {2: 8, None: 1})


class Arithmetic(unittest.TestCase):
    def test_steady_begins_where_steps_stay_short(self):
        self.assertEqual(bars.steady([5000, 900, 300, 101, 100, 99, 100, 101]), (3, 100))
        self.assertEqual(bars.steady([100, 100, 100, 100]), (0, 100))
        first, median = bars.steady([900, 100, 900, 102, 100, 100, 180, 100, 101, 100, 100, 100])
        self.assertEqual((first, median), (3, 100))  # one slow step later is noise, a fast one before is luck

    def test_never_steady(self):
        first, _ = bars.steady([100, 50, 100, 50, 100, 50])
        self.assertGreater(first, 3)

    def test_time_lost_leaves_out_what_native_loses(self):
        self.assertEqual(bars.lost_ms([3000, 1000, 100, 100], [2000, 50, 50, 50], 2, 100), 3800 - 1950)

    def test_two_at_once_are_held_to_what_their_links_allow(self):
        self.assertEqual(bars.ranks_bar(50.6, 50.2)[0], 1.15)
        self.assertEqual(bars.ranks_bar(50.6, None)[0], 1.15)
        bar, said = bars.ranks_bar(50.6, 36.0)
        self.assertIsNone(bar)
        self.assertIn("allows 1.41", said)

    def test_reference(self):
        self.assertAlmostEqual(bars.reference_ms(69, 5.96, 50.85), 117.2, 1)
        self.assertAlmostEqual(bars.reference_ms(69, 10.0, 50.85), 196.7, 1)
        self.assertEqual(bars.reference_ms(69, 1.0, 50.85), 69)

    def test_losses(self):
        native, again = ["7.91", "7.80"], ["7.91", "7.81"]
        self.assertTrue(bars.losses_equal([native, native], native)[0])
        self.assertFalse(bars.losses_equal([native, native], ["7.91", "7.8000001"])[0])
        self.assertTrue(bars.losses_equal([native, again], ["7.91", "7.82"])[0])
        self.assertFalse(bars.losses_equal([native, again], ["7.91", "8.9"])[0])
        self.assertFalse(bars.losses_equal([native, again], ["7.91", "nan"])[0])
        self.assertFalse(bars.losses_equal([native, again], [])[0])
        far = ["7.91", "7.84"]
        self.assertFalse(bars.losses_equal([native, again], ["7.91", "7.86"])[0])
        self.assertTrue(bars.losses_equal([native, again, far], ["7.91", "7.86"])[0])

    def test_verdicts(self):
        self.assertEqual(Bar("p", "w", 1.2, 1.25).verdict, "pass")
        self.assertEqual(Bar("p", "w", 1.3, 1.25).verdict, "MISS")
        self.assertEqual(Bar("p", "w", 1.3, 1.25, near=1.2).verdict, "within spread")
        self.assertEqual(Bar("p", "w", 0.9, 0.8, least=True).verdict, "pass")
        self.assertEqual(Bar("p", "w", 0.7, 0.8, least=True).verdict, "MISS")
        self.assertEqual(Bar("p", "w", None, 0.8).verdict, "n/a")
        self.assertEqual(Bar("p", "w", 3, None).verdict, "")
        self.assertEqual(Bar("p", "w", 0.7, 0.8, "x", least=True).row(), ["p", "w", "0.7", ">= 0.8", "MISS", "x"])


# A job whose steps take what the policy in SPILLWAY_SET would make them take.
PRETENDED_JOB = """
import os, signal, sys, time
settings = dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s)
mode, small = settings.get("spill.mode"), "device.budget" in settings
usual = {None: 70, "static": 1300, "exact": 200, "fast": 140}[mode] if small or not mode else 70
wrong = 1e-6 if mode == "fast" and "deterministic" in sys.argv else 0
if "SPILLWAY_TRACE" in os.environ:
    open(os.environ["SPILLWAY_TRACE"], "w").close()
if sys.argv[1] == "hold":
    print("need", 10 << 30, flush=True)
    for i in range(100000):
        time.sleep(0.01)
        print(f"each {i + 1} 10 0", flush=True)
paused = "pause" in sys.argv
for i in range(3 + int([a for a in sys.argv if a.isdigit()][-1])):
    if paused:
        print("alive", 1 << 30, flush=True)
        time.sleep(0.2)
    print(f"each {i + 1} {usual * (10 if i == 0 else 3 if i == 1 and small else 1)} {8 - i / 100 + wrong}", flush=True)
print("gpt: reserved 15000 MiB")
if small:
    print(\"\"\"%s\"\"\")
""" % SUMMARY

LINK = "echo pinned_pair_64 50.0 49.0 51.0 GB/s; echo vmm_out_64 55 54 56 GB/s; echo vmm_pinning_64 200 190 210 ms/GiB"
PRESSURE = "echo added_free 5 1 9 ns; echo added_same 100 90 110 ns; echo added_turn 400 350 500 ns; echo launch_bare 2500 2 3 ns"
# "suspend PID" and "resume PID", for the job that pretends; "top" says that it moved 80 GB a second, and less at first.
TOOL = """
case $1 in
replay)
    budget=${6%B}
    echo "{\\"budgets\\": [{\\"budget\\": $budget, \\"least_bytes_in\\": 9000000000.0}]}" ;;
suspend) kill -STOP "$2" ;;
resume) kill -CONT "$2" ;;
top)
    trap '' TERM
    for i in 0 1 2 3 4 5 6 7 8 9 10 11 12; do
        moved=$((i < 3 ? 0 : i * 40))000000000
        echo "{\\"time_ns\\": ${i}000000000, \\"processes\\": [{\\"pid\\": 1, \\"counters\\": {" \\
            "\\"moved_in_bytes\\": $moved, \\"moved_out_bytes\\": $moved, \\"link_us\\": ${i}000000, " \\
            "\\"dead_bytes\\": 0, \\"dead_in_bytes\\": 0, \\"gap_us\\": 0, \\"gaps\\": 0}}]}"
    done ;;
esac"""


class Whole(unittest.TestCase):
    def run_bars(self, *arguments, script="spill_bars.py", older=False):
        with tempfile.TemporaryDirectory() as folder:
            for name in "gpt.py", "spill_jobs.py":
                with open(os.path.join(folder, name), "w") as file:
                    file.write(PRETENDED_JOB)
            os.mkdir(os.path.join(folder, "bench"))
            for name, text in {"bench/link": LINK, "bench/pressure": PRESSURE, "spillway": TOOL}.items():
                path = os.path.join(folder, name)
                with open(path, "w") as file:
                    file.write(f"#!/bin/sh\n{text}\n")
                os.chmod(path, 0o755)
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "LD_"))}
            older = ["--against", folder] if older else []
            run = subprocess.run([sys.executable, os.path.join(HERE, script), "--build", folder, "--log",
                                  os.path.join(folder, "log"), "--scripts", folder, *older, *arguments],
                                 capture_output=True, text=True, env=environment)
            return run.returncode, run.stdout + run.stderr

    def row(self, text, what):
        table = text[text.rindex("\npart "):]
        rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if what in line]
        self.assertEqual(len(rows), 1, f"{what} in {text}")
        return rows[0]

    def test_builds(self):
        code, text = self.run_bars("plain", "--ratios", "1.5", "--modes", "fast", "--times", "2", script="builds_bars.py",
                                   older=True)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.row(text, "a pair of copies")[2], "50 GB/s")
        older, new = (self.row(text, f"plain, fast 1.5, {name}  ") for name in ("older", "new"))
        self.assertEqual(older[2], new[2])
        self.assertRegex(older[5], r"^\d+ \d+; first nine \d+")
        self.assertEqual(self.row(text, "plain, fast 1.5, new / older")[2], "1")
        code, text = self.run_bars("conv", "--modes", "exact", script="builds_bars.py", older=True)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.row(text, "conv, exact 1.5, new / older")[2], "1")

    def test_gpt(self):
        code, text = self.run_bars("gpt", "--ratios", "1.5", "--static", "--record")
        self.assertEqual(code, 1, text)  # the rate misses, and nothing else
        self.assertEqual(text[text.rindex("\npart "):].count("MISS"), 2)
        self.assertEqual(self.row(text, "exact 1.5: step / reference")[2:5], ["1.11", "<= 2", "pass"])
        self.assertEqual(self.row(text, "fast 1.5: step / reference")[2:5], ["0.778", "<= 1.25", "pass"])
        self.assertEqual(self.row(text, "exact 1.5: steps until")[2:5], ["1", "<= 4", "pass"])
        self.assertEqual(self.row(text, "exact 1.5: losses")[4], "pass")
        self.assertEqual(self.row(text, "exact 1.5: time lost")[2:5], ["1.57 s", "<= 5.3 s", "pass"])
        self.assertEqual(self.row(text, "exact 1.5: rate")[2:5], ["0.8", ">= 0.9", "MISS"])
        self.assertIn("0.98 of the whole run", self.row(text, "exact 1.5: rate")[5])
        self.assertEqual(self.row(text, "static 1.5: step")[2], "1300 ms")

    def test_bits(self):
        code, text = self.run_bars("bits", "--ratios", "1.5")
        self.assertEqual(code, 1, text)
        self.assertEqual(self.row(text, "native: losses of two runs equal")[2:5], ["1", ">= 1", "pass"])
        self.assertEqual(self.row(text, "deterministic, exact 1.5: losses equal")[2:5], ["1", ">= 1", "pass"])
        self.assertEqual(self.row(text, "deterministic, fast 1.5: losses equal")[4], "MISS")

    def test_the_other_parts(self):
        code, text = self.run_bars("rate", "jobs", "graph", "random", "fits", "launch", "first", "--jobs", "conv")
        self.assertEqual(code, 1, text)  # launch misses
        # By the bytes that its bar is of; by those that replay says of the pretended trace it would be 0.9.
        self.assertEqual(self.row(text, "conv exact 1.5: throughput")[2:5], ["0.52", ">= 0.5", "pass"])
        self.assertEqual(self.row(text, "graph fast 1.25: step / static")[2:5], ["0.108", "<= 1", "pass"])
        self.assertEqual(self.row(text, "random exact 1.5: step / static")[2], "0.154")
        self.assertEqual(self.row(text, "exact: step / native")[2:5], ["1", "<= 1.01", "pass"])
        self.assertEqual(self.row(text, "fast: added_turn")[2:5], ["400 ns", "<= 300 ns", "MISS"])
        self.assertEqual(self.row(text, "exact 1.5: first full step")[2], "0.154")
        self.assertEqual(self.row(text, "pinned_pair_64")[2], "50 GB/s")

    def test_suspend(self):
        _, text = self.run_bars("suspend", "--modes", "exact")
        for time in "first", "second":
            self.assertEqual(self.row(text, f"10 GiB, {time} time: stood still")[4], "pass")
            self.assertEqual(len(self.row(text, f"10 GiB, {time} time: suspend / link")), 6)
            self.assertEqual(len(self.row(text, f"10 GiB, {time} time: resume / link")), 6)
        self.assertEqual(self.row(text, "10 GiB: every byte")[4], "pass")
        for time in "first", "second", "third":
            self.assertEqual(len(self.row(text, f"gpt at a step's end, exact, {time} time: suspend")), 6)
        self.assertEqual(self.row(text, "gpt suspended between steps, exact: losses equal")[4], "pass")

    def test_no_time_is_no_result(self):
        code, text = self.run_bars("gpt", "--seconds", "1")
        self.assertEqual(code, 1, text)
        self.assertIn("no time", text)


# A program for correct.py: as what it is told to pretend in exact and in fast.
PRETENDED_APP = """
import os, sys
settings = dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s)
mode, app = settings.get("spill.mode"), sys.argv[1]
wrong = mode == "exact" and (app == "graph" or settings.get("contents") == "poison" and app == "infer")
print("check loss", 2 if wrong else 1)
print("need", 100 << 20)
if mode:
    print(f"spillway: summary of process 1: nothing was spilled\\nspillway:   1.0 s, policy heap, spill {mode}")
if mode == "fast" and app in ("grouped", "threads"):
    print("spillway: an access to a block in transit; use spill.mode: exact")
    sys.exit(1)
"""


class Correct(unittest.TestCase):
    def verdicts(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            for name in "torch_job.py", "torch_more.py", "torch_alive.py":
                with open(os.path.join(folder, name), "w") as file:
                    file.write(PRETENDED_APP)
            run = subprocess.run([sys.executable, os.path.join(HERE, "correct.py"), "--build", folder, "--log",
                                  os.path.join(folder, "log"), "--scripts", folder, "--ratios", "2", *arguments],
                                 capture_output=True, text=True)
            table = run.stdout[run.stdout.rindex("app "):].splitlines()[1:]
            cells = [[cell.strip() for cell in line.split("|")] for line in table]
            return run.returncode, {(row[0], row[1]): row[4] for row in cells}

    def test_equal_and_stopped_as_defined(self):
        code, rows = self.verdicts("--apps", "eager,grouped")
        self.assertEqual(rows["eager", "exact 2.0"], "bit for bit")
        self.assertEqual(rows["grouped", "fast 2.0"], "stopped, and told why")
        self.assertEqual(code, 0)

    def test_contents_of_what_is_dead_are_asked_for(self):
        code, rows = self.verdicts("--apps", "infer,ddp", "--contents", "poison")
        self.assertTrue(rows["infer", "exact 2.0"].startswith("DIFFERS"))
        self.assertEqual(rows["infer", "fast 2.0"], "bit for bit")
        self.assertEqual(rows["ddp", "exact 2.0"], "bit for bit")
        self.assertEqual(code, 1)
        code, rows = self.verdicts("--apps", "infer")
        self.assertEqual(code, 0)

    def test_wrong_or_stopped_as_not_defined(self):
        code, rows = self.verdicts("--apps", "graph,threads")
        self.assertTrue(rows["graph", "exact 2.0"].startswith("DIFFERS"))
        self.assertTrue(rows["threads", "fast 2.0"].startswith("exit 1"))
        self.assertEqual(code, 1)


# For peers_bars.py: a job that is right, and a check that is not in exact, and says that there is one GPU in fast.
PEER_JOB = """
print("check copy", 1)
print("need", 100 << 20)
"""
PEER_CHECK = """#!/bin/sh
[ "$1" -gt 0 ] || exit 2
case $SPILLWAY_SET in
*mode=exact*) echo "peer_check: a copy, GPU 0 with GPU 1: wrong" >&2; exit 1 ;;
*mode=fast*) exit 77 ;;
esac
echo "peer_check: 2 GPUs, 2 of 2 ways with peer access: every word is right"
"""


class Peers(unittest.TestCase):
    def test_copies_are_checked_by_a_job_and_by_peer_check(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "test", "gpu"))
            for name, text in ("peer_job.py", PEER_JOB), ("test/gpu/peer_check", PEER_CHECK):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
                os.chmod(os.path.join(folder, name), 0o755)
            run = subprocess.run([sys.executable, os.path.join(HERE, "peers_bars.py"), "--build", folder, "--log",
                                  os.path.join(folder, "log"), "--scripts", folder, "copies"],
                                 capture_output=True, text=True)
        table = run.stdout[run.stdout.rindex("part "):].splitlines()[1:]
        rows = rows_of(table, slice(4, None))
        self.assertEqual([rows[f"{name}: equal"][0] for name in ("in memory", "static", "exact", "fast")], 4 * ["pass"])
        checked = [rows[f"peer_check, {name}: every word right"] for name in ("native", "static", "exact", "fast")]
        self.assertEqual([row[0] for row in checked], ["pass", "pass", "MISS", "MISS"])
        self.assertIn("every word is right", checked[1][1])
        self.assertEqual([row[1] for row in checked[2:]], ["peer_check: a copy, GPU 0 with GPU 1: wrong", "exit 77"])
        self.assertEqual(run.returncode, 1)


# For peers_bars.py: ranks whose steps take 100 ms and 5 more under the library, of which 2 in cudaMalloc; pipeline's losses are
# wrong at half. Without an end, rank 1 is a process of its own, and rank 0 ends when that does, or has no memory.
RANK_JOB = """
import os, subprocess, sys, time
kinds, steps = sys.argv[1].split(","), int(sys.argv[2])
spilled = "LD_PRELOAD" in os.environ
half = "device.budget" in os.environ.get("SPILLWAY_SET", "")
if steps >= 1000:
    if "RANK1_SPILLWAY_SET" in os.environ:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory")
    other = subprocess.Popen([sys.executable, "-c", "import os, time; os.write(1, b'rank 1 %d\\\\n' % os.getpid()); time.sleep(60)"])
    for step in range(steps):
        os.write(1, b"each %d 1.0 5.0\\n" % (step + 1))
        time.sleep(0.01)
        if other.poll() is not None:
            sys.exit("Watchdog caught collective operation timeout")
for kind in kinds:
    print("job", kind)
    for step in range(steps):
        ms = 105 if spilled else 100
        print(f"each {step + 1} {ms}.0 {9 if half and kind == 'pipeline' else 7}.5")
    if "--calls" in sys.argv:
        print("calls cudaMalloc 2", 2200 if spilled else 200)
        print("calls cudaDeviceSynchronize 1", 90000)
    print("need", 100 << 20)
"""
# A program of nccl-tests: half of the bandwidth under the library, and one wrong element in exact. Its memory is on the heap with
# vmm.spill alone. One that reduces nothing has one column less.
NCCL_TEST = """#!/bin/sh
case $SPILLWAY_SET in *mode=exact*) wrong=1 ;; *) wrong=0 ;; esac
rate=${LD_PRELOAD:+100.00}
for size in 8388608 67108864 536870912; do
	echo "$size 1048576 int32 sum -1 90.10 99.10 ${rate:-200.00} 0 88.2 1e+02 ${rate:-200.00} $wrong" |
		sed 's/^/    /; s/ / /g'
done
case $SPILLWAY_SET in *vmm.spill=move*) where=device ;; *) where=driver ;; esac
printf '%s\\n' "spillway: summary of process 1: spilled" "spillway:   $where  1 B live at exit, 600.0 MiB at most, budget 1 GiB" \\
	"spillway:   host  1 B live at exit, 100.0 MiB at most, budget 1 GiB"
"""

# A job and a tool for figures_bars.py: 100 ms a step natively, what SPILLWAY_TRACE adds, twice as long under a budget.
FIGURES_JOB = """
import os, sys
settings = dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s)
ms = 200 if "device.budget" in settings else 104 if "SPILLWAY_TRACE" in os.environ else 100
for step in range(1, 11):
    print(f"each {step} {ms} 7.5", flush=True)
print(f"gpt 8x1 batch 1: {ms} ms/step, reserved 1000 MiB")
"""
FIGURES_TOOL = """#!{python}
import json, sys
if sys.argv[1] == "report":
    print(json.dumps({{"file": {{"bytes": 24000, "events": 2000, "lost_events": 0}}}}))
if sys.argv[1] == "replay":
    budget = int(sys.argv[sys.argv.index("--budget") + 1].removesuffix("MiB")) << 20
    print(json.dumps({{"budgets": [{{"budget": budget, "step_ms": 220 if budget > 600 << 20 else 300}}]}}))
if sys.argv[1] == "top":
    print(json.dumps({{"processes": []}}))
"""


BENCH = """#!/bin/sh
echo launch_added 20 10 30 ns
"""

READ_JOB = """
import os, sys
policy = os.environ.get("SPILLWAY_POLICY", "")
rule = open(policy).read() if os.path.isfile(policy) else ""
print("check sums", int("read-mostly" in rule))
print(f"gpu0 900 800 1000 GB/s\\ngpu1 {600 if 'stripe' in rule else 300} 200 1000 GB/s\\nfirst 200 200 200 GB/s")
"""


class Ranks(unittest.TestCase):
    """peers_bars.py, its parts with ranks and those with nccl-tests."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in ("rank_job.py", RANK_JOB), ("all_reduce_perf", NCCL_TEST), \
                    ("gather_perf", NCCL_TEST.replace("int32 sum", "int32")), ("bench/bench", BENCH), \
                    ("peer_read_job.py", READ_JOB):
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
                os.chmod(os.path.join(folder, name), 0o755)
            run = subprocess.run([sys.executable, os.path.join(HERE, "peers_bars.py"), "--build", folder, "--log",
                                  os.path.join(folder, "log"), "--scripts", folder, "--kinds", "fsdp2,pipeline", "--runs", "3",
                                  "--pairs", "2", "--nccl-tests", folder, "--patience", "1", "steps", "calls", "half", "bandwidth",
                                  "tests", "hang", "readers"], capture_output=True, text=True)
        table = run.stdout[run.stdout.rindex("part "):].splitlines()[1:]
        cls.rows = rows_of(table, slice(2, None))
        cls.code = run.returncode

    def test_steps_of_all_kinds_are_measured_in_one_process(self):
        for kind in "fsdp2", "pipeline":
            value, bar, verdict, text = self.rows[f"{kind}: step in memory / native, least of 95 %"]
            self.assertEqual((value, bar, verdict), ("1.05", "<= 1.02", "MISS"))
            self.assertIn("3 and 3 runs of 50 steps", text)
            self.assertEqual(self.rows[f"{kind}: losses in memory equal"][2], "pass")

    def test_what_calls_take_leaves_waiting_out(self):
        value, _, verdict, text = self.rows["fsdp2: what CUDA's functions take more / step"]
        self.assertEqual((value, verdict), ("0.02", "MISS"))
        self.assertIn("2200 (2200 .. 2200) - 200 (200 .. 200) us; most cudaMalloc +2000", text)
        value, _, verdict, text = self.rows["fsdp2: calls, by what a launch costs more, / step"]
        self.assertEqual((value, verdict), ("4e-07", "pass"))
        self.assertIn("2 calls of 20 (10 .. 30) ns", text)

    def test_memory_that_both_read(self):
        right = {name: self.rows[f"{name}: every sum right"][2] for name in ("natively", "in stripes", "managed, read-mostly")}
        self.assertEqual(right, {"natively": "pass", "in stripes": "pass", "managed, read-mostly": "MISS"})
        self.assertEqual(self.rows["natively: rate of the slower GPU"][0], "300 GB/s")
        self.assertIn("both 900 and 600, in the first round 200 GB/s; 2.00 of natively",
                      self.rows["in stripes: rate of the slower GPU"][3])

    def test_losses_at_half(self):
        self.assertEqual([self.rows[f"{kind}, fast 2.0: losses equal"][2] for kind in ("fsdp2", "pipeline")], ["pass", "MISS"])
        self.assertEqual(self.rows["fsdp2, fast 2.0: step"][0], "105 ms")

    def test_programs_of_nccl_tests(self):
        self.assertEqual(self.rows["all-reduce of 1 GiB: bus bandwidth / native"][:3], ["0.5", ">= 0.99", "MISS"])
        right = {side: self.rows[f"all_reduce_perf, {side}: elements right"] for side in ("native", "in memory", "exact", "fast")}
        self.assertEqual([row[2] for row in right.values()], ["pass", "pass", "MISS", "pass"])
        self.assertEqual(right["exact"][3], "ok, 3 sizes, 3 wrong; 100.0 MiB on the host at most")
        self.assertEqual(self.rows["gather_perf, fast: elements right"][2], "pass")

    def test_a_rank_that_fails(self):
        for mode in "native", "exact", "fast":
            self.assertIn("Watchdog", self.rows[f"killed, {mode}: all have ended, and said why"][3])
            self.assertEqual(self.rows[f"stopped, {mode}: goes on"][2], "pass")
        self.assertIn("OutOfMemory", self.rows["without host memory, fast: all have ended, and said why"][3])
        self.assertEqual(self.code, 1)

    def test_a_ratio_of_medians_and_what_it_lies_between(self):
        found = bars.ratio([102, 100, 98, 110], [100, 99, 101])
        self.assertAlmostEqual(found[0], 1.01)
        self.assertTrue(0.97 <= found[1] < 1.01 < found[2] <= 1.12)
        self.assertEqual(bars.ratio([2], [1]), (2, 2, 2))


class Figures(unittest.TestCase):
    def test_rows_and_verdicts(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in ("gpt.py", FIGURES_JOB), ("spillway", FIGURES_TOOL.format(python=sys.executable)):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
                os.chmod(os.path.join(folder, name), 0o755)
            run = subprocess.run([sys.executable, os.path.join(HERE, "figures_bars.py"), "--build", folder, "--log",
                                  os.path.join(folder, "log"), "--scripts", folder, "--modes", "fast", "--times", "2",
                                  "steps", "replay", "kill"], capture_output=True, text=True)
        table = run.stdout[run.stdout.rindex("part "):].splitlines()[1:]
        rows = rows_of(table, slice(2, 5))
        self.assertEqual(rows["step, counted / native"], ["1", "<= 1.01", "pass"])
        self.assertEqual(rows["step, traced / native"], ["1.04", "<= 1.03", "MISS"])
        self.assertEqual(rows["trace: bytes an event"][0], "12")
        self.assertEqual(rows["fast 1.5: predicted / measured, or the inverse"], ["1.1", "<= 1.15", "pass"])
        self.assertEqual(rows["fast 2.0: predicted / measured, or the inverse"], ["1.5", "<= 1.15", "MISS"])
        self.assertEqual(rows["killed: events of the trace that can be read"], ["2000", ">= 1000", "pass"])
        self.assertEqual(run.returncode, 1)

    def test_a_time_out_takes_workers_in_other_sessions_along(self):
        worker = "import time; print('begun', flush=True); time.sleep(600)"
        job = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}], start_new_session=True)"
        result = harness.run([sys.executable, "-c", job], {}, 5)
        self.assertEqual(result.status, "timeout")
        self.assertIn("begun", result.output)  # nobody holds it open any more


# A job for larger_bars.py: 100 ms and 25 a layer, 10 of them the optimizer; eight layers do not fit natively.
LARGER_JOB = """
import json, os, sys
layers, spilled = int(sys.argv[sys.argv.index("--layers") + 1]), "LD_PRELOAD" in os.environ
if layers >= 8 and not spilled:
    sys.exit("CUDA out of memory")
for step in range(1, 6):
    counted = {"in_gb": 5.0, "out_gb": 4.0, "chunks_made": 0, "chunks_released": 0} if spilled else {}
    ms = (900 if "--instead" in sys.argv else 100 + 25 * layers) * (2 if spilled else 1) * (3 if spilled and step == 1 else 1)
    print(json.dumps({"step": step, "ms": ms, "optimizer_ms": 10.0, "value": str(8 - step / 10), **counted}), flush=True)
print(json.dumps({"layers": layers, "alive": (600 << 20) + 5 * 10**9, "reserved": 6 * 10**9}))
if spilled:
    print(\"\"\"%s\"\"\")
""" % SUMMARY


class Larger(unittest.TestCase):
    def test_limits(self):
        self.assertEqual(larger_bars.drawn_on(4, 200, 2, 150, 8), 300)
        self.assertAlmostEqual(larger_bars.limit_ms(2120, 70, 28.6e9, 50), 2120 - 70 + 572)
        self.assertEqual(larger_bars.limit_ms(20, 20, 2.0e9, 50), 40)  # the link takes longer than the computing
        self.assertEqual(larger_bars.limit_ms(60, 60, 2.0e9, 50), 60)
        self.assertAlmostEqual(larger_jobs.parameters("train", 32) / 1e9, 6.738, 3)
        self.assertEqual(larger_jobs.layers_for("train", 107e9), 32)

    def test_losses_without_a_native_run(self):
        self.assertTrue(larger_bars.compared([], ["8.0", "7.0"], ["8.0", "7.001"])[0])
        self.assertFalse(larger_bars.compared([], ["8.0", "7.0"], ["8.0", "7.1"])[0])
        self.assertFalse(larger_bars.compared([], ["8.0", "7.0"], ["8.0"])[0])
        self.assertFalse(larger_bars.compared([], ["0a"], ["0b"])[0])
        self.assertFalse(larger_bars.compared([["8", "7"], ["8", "7"]], [], ["8"])[0])

    def test_digests_that_differ_natively_are_not_compared(self):
        self.assertEqual(larger_bars.compared([["0a", "0b"], ["0a", "0c"]], [], ["0d", "0e"]),
                         (True, "not compared: native digests differ"))
        self.assertFalse(larger_bars.compared([["0a", "0b"], ["0a", "0c"]], [], ["0a"])[0])  # a step is missing
        self.assertFalse(larger_bars.compared([["0a", "0b"], ["0a", "0b"]], [], ["0a", "0c"])[0])
        self.assertNotIn("not compared", larger_bars.compared([["8.0"], ["8.1"]], [], ["8.05"])[1])

    def test_lines_of_llm_c(self):
        said = "step    1/10 | loss 11.019180 (+nanz)| norm 15.9 (+nanz)| lr 3.00e-04 | 27.84 ms | 40.1% bf16 MFU | 2 tok/s\n"
        found = larger_bars.outcome_of(harness.Run("ok", output=3 * said))
        self.assertEqual((found.ms, found.values), (3 * [27.84], 3 * ["11.019180"]))

    def test_the_budget_of_a_job_that_ends_without_a_summary(self):
        said = "spillway: device budget 71.0 GiB of 139.8 GiB, spill fast, policy heap (built in)\n"
        self.assertEqual(larger_bars.outcome_of(harness.Run("ok", output=said)).budget, 71 * 2**30)

    def test_a_program_that_does_not_say_what_it_needs_is_told(self):
        def run(*arguments):
            return subprocess.run([sys.executable, os.path.join(HERE, "larger_bars.py"), "--build", "nowhere", "--log", os.devnull,
                                   "--binary", "train", *arguments, "--plan", "binary"], capture_output=True, text=True)

        self.assertIn("needs --binary COMMAND and --need MIB", run().stderr)
        self.assertEqual(run("--need", "6860").returncode, 0)

    def rows(self, layers, *job, link=f"#!/bin/sh\n{LINK}\n"):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "bench"))
            for name, text in ("larger_jobs.py", LARGER_JOB), ("bench/link", link):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
                os.chmod(os.path.join(folder, name), 0o755)
            run = subprocess.run([sys.executable, os.path.join(HERE, "larger_bars.py"), "--build", folder, "--log",
                                  os.path.join(folder, "log"), "--scripts", folder, "--layers", layers, "--steps", "5",
                                  "--against", folder, "--set", "heap.chunk=64MiB", *job], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        table = run.stdout[run.stdout.rindex("\njob "):].splitlines()[2:]
        return [[cell.strip() for cell in line.split("|")] for line in table]

    def test_a_job_that_grows_is_judged_before_and_after(self):
        job = """
import json, os, sys
at, batch = map(int, sys.argv[sys.argv.index("--grow") + 1:][:2])
spilled = "LD_PRELOAD" in os.environ
for step in range(1, int(sys.argv[sys.argv.index("--steps") + 1]) + 1):
    if step == at:
        print(json.dumps({"before_growing": True, "alive": 90 << 20, "reserved": 100 << 20}))
    ms = 100.0 if step < at else 400.0 * (1 + spilled + 3 * (spilled and step == at))
    print(json.dumps({"step": step, "ms": ms, "optimizer_ms": None, "value": "8"}), flush=True)
print(json.dumps({"alive": 0, "reserved": batch}))
"""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "larger_jobs.py"), "w") as file:
                file.write(job)
            run = subprocess.run([sys.executable, os.path.join(HERE, "larger_bars.py"), "--build", folder, "--log",
                                  os.path.join(folder, "log"), "--scripts", folder, "--modes", "fast", "insurance"],
                                 capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        rows = [[cell.strip() for cell in line.split("|")] for line in run.stdout[run.stdout.rindex("\njob "):].splitlines()[2:]]
        self.assertEqual([row[0::2][:2] + row[9:] for row in rows if row[2] == "fast"],
                         [["insurance, before", "fast", "100.0", "1.000"], ["insurance, the moment", "fast", "400.0", "0.200"],
                          ["insurance, after", "fast", "400.0", "0.500"]])

    def test_by_halves(self):
        rows = self.rows("8", "train")
        self.assertEqual(rows[0][1:3] + rows[0][5:7], ["native", "by halves", "300.0", "10"])
        self.assertEqual([row[2] for row in rows[1:]], ["fast heap.chunk=64MiB", "exact heap.chunk=64MiB"])
        self.assertEqual(rows[1][3:], ["as the first run's", "2.4", "600.0 (600.0 .. 600.0)", "10", "5.00", "4.00", "390", "0.65"])

    def test_whole(self):
        rows = self.rows("4", "train")
        self.assertEqual(rows[0][2], "whole, need 5722 MiB")
        self.assertEqual(rows[1][3:5] + rows[1][9:], ["5 equal bit for bit", "1.6", "290", "0.72"])

    def test_two_gpus_and_what_a_user_would_pick_instead(self):
        link = "#!/bin/sh\n[ \"$CUDA_VISIBLE_DEVICES\" = 1 ] && r=40 || r=50\necho pinned_pair_64 $r $r $r GB/s\n"
        rows = self.rows("4", "sharded", "--instead", link=link)
        self.assertEqual(rows[0][10], "pair 40.0 GB/s")  # of the slower one
        self.assertEqual([row[1:3] + row[5:6] for row in rows[1:2]], [["native", "instead", "900.0 (900.0 .. 900.0)"]])
        self.assertEqual(rows[2][3], "5 equal bit for bit")


# A job for programs_bars.py: plain takes 100 ms natively and 40 under the library, and needs what is free; a finder finds 250 with
# 25 GiB, and in fast another batch.
PROGRAMS_JOB = """
import os, sys
kind, what, options = sys.argv[1], sys.argv[2], dict(zip(sys.argv[3::2], sys.argv[4::2]))
settings = dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s)
if kind in ("model", "graph"):
    for end in [""] if kind == "model" else [".col", ".dst"]:
        open(what + end, "w").close()
    sys.exit()
if kind == "finder":
    found = 1000 if "spill.limit" not in settings and settings["spill.mode"] != "off" else 250
    print("check tries 1024." + str(found + (settings["spill.mode"] == "fast")))
    print("check found", found + (settings["spill.mode"] == "fast"))
    sys.exit()
if options["--leave"] != "0" and what == "pool":
    sys.exit("out of memory allocating 1 byte")
for rows in options["--rows"].split(","):
    ms = 50 if what == "pool" else 40 if settings else 100
    print("first", rows, 1000)
    print("each", rows, ms)
    print("each", rows, ms)
    print("check chain." + rows, "7.8" if settings.get("spill.mode") == "exact" else "7.7")
if what == "count":
    print("need", 3 << 30)
"""

# released_jobs.py: one program's exact loses a bit of its weights, the other is stopped in fast, runs too short in exact and spills
# nothing in static.
RELEASED_JOB = """
import os, sys
name, settings = sys.argv[1], dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s)
mode = settings.get("spill.mode")
assert sys.argv[2:] == ["--seconds", "60" if mode else "20"] and settings.get("device.budget", "2048MiB") == "2048MiB"
print("version", name, "1.2")
for step in range(1, 5 if name == "stops" and mode == "exact" else 9 if mode else 7):
    print("each", step, 15000, 1 / step)
print("check weights.5", 43 if name == "loses" and mode == "exact" else 42)
print("need", 3 << 30)
if mode and not (name == "stops" and mode == "static"):
    print(\"\"\"%s\"\"\")
if name == "stops" and mode == "fast":
    print("spillway: an access to a block in transit; use spill.mode: exact")
    sys.exit(1)
""" % SUMMARY

# llama.cpp's tools: in fast, other tokens; in static, perplexity runs out of time; fewer layers compute something else.
LLAMA_TOOL = """
import json, os, sys
tool, layers = os.path.basename(sys.argv[0]), sys.argv[sys.argv.index("-ngl") + 1]
mode = dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s).get("spill.mode")
if tool == "llama-bench":
    for what, rate in ("n_gen", 0), ("n_gen", 32):
        print(json.dumps({what: rate, "avg_ts": 100.0 if rate else 2000.0}))
elif tool == "llama-completion":
    print("other tokens" if mode == "fast" else "tokens")
elif mode == "static":
    sys.exit("out of memory")
else:
    print("Final estimate: PPL = 32100.5 +/- 20.1" if layers == "99" else "Final estimate: PPL = 32100.6 +/- 20.1")
if mode:
    print("spillway:   device    1.5 GiB live at exit,   7.5 GiB at most, budget 9.5 GiB", file=sys.stderr)
"""


# EMOGI's programs: in fast PageRank needs an iteration more; exact is the best mode, and what is used unasked.
EMOGI_TOOL = """
import os, sys
tool, options = os.path.basename(sys.argv[0]), dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert os.path.exists(options["-f"] + ".col") and os.path.exists(options["-f"] + ".dst")
settings = dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s)
mode = settings.get("spill.mode")
ms = {"static": 100, "exact": 50, "fast": 75}.get(mode, 55) if "device.budget" in settings else 10
for run in range(2 if tool == "bfs_32" else 1):
    print(f"iteration {7 + (tool == 'pagerank_32' and mode == 'fast'):3}, time {90 if options['-m'] == '2' else ms:12} ms")
if settings:
    print("spillway:   device    1.5 GiB live at exit,   3.0 GiB at most, budget 9.5 GiB", file=sys.stderr)
    assert settings.get("device.budget", "2048MiB") == "2048MiB"
"""


# gpu-burn, which is wrong once in exact and whose process dies in fast; and nvbandwidth, which finds an error in static.
METER_TOOL = """
import os, sys
tool = os.path.basename(sys.argv[0])
settings = dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s)
mode = settings.get("spill.mode")
assert tool == "nvbandwidth" or os.path.exists(sys.argv[sys.argv.index("-c") + 1])
assert settings.get("device.budget", "2048MiB") == "2048MiB"
if tool == "gpu_burn":
    for errors in (0, int(mode == "exact"), 0):
        print(f"\\r5.0%  proc'd: {-1 if mode == 'fast' else 7} (51000 Gflop/s)   errors: {errors}   temps: -- ", end="")
    print("\\nTested 1 GPUs:\\n\\tGPU 0:", "FAULTY" if mode == "exact" else "OK")
else:
    for name in sys.argv[sys.argv.index("-t") + 1:]:
        print(f"SUM {name} 55.42" if mode != "static" or "local" not in name else "Error: mismatch")
if settings:
    print("spillway:   device    1.5 GiB live at exit,   3.0 GiB at most, budget 9.5 GiB", file=sys.stderr)
"""


def run_programs(folder, tools, *arguments):
    """programs_bars.py, with stand-ins in the folder: PROGRAMS_JOB, RELEASED_JOB, and {name: text} of programs."""
    for name, text in ("programs_jobs.py", PROGRAMS_JOB), ("released_jobs.py", RELEASED_JOB), \
            *((name, f"#!{sys.executable}{text}") for name, text in tools.items()):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
        os.chmod(os.path.join(folder, name), 0o755)
    return subprocess.run([sys.executable, os.path.join(HERE, "programs_bars.py"), "--build", folder, "--log",
                           os.path.join(folder, "log"), "--scripts", folder, *arguments], capture_output=True, text=True)


class Programs(unittest.TestCase):
    def test_a_graph_is_read_as_it_was_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.bel")
            try:
                import numpy  # noqa: F401
            except ImportError:
                self.skipTest("no NumPy")
            subprocess.run([sys.executable, os.path.join(HERE, "programs_jobs.py"), "graph", path, "--vertices", "10", "--edges", "50"],
                           check=True)
            ends, edges = (struct.unpack("<{}q".format(os.path.getsize(path + end) // 8), open(path + end, "rb").read())
                           for end in (".col", ".dst"))
        self.assertEqual(ends[:3] + ends[-1:], (11, 0, 0, 50))
        self.assertEqual((list(ends[2:]), len(ends)), (sorted(ends[2:]), 13))
        self.assertEqual((edges[:2], len(edges)), ((50, 0), 52))
        self.assertTrue(all(0 <= edge < 10 for edge in edges[2:]))

    def test_graphs(self):
        with tempfile.TemporaryDirectory() as folder:
            run = run_programs(folder, dict.fromkeys(["bfs_32", "pagerank_32"], EMOGI_TOOL), "--emogi", folder, "--models", folder,
                               "graphs")
            self.assertEqual([name for name in os.listdir(folder) if "bel" in name], [])
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        rows = rows_of(run.stdout.splitlines(), slice(2, 5))
        self.assertEqual([rows[f"PageRank, 30 iterations, {side}: as many iterations"][2]
                          for side in ("static", "fast", "its zero copy")], ["pass", "MISS", "pass"])
        self.assertEqual(rows["BFS, 64 searches: EMOGI's zero copy / static"], ["0.9", ">= 0.95", "MISS"])
        self.assertEqual(rows["BFS, 64 searches: no mode named / the best mode"], ["1.1", "<= 1.1", "pass"])

    def test_meters(self):
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "compare.fatbin"), "w").close()
            run = run_programs(folder, dict.fromkeys(["gpu_burn", "nvbandwidth"], METER_TOOL), "--meters", folder, "meters")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        rows = rows_of(run.stdout.splitlines(), slice(4, None))
        sides = "natively", "with room for all", "static", "exact", "fast"
        for what, wanted in ("gpu-burn: no wrong product", ["pass", "pass", "pass", "MISS", "MISS"]), \
                ("nvbandwidth: what it copies is right", ["pass", "pass", "MISS", "pass", "pass"]):
            self.assertEqual([rows[f"{what}, {side}"][0] for side in sides], wanted, run.stdout)
        self.assertIn("3 lines, 51000 Gflop/s", rows["gpu-burn: no wrong product, static"][1])
        self.assertIn("55.42 55.42", rows["nvbandwidth: what it copies is right, fast"][1])

    def test_the_model_is_a_gguf_file(self):
        header, counts = programs_jobs.gguf_header(2)
        self.assertEqual(struct.unpack_from("<4sIQQ", header), (b"GGUF", 3, 3 + 2 * 9, 19))
        self.assertEqual(len(header) % 32, 0)
        halves = sum(count for count, half in counts if half)
        self.assertEqual(2 * (halves - 2 * 4096 * 32000), 2 * programs_bars.LAYER_BYTES)
        last = b"blk.1.ffn_down.weight"
        at = header.index(last) + len(last)
        self.assertEqual(struct.unpack_from("<IQQI", header, at), (2, 11008, 4096, 1))
        before = sum(count * (2 if half else 4) for count, half in counts[:-1])
        self.assertEqual(struct.unpack_from("<Q", header, at + 24), (before,))  # all are multiples of the alignment

    def test_layers_that_fit(self):
        need = programs_bars.LAYERS * programs_bars.LAYER_BYTES + (500 << 20)
        self.assertEqual(programs_bars.layers_that_fit(need, need), 23)
        self.assertEqual(programs_bars.layers_that_fit(need, need - 1), 22)
        self.assertEqual(programs_bars.layers_that_fit(need, 400 << 20), 1)

    def test_llama(self):
        with tempfile.TemporaryDirectory() as folder:
            run = run_programs(folder, dict.fromkeys(["llama-bench", "llama-completion", "llama-perplexity"], LLAMA_TOOL),
                               "--llama", folder, "--models", folder, "llama")
            self.assertFalse(os.path.exists(os.path.join(folder, "spillway-test.gguf")))
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        rows = rows_of(run.stdout.splitlines(), 4)
        wanted = {"exact, with room for all": ("pass", "pass"), "static": ("MISS", "pass"), "exact": ("pass", "pass"),
                  "fast": ("pass", "MISS"), "its own offload, -ngl 15": ("", ""), "natively again": ("pass", "pass")}
        for side, verdicts in wanted.items():
            found = tuple(rows[f"llama.cpp, {side}: {what} as natively"] for what in ("perplexity", "tokens"))
            self.assertEqual(found, verdicts, side)
        self.assertRegex(run.stdout, r"exact +\| 2000.0 +\| 100.0 +\| 32100.5")
        self.assertRegex(run.stdout, r"static +\|.*out of memory")

    def test_released(self):
        with tempfile.TemporaryDirectory() as folder:
            run = run_programs(folder, {}, "--programs", "loses,stops", "released")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        rows = rows_of(run.stdout.splitlines(), slice(None))
        wanted = {"loses, static": "pass", "loses, exact": "MISS", "loses, fast": "pass", "stops, static": "MISS",
                  "stops, exact": "MISS", "stops, fast": "pass"}
        self.assertEqual({name: rows[f"{name}: as natively"][4] for name in wanted}, wanted)
        self.assertIn("6 equal bit for bit, weights.5 differs, spilled 1.5 GiB, moved 23 and 22 GiB", rows["loses, exact: as natively"][5])
        seconds = {name: rows[f"{name}: seconds of steps, 3 runs at once"][2:5] for name in ("loses, fast", "stops, exact")}
        self.assertEqual(seconds, {"loses, fast": ["90", ">= 60", "pass"], "stops, exact": ["30", ">= 60", "MISS"]})
        self.assertRegex(run.stdout, r"loses 1.2 +\| 3.0 +\| 6 equal bit for bit \| equal 8, 1.5 GiB \| DIFFERS 8, 1.5 GiB")

    def test_rows_and_verdicts(self):
        with tempfile.TemporaryDirectory() as folder:
            run = run_programs(folder, {}, "--rows", "4,8", "chain", "tight", "finder")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        table = run.stdout[run.stdout.rindex("\npart "):].splitlines()[2:]
        rows = {(cells[0], cells[1]): cells[2:] for cells in ([c.strip() for c in line.split("|")] for line in table)}
        self.assertEqual(rows["chain", "8 rows: natively, pool / natively plain"][:3], ["0.5", "", ""])
        self.assertEqual(rows["chain", "8 rows: under Spillway, plain, fast / natively plain"][:3], ["0.4", "<= 0.5", "pass"])
        self.assertEqual(rows["chain", "4 rows: under Spillway, plain, fast / CuPy's pool"][:3], ["0.8", "<= 1.1", "pass"])
        self.assertEqual(rows["chain", "under Spillway, plain, fast: tables equal"][2], "pass")
        self.assertEqual(rows["chain", "under Spillway, plain, exact: tables equal"][2], "MISS")
        self.assertEqual(rows["tight", "natively, plain, 2048 MiB free: ended"][0], "1")
        self.assertEqual(rows["tight", "natively, pool, 2048 MiB free: ended"][::3], ["0", "out of memory, spilled"])
        self.assertEqual(rows["tight", "under Spillway, plain, static: ended"][2], "pass")
        same = "accelerate: 20480 MiB, spill.limit 25%, {}: the same batch by the same tries"
        self.assertEqual([rows["finder", same.format(mode)][2] for mode in ("static", "exact", "fast")], ["pass", "pass", "MISS"])


# A program for managed_bars.py, and the compiler that makes it. "vector" and "tasks" are stopped; "chains" goes wrong in fast;
# "graph" spills nothing; jax_job.py takes too much for a native run, in which it would leave a file.
MANAGED_PROGRAM = """
import os, sys
name = "jax" if __file__.endswith("jax_job.py") else sys.argv[1]
settings = dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s)
if not settings and name == "jax":
    open(__file__ + ".ran", "w").close()
if settings and name in ("vector", "tasks"):
    sys.exit("spillway: THE CPU USED MANAGED MEMORY THAT THE GPU HAS: address 0x1")
print("each 1 2.5 7")
print("check sum", "1" if name == "chains" and settings.get("spill.mode") == "fast" else "0")
if settings:
    unused = 4096 if name == "jax" else 300
    print("spillway: summary of process 1")
    print("spillway:   device          0 B live at exit,   300.0 MiB at most, budget 8.0 GiB")
    print(f"spillway:   place: on-use: 300.0 MiB taken, {unused}.0 MiB unused at most; 1 times all that was missing (3 MiB)")
    if "spill.mode" in settings and name != "graph":
        print("spillway:   host        0 B live at exit,   100.0 MiB at most, budget 8.0 GiB")
"""


class Managed(unittest.TestCase):
    def test_what_the_table_says(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = {"jax_job.py": MANAGED_PROGRAM, "program": f"#!{sys.executable}{MANAGED_PROGRAM}",
                        "nvcc": f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {folder}/program "$2"\n'}
            for name, text in programs.items():
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
                os.chmod(os.path.join(folder, name), 0o755)
            run = subprocess.run([sys.executable, os.path.join(HERE, "managed_bars.py"), "--build", folder, "--log",
                                  os.path.join(folder, "log"), "--scripts", folder, "--nvcc", os.path.join(folder, "nvcc"),
                                  "--only", "vector,vector-copied,tasks,graph,chains,jax", "programs"], capture_output=True, text=True)
            self.assertFalse(os.path.exists(os.path.join(folder, "jax_job.py.ran")))
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        table = run.stdout[run.stdout.rindex("\nprogram "):].splitlines()[2:]
        rows = {cells[0]: cells[1:] for cells in ([c.strip() for c in line.split("|")] for line in table)}
        equal, spilled = "equal, 2.5 ms", "equal, 2.5 ms, 100.0 MiB spilled"
        self.assertEqual(rows["vector"], ["", equal, "line", "", ""])
        self.assertEqual(rows["vector-copied"], ["300 MiB", equal, equal, spilled, spilled])
        self.assertEqual(rows["graph"][3], "equal, NOTHING SPILLED, 2.5 ms, none spilled")
        self.assertEqual(rows["chains"], ["300 MiB", equal, equal, spilled, "DIFFERS: sum 1 for 0, 2.5 ms, 100.0 MiB spilled"])
        self.assertEqual(rows["jax"][:2], ["4096 MiB", ""])
        missed = re.findall(r"^programs \| (\w+): .*(?:MISS|n/a)", run.stdout, re.MULTILINE)
        self.assertEqual(sorted(set(missed)), ["chains", "graph", "jax", "tasks"])
        self.assertEqual(managed_bars.on_use("spillway:   place: on-use: 1.5 GiB taken, 300.0 MiB unused at most"),
                         (1.5 * 2**30, 300 * 2**20))


if __name__ == "__main__":
    unittest.main()
