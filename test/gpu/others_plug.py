# SPDX-License-Identifier: Apache-2.0
"""Runs one file or module of tests for others.py, and writes a line to $OTHERS_LOG as each test starts and ends.

Each line is one write of JSON to a file opened for appending, so a process that is killed loses nothing but the test that
was running. Tests that have an "end" line there already are left out, which is how a run goes on after a crash:
  {"event": "collected", "tests": N}  {"event": "start", "test": ID}  {"event": "restart"}  {"event": "finished"}
  {"event": "end", "test": ID, "outcome": OUTCOME, "why": LAST LINE, "seconds": S}
OUTCOME is passed, failed, error, skipped, xfailed or xpassed. "restart" says that the GPU's context is lost: tests after
it would fail for that alone, so the process ends and the rest run in a new one.

As a plug-in of pytest: pytest -p others_plug FILE. For suites of unittest: python others_plug.py FILE_OR_MODULE.
$OTHERS_EVERY=N runs one test of N, chosen by its name.
"""
import json
import os
import re
import sys
import time
import unittest
import zlib

LOST = re.compile(r"illegal (memory access|address|instruction)|misaligned address|unspecified launch failure|"
                  r"device-side assert|cudaError(Illegal|LaunchFailure|Misaligned|Assert)|"
                  r"CUDA_ERROR_(ILLEGAL|LAUNCH_FAILED|MISALIGNED|ASSERT)", re.IGNORECASE)


class Log:
    def __init__(self, path):
        self.ended = set()
        self.lost = False  # the GPU's context
        self.unloaded = False  # a file could not be loaded, which ends pytest
        self.file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.process = os.getpid()
        with open(path) as lines:
            for line in lines:
                event = json.loads(line)
                if event["event"] == "end":
                    self.ended.add(event["test"])

    def write(self, event, **fields):
        if os.getpid() == self.process:  # a test's own forked child reports nothing
            os.write(self.file, (json.dumps({"event": event, **fields}) + "\n").encode())

    def end(self, test, outcome, text, seconds):
        """text: of the failure or of the reason to skip."""
        self.ended.add(test)
        self.write("end", test=test, outcome=outcome, why=last_line(text), seconds=round(seconds, 3))
        if outcome in ("failed", "error") and LOST.search(text):
            self.lost = True
            self.write("restart")

    def wants(self, test):
        every = int(os.environ.get("OTHERS_EVERY", "1"))
        return test not in self.ended and zlib.crc32(test.encode()) % every == 0


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


log = None  # of this process, from pytest_configure() or main() on
tests = {}  # of pytest, while they run: ID: [outcome, text, seconds]
WORSE = ["passed", "xpassed", "xfailed", "skipped", "failed", "error"]  # the worst of setup, call and teardown counts


def pytest_configure(config):
    global log
    log = Log(os.environ["OTHERS_LOG"])


def pytest_collectreport(report):
    if report.failed:
        log.unloaded = True
        log.end(f"{report.nodeid or '.'} (load)", "error", report.longreprtext, 0)


def pytest_collection_modifyitems(session, config, items):
    found = len(items)
    left_out = [item for item in items if not log.wants(item.nodeid)]
    items[:] = [item for item in items if log.wants(item.nodeid)]
    config.hook.pytest_deselected(items=left_out)
    log.write("collected", tests=found)


def pytest_runtest_logstart(nodeid, location):
    tests[nodeid] = ["passed", "", 0.0]
    log.write("start", test=nodeid)


def outcome_of(report):
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    if report.failed:
        return "failed" if report.when == "call" else "error"
    return report.outcome


def text_of(report):
    """What went wrong, its last line being the message; the reason of a skip."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message.splitlines()[0] if crash and crash.message else ""
    return f"{report.longreprtext}\n{message}"


def pytest_runtest_logreport(report):
    test = tests.get(report.nodeid)
    if not test:
        return
    test[2] += report.duration
    outcome = outcome_of(report)
    if hasattr(report, "context") and outcome != "failed":
        return  # a subtest that did not fail says nothing of its test
    if WORSE.index(outcome) > WORSE.index(test[0]):
        test[:2] = outcome, text_of(report)


def pytest_runtest_logfinish(nodeid, location):
    if nodeid in tests:
        log.end(nodeid, *tests.pop(nodeid))


def pytest_runtest_protocol(item, nextitem):
    if log.lost:
        item.session.shouldstop = "the GPU's context is lost"
        return True  # this one is for the next process


def pytest_sessionfinish(session, exitstatus):
    if not log.lost and (log.unloaded or exitstatus in (0, 1, 5)):  # 5: no test was left to run
        log.write("finished")


class Result(unittest.TestResult):
    """Of unittest: the worst thing that happened to a test is its outcome."""

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.text, self.began = "passed", "", time.monotonic()
        log.write("start", test=test.id())

    def stopTest(self, test):
        super().stopTest(test)
        log.end(test.id(), self.outcome, self.text, time.monotonic() - self.began)
        if log.lost:
            self.stop()

    def note(self, test, outcome, text):
        if not isinstance(test, unittest.TestCase):  # setUpClass(), setUpModule() and what takes them down
            log.end(f"{test.id()} (load)", outcome, text, 0)
        elif WORSE.index(outcome) > WORSE.index(self.outcome):
            self.outcome, self.text = outcome, text

    def addFailure(self, test, err):
        self.note(test, "failed", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        self.note(test, "error", self._exc_info_to_string(err, test))

    def addSubTest(self, test, subtest, err):
        if err:
            failed = issubclass(err[0], test.failureException)
            self.note(test, "failed" if failed else "error", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self.note(test, "xfailed", "")

    def addUnexpectedSuccess(self, test):
        self.note(test, "xpassed", "")


def cases(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


def dotted(path):
    """The name of a file's module, from the first folder above it that is no package; that folder goes to sys.path."""
    folder, file = os.path.split(os.path.abspath(path))
    names = [file.removesuffix(".py")]
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        names.insert(0, package)
    sys.path.insert(0, folder)
    return ".".join(names)


def main(name):
    global log
    log = Log(os.environ["OTHERS_LOG"])
    name = dotted(name) if os.path.exists(name) else name
    found = list(cases(unittest.TestLoader().loadTestsFromName(name)))
    log.write("collected", tests=len(found))
    unittest.TestSuite(test for test in found if log.wants(test.id())).run(Result())
    if not log.lost:
        log.write("finished")


if __name__ == "__main__":
    main(sys.argv[1])
