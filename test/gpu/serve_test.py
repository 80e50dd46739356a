# SPDX-License-Identifier: Apache-2.0
"""serve_bars.py with jobs that only pretend, and no GPU: python serve_test.py."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import serve_bars

# What serve_job.py would print, with what the environment says; "stopped" stands for a suspension.
PRETENDED_JOB = """
import os, sys, threading, time
here = os.environ["PRETENDED"]
settings = dict(s.split("=") for s in os.environ.get("SPILLWAY_SET", "").split(",") if s)
mode, kind = settings.get("spill.mode"), sys.argv[1]
tokens = int(sys.argv[sys.argv.index("--tokens") + 1]) if "--tokens" in sys.argv else 4
if kind in ("static", "paged"):
    if kind == "paged" and os.environ.get("OLD"):
        print("api none the model has no init_continuous_batching")
        sys.exit(3)
    print("api of", kind)
    for i in range(2):
        print(f"check tokens.{i} {'bad' if mode == os.environ.get('WRONG') and mode else 'beef'}")
    print("rate", {None: 400, "static": 50, "exact": 100, "fast": 200}[mode])
    print("need", 3 << 30)
    if mode:
        lay = "nothing was spilled" if os.environ.get("FITS") else "spilled"
        print(f"spillway: summary of process 1: {lay}")
        if not os.environ.get("FITS"):
            print("spillway:   host  0 B live at exit, 1.5 GiB at most")
    sys.exit(0)
waiting, ended = [], False
def suspensions():
    try:
        return len(open(os.path.join(here, "suspensions")).read())
    except OSError:
        return 0
def read():
    global ended
    for line in sys.stdin:
        words = line.split()
        if words[0] == "end":
            break
        waiting.extend(range(int(words[1]), int(words[1]) + int(words[2])))
        print("asked", words[1], words[2], flush=True)
    ended = True
threading.Thread(target=read, daemon=True).start()
open(os.path.join(here, "pid"), "w").write(str(os.getpid()))
open(os.path.join(here, "suspensions"), "w").close()
print("need", 34 << 30, flush=True)
print("ready", flush=True)
number = served = 0
while True:
    while len(waiting) < 8 and not ended:
        time.sleep(0.001)
    batch, waiting[:] = waiting[:8], waiting[8:]
    if not batch:
        break
    for _ in range(tokens):
        time.sleep(0.002)
        while os.path.exists(os.path.join(here, "stopped")):
            time.sleep(0.001)
        number += 1
        print("each", number, 20, len(waiting), flush=True)
        # In the middle of the second and the third batch it is suspended, however slow this machine is.
        wanted = (number - tokens // 4) / tokens
        while mode and wanted in (1, 2) and suspensions() < wanted:
            time.sleep(0.001)
    served += len(batch)
    for request in batch:
        print("done", request, 1.5, flush=True)
print("check tokens", "bad" if mode == os.environ.get("WRONG") and mode else "beef")
print("served", served)
print("need", 34 << 30)
"""
TOOL = """
case $1 in
suspend) sleep ${SLOW:-0}; : >"$PRETENDED/stopped"; printf x >>"$PRETENDED/suspensions" ;;
resume) rm "$PRETENDED/stopped" ;;
top) echo "{\\"processes\\": [{\\"pid\\": $(cat "$PRETENDED/pid"), \\"host_used\\": ${PINNED:-36507222016}}]}" ;;
esac"""
# nvidia-smi's answer: 40 GiB are in use, 5 while the job is suspended.
SMI = 'if [ -e "$PRETENDED/stopped" ]; then echo 5120; else echo 40960; fi'


class Parsing(unittest.TestCase):
    def test_lines_of_jobs(self):
        self.assertEqual(serve_bars.rate_of("rate 5\nrate 7.5\n"), 7.5)
        self.assertIsNone(serve_bars.rate_of("ratio 5\n"))
        self.assertEqual(serve_bars.word_after("api a\napi none of b\n", "api"), "none of b")
        self.assertEqual(serve_bars.waiting_of("each 1 20.5 16\neach 2 20 8\nneed 5\n"), 8)
        self.assertIsNone(serve_bars.waiting_of("each 1\n"))
        self.assertIsNone(serve_bars.waiting_of(""))
        self.assertEqual(serve_bars.late_requests("done 3 0.5\ndone 31 2\n", range(3, 6)), 1)

    def test_what_is_pinned(self):
        text = json.dumps({"processes": [{"pid": 4, "host_used": 1}, {"pid": 5, "host_used": 77}]})
        self.assertEqual(serve_bars.host_used_of(text, 5), 77)
        for bad in text[:-9], json.dumps({"processes": []}), "[]", '{"processes": [{"pid": 5, "host_used": null}]}':
            self.assertIsNone(serve_bars.host_used_of(bad, 5))

    def test_pinning_is_complete_or_goes_no_further(self):
        self.assertFalse(serve_bars.is_settled([], 10, 5))
        self.assertTrue(serve_bars.is_settled([(0, 4), (1, 10)], 10, 5))
        self.assertFalse(serve_bars.is_settled([(0, 4), (1, 6), (5, 6)], 10, 5))
        self.assertTrue(serve_bars.is_settled([(0, 4), (1, 6), (6, 6)], 10, 5))
        self.assertFalse(serve_bars.is_settled([(0, 0), (9, 0)], 10, 5))  # it has not begun


class Whole(unittest.TestCase):
    def run_bars(self, *arguments, **environment):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "serve_job.py"), "w") as file:
                file.write(PRETENDED_JOB)
            for name, text in {"spillway": TOOL, "nvidia-smi": SMI}.items():
                path = os.path.join(folder, name)
                with open(path, "w") as file:
                    file.write(f"#!/bin/sh\n{text}\n")
                os.chmod(path, 0o755)
            clean = {key: value for key, value in os.environ.items() if not key.startswith(("SPILLWAY", "LD_"))}
            run = subprocess.run([sys.executable, os.path.join(HERE, "serve_bars.py"), "--build", folder, "--log",
                                  os.path.join(folder, "log"), "--scripts", folder, "--tokens", "12", "--stand", "0.1", "--most", "60",
                                  *arguments],
                                 capture_output=True, text=True,
                                 env={**clean, "PRETENDED": folder, "PATH": f"{folder}:{clean['PATH']}", **environment})
            return run.returncode, run.stdout + run.stderr

    def row(self, text, what):
        table = text[text.rindex("\npart "):]
        rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if what in line]
        self.assertEqual(len(rows), 1, f"{what} in {text}")
        return rows[0]

    def test_generation(self):
        code, text = self.run_bars("static", "paged")
        self.assertEqual(code, 0, text)
        for kind in "static", "paged":
            for mode in "static", "exact", "fast":
                self.assertEqual(self.row(text, f"{kind}, {mode} 1.5: tokens equal")[2:5], ["1", ">= 1", "pass"])
            self.assertIn("0.25 of native; 2.00 of static", self.row(text, f"{kind}, exact 1.5: tokens a second")[5])

    def test_generation_that_is_wrong_or_does_not_spill(self):
        code, text = self.run_bars("static", WRONG="fast")
        self.assertEqual(code, 1, text)
        self.assertEqual(self.row(text, "static, fast 1.5: tokens equal")[4], "MISS")
        self.assertEqual(self.row(text, "static, exact 1.5: tokens equal")[4], "pass")
        code, text = self.run_bars("static", FITS="1")
        self.assertEqual(code, 1, text)
        self.assertEqual(self.row(text, "static, exact 1.5: tokens equal")[4], "n/a")

    def test_transformers_without_continuous_batching(self):
        code, text = self.run_bars("paged", OLD="1")
        self.assertEqual(code, 0, text)
        self.assertIn("has no init_continuous_batching", self.row(text, "paged: transformers")[5])

    def test_suspension(self):
        code, text = self.run_bars("suspend")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.row(text, "server: holds")[2:5], ["34 GiB", ">= 34 GiB", "pass"])
        for name in "server, exact", "server, exact, pinned ahead", "server, fast, pinned ahead":
            self.assertEqual(self.row(text, f"{name}: tokens equal")[2:5], ["1", ">= 1", "pass"])
            for time in "first", "second":
                waiting = self.row(text, f"{name}, {time} time: requests waiting")
                self.assertEqual(waiting[3:5], [">= 8", "pass"])
                self.assertEqual(self.row(text, f"{name}, {time} time: no token meanwhile")[4], "pass")
                self.assertEqual(self.row(text, f"{name}, {time} time: memory given back")[2:5], ["1.03", ">= 0.95", "pass"])
                self.assertEqual(self.row(text, f"{name}, {time} time: first token after")[3:5], ["<= 60 s", "pass"])
                bar = "-" if (name, time) == ("server, exact", "first") else "<= 60 s"
                self.assertEqual(self.row(text, f"{name}, {time} time: suspension")[3] or "-", bar)
        self.assertEqual(self.row(text, "exact, pinned ahead: pinned ahead / held")[2:5], ["1", ">= 0.95", "pass"])

    def test_suspension_that_is_slow_or_wrong(self):
        code, text = self.run_bars("suspend", "--modes", "exact", "--most", "0.5", WRONG="exact", SLOW="0.6")
        self.assertEqual(code, 1, text)
        self.assertEqual(self.row(text, "exact: tokens equal")[4], "MISS")
        self.assertEqual(self.row(text, "server, exact, second time: suspension")[4], "MISS")
        code, text = self.run_bars("suspend", "--modes", "exact", "--pin-seconds", "1", PINNED="1000")
        self.assertEqual(code, 1, text)
        self.assertEqual(self.row(text, "pinned ahead / held")[4], "MISS")


if __name__ == "__main__":
    unittest.main()
