# SPDX-License-Identifier: Apache-2.0
"""others.py with pretended suites, which pass, fail, crash, hang and change their minds, and no GPU."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import unittest

import others

HERE = os.path.dirname(os.path.abspath(__file__))

# What every suite begins with: the mode it runs in, and what Spillway would say in it.
HEAD = """
import atexit, os, sys, time, unittest
MODE = dict(s.split("=", 1) for s in os.environ.get("SPILLWAY_SET", "").split(",") if s).get("spill.mode")
BUDGET = dict(s.split("=", 1) for s in os.environ.get("SPILLWAY_SET", "").split(",") if s).get("device.budget")
STATE = os.environ["PRETENDED"]

def summary():
    os.write(2, f"spillway: summary of process 1: spilled: 64.0 MiB lay on the host at most\\n"
                "spillway:   host  0 B live at exit, 64.0 MiB at most\\n"
                "spillway:   moved 1.5 GiB to the device and 0.5 GiB to the host, in 5 pieces\\n".encode())

if MODE and BUDGET == "16MiB":
    os.write(2, b"spillway: SPILLING BEGINS: the device budget of 16.0 MiB is full\\n")
    atexit.register(summary)

def once(name):
    try:
        os.close(os.open(os.path.join(STATE, name), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False

"""
EQUAL = HEAD + """
class Equal(unittest.TestCase):
    def test_passes(self):
        pass
    def test_fails_everywhere(self):
        self.fail("no such table")
    @unittest.skip("no second GPU")
    def test_skipped(self):
        pass
    @unittest.expectedFailure
    def test_expected(self):
        self.fail("known")
    def test_crashes_everywhere(self):
        os.kill(os.getpid(), 9)
    def test_reason(self):
        self.fail("in " + (MODE or "memory") if os.environ.get("REASONS") else "value 1.5 at 0x1234")
"""
DIFFERENT = HEAD + """
class Different(unittest.TestCase):
    def test_a_fails(self):
        self.assertNotEqual(MODE, "exact")
    def test_b_crashes(self):
        if MODE == "fast":
            os.write(2, b"spillway: an access to a block in transit; use spill.mode: exact\\n")
            os.kill(os.getpid(), 11)
    def test_c_loses_the_gpu(self):
        if MODE == "fast":
            open(os.path.join(STATE, "lost"), "w").write(str(os.getpid()))
            raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    def test_d_is_not_hurt_by_that(self):
        if MODE == "fast":
            self.assertNotEqual(open(os.path.join(STATE, "lost")).read(), str(os.getpid()))
    def test_e_changes_its_mind(self):
        if not MODE and once("flaky"):
            self.fail("the first time")
    def test_f_is_skipped(self):
        if MODE == "static":
            self.skipTest("no memory")
    def test_g_subtest_fails(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertFalse(MODE == "exact" and i == 1)
"""
HANGS = HEAD + """
class Hangs(unittest.TestCase):
    def test_1(self):
        pass
    def test_2(self):
        if MODE == "exact":
            time.sleep(600)
    def test_3(self):
        pass
"""
SLOW = HEAD + """
class Slow(unittest.TestCase):
    def test_1(self):
        pass
    def test_2(self):
        if once("first " + str(MODE)):
            time.sleep(600)
    def test_3(self):
        self.assertTrue(once("third " + str(MODE) + ("" if MODE else str(os.getpid()))))
"""
LOADS = HEAD + """
if MODE == "exact":
    raise ImportError("libcuda says no")
class Loads(unittest.TestCase):
    def test_1(self):
        pass
"""
EXIT = HEAD + """
class Exit(unittest.TestCase):
    def test_1(self):
        if MODE == "exact":
            atexit.register(os.kill, os.getpid(), 11)
"""
PYTEST = HEAD + """
import pytest
@pytest.mark.parametrize("x", [1, 2])
def test_values(x):
    assert MODE != "fast" or x != 2
@pytest.fixture
def table():
    assert MODE != "exact", "no table"
def test_set_up(table):
    pass
@pytest.mark.xfail
def test_expected():
    assert False
"""


class Whole(unittest.TestCase):
    runner = "unittest"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def others(self, suites, *arguments, stop=None):
        """(exit status, text, {(test, mode): [natively, there, why]} of what differs); tests by their last name. stop:
        files; once all are there it is told to stop."""
        suite = os.path.join(self.folder, "suite")
        os.makedirs(suite, exist_ok=True)
        for name, text in suites.items():
            with open(os.path.join(suite, f"test_{name}.py"), "w") as file:
                file.write(text)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "LD_"))}
        run = subprocess.Popen([sys.executable, os.path.join(HERE, "others.py"), "--build", self.folder, "--state",
                                os.path.join(self.folder, "state"), "--jobs", "2", "--runner", self.runner, *arguments,
                                suite], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**environment, "PRETENDED": self.folder})
        while stop and not all(map(os.path.exists, stop)):
            time.sleep(0.05)
        if stop:
            run.terminate()
        text, _ = run.communicate()
        rows = {}
        path = os.path.join(self.folder, "state", "differences.txt")
        if os.path.exists(path):
            with open(path) as file:
                for line in file.readlines()[1:]:
                    test, natively, mode, there, why = line.rstrip("\n").split("\t")
                    name = test if " (" in test else test.replace(":", ".").split(".")[-1]
                    rows[name, mode] = [natively, there, why]
        return run.returncode, text, rows

    def test_equal(self):
        code, text, rows = self.others({"equal": EQUAL}, "--reasons")
        self.assertEqual((code, rows), (0, {}), text)
        self.assertIn("exact: 6 tests, 0 differ, 0 not run; 2 of 2 processes spilled, 2.00 GiB moved, 64 MiB", text)
        self.assertIn("none differs", text)

    def test_reasons(self):
        code, text, rows = self.others({"equal": EQUAL}, "--reasons", "--env", "REASONS=1", "--modes", "exact")
        self.assertEqual(code, 1, text)
        self.assertEqual(rows, {("test_reason", "exact"): ["failed", "failed", "AssertionError: in exact"]})

    def test_different(self):
        code, text, rows = self.others({"different": DIFFERENT})
        self.assertEqual(code, 1, text)
        self.assertEqual({row: (natively, there) for row, (natively, there, _) in rows.items()}, {
            ("test_a_fails", "exact"): ("passed", "failed"),
            ("test_b_crashes", "fast"): ("passed", "crashed"),
            ("test_c_loses_the_gpu", "fast"): ("passed", "error" if self.runner == "unittest" else "failed"),
            ("test_f_is_skipped", "static"): ("passed", "skipped"),
            ("test_g_subtest_fails", "exact"): ("passed", "failed"),
        }, text)
        self.assertIn("signal 11: spillway: an access to a block in transit", rows["test_b_crashes", "fast"][2])
        self.assertIn("1 unstable natively: 5 DIFFER", text)
        self.assertIn("1 stopped, and told why", text)

    def test_a_test_that_hangs_costs_itself_alone(self):
        code, text, rows = self.others({"hangs": HANGS}, "--modes", "exact", "--test-seconds", "10")
        self.assertEqual(code, 1, text)
        self.assertEqual([row[:2] for row in rows.values()], [["passed", "hung"]])
        self.assertIn("exact: 3 tests, 1 differ, 0 not run; 2 of 2 processes", text)

    def test_goes_on_where_it_was_stopped(self):
        flags = [os.path.join(self.folder, f"first {mode}") for mode in (None, "exact")]
        code, text, rows = self.others({"slow": SLOW}, "--modes", "exact", "--jobs", "3", "--test-seconds", "500", stop=flags)
        self.assertEqual((code, rows), (2, {}), text)
        self.assertIn("not run: call it again", text)
        code, text, rows = self.others({"slow": SLOW}, "--modes", "exact")
        self.assertEqual((code, rows), (0, {}), text)
        code, text, rows = self.others({"slow": SLOW}, "--modes", "exact")  # with nothing left to run
        self.assertEqual((code, rows), (0, {}), text)

    def test_what_goes_wrong_outside_of_tests(self):
        code, text, rows = self.others({"loads": LOADS, "exit": EXIT}, "--modes", "exact")
        self.assertEqual(code, 1, text)
        self.assertEqual(rows["test_1", "exact"][:2], ["passed", "absent"])
        exit_row, = (row for (test, _), row in rows.items() if test.endswith("(exit)"))
        self.assertEqual(exit_row[:2], ["absent", "crashed"])
        load_row, = (row for (test, _), row in rows.items() if "load" in test.lower())
        self.assertEqual(load_row[:2], ["absent", "error"])

    def test_without_pressure_it_is_no_proof(self):
        code, text, _ = self.others({"hangs": HANGS}, "--modes", "fast", "--budget", "8GiB")
        self.assertEqual(code, 1, text)
        self.assertIn("NOTHING SPILLED in fast", text)
        self.assertEqual(self.others({"hangs": HANGS}, "--modes", "fast", "--budget", "8GiB", "--no-pressure")[0], 0)

    def test_nothing_to_run(self):
        self.assertNotEqual(self.others({})[0], 0)
        code, text, _ = self.others({"empty": HEAD + "raise ImportError('not here')"})
        self.assertEqual(code, 1, text)
        self.assertIn("NO TEST PASSED", text)

    def test_some_of_many(self):
        many = HEAD + "class Many(unittest.TestCase):\n" + "".join(f"    def test_{i}(self): pass\n" for i in range(64))
        code, text, _ = self.others({"many": many}, "--modes", "exact", "--every", "4")
        self.assertEqual(code, 0, text)
        n = int(text[text.index("exact: ") + len("exact: "):].split()[0])
        self.assertTrue(8 <= n <= 24, text)


@unittest.skipUnless(importlib.util.find_spec("pytest"), "there is no pytest")
class WithPytest(Whole):
    runner = "pytest"

    def test_what_only_pytest_has(self):
        code, text, rows = self.others({"pytest": PYTEST})
        self.assertEqual(code, 1, text)
        self.assertEqual({row: there for row, (_, there, _) in rows.items()},
                         {("test_values[2]", "fast"): "failed", ("test_set_up", "exact"): "error"})


class Parts(unittest.TestCase):
    def test_files_and_modules_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            package = os.path.join(folder, "pretended_package", "tests")
            os.makedirs(os.path.join(package, "deep"))
            for name in "__init__.py", "test_b.py", "a_test.py", "deep/test_c.py", "deep/support.py":
                open(os.path.join(package, name), "w").close()
            self.assertEqual([os.path.relpath(path, package) for path in others.targets_of(package)],
                             ["a_test.py", "test_b.py", "deep/test_c.py"])
            one = os.path.join(package, "test_b.py")
            self.assertEqual(others.targets_of(one), [one])
            os.environ["PYTHONPATH"] = folder
            self.addCleanup(os.environ.pop, "PYTHONPATH")
            self.assertEqual(others.targets_of("pretended_package.tests"),
                             [f"pretended_package.tests.{name}" for name in ("a_test", "test_b", "deep.test_c")])
            self.assertEqual(others.targets_of("pretended_package.tests.test_b"), ["pretended_package.tests.test_b"])
            with self.assertRaises(SystemExit):
                others.targets_of("pretended_package.missing")

    def test_what_was_said(self):
        said = others.said_of("spillway: summary of process 1: nothing was spilled\nspillway:   moved 1.0 GiB to the device, 512.0 MiB to the "
                              "host and 512.0 MiB to other GPUs, in 3 pieces\n")
        self.assertEqual((said["summaries"], said["spilled"], said["moved"]), (1, True, 2 << 30))
        self.assertFalse(others.said_of("spillway: summary of process 1: nothing was spilled\n")["spilled"])


if __name__ == "__main__":
    unittest.main()
