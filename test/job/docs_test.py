# SPDX-License-Identifier: Apache-2.0
"""docs_test.py BUILD SOURCE PAGE...: runs every command of these pages as it is printed, and looks for what they print.

A command is a line that begins with "$ " in a block of the kind console, with lines that begin with "> " behind it; the lines
up to the next one are some of what it prints. Numbers are those of another run, so any will do, but not behind a file of
test/data, whose output is always the same. "..." stands for anything. How long something took decides what is advised, so of
lines that say how long only the first words count, and advice may be missing. A command must succeed, unless the next one
asks for its status. Policies are checked; blocks of other kinds are refused, since a command could hide in one.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

TIMED = "spillway: cost:", "spillway: change:", "The job needed"
IF_SLOW = "Advice:"
NUMBER = r"\d+(\\\.\d+)?(\\ (B|KiB|MiB|GiB)\b)?"
failed = promises = 0


def complain(page, what):
    global failed
    failed += 1
    print(f"FAILED: {page}: {what}")


def blocks(text):
    for kind, body in re.findall(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        yield kind, body.splitlines()


def commands(lines):
    """Of a block: pairs of a command and the lines that it prints."""
    found = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> "):
            found[-1] = (found[-1][0] + "\n" + line[2:], found[-1][1])
        else:
            found[-1][1].append(line)
    return found


def squeeze(line):
    return re.sub(r" +", " ", line.strip())


def pattern(line, exact):
    line = squeeze(line)
    for begin in TIMED:
        if line.startswith(begin):
            return re.escape(begin) + ".*"
    made = re.escape(line).replace(r"\.\.\.", ".*")
    return made if exact else re.sub(NUMBER, r"[\\d.]+( (B|KiB|MiB|GiB))?", made)


def run_all(build, source, listed):
    """Runs the commands one after the other in one shell; returns what each printed, and its status."""
    with tempfile.TemporaryDirectory(prefix="docs_test.") as folder:
        for name, target in ("build", build), ("test", os.path.join(source, "test")), ("docs", os.path.join(source, "docs")):
            os.symlink(target, os.path.join(folder, name))
        results = os.path.join(folder, ".results")
        os.mkdir(results)
        script = "last=0\n"
        for i, (command, _) in enumerate(listed):
            with open(f"{results}/{i}.command", "w") as file:
                file.write(command + "\n")
            script += f'(exit $last); eval "$(cat {results}/{i}.command)" >{results}/{i}.out 2>&1 </dev/null\n'
            script += f"last=$?; echo $last >{results}/{i}.status\n"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPILLWAY", "SIM_", "JUPYTER", "LD_"))}
        environment.update(XDG_RUNTIME_DIR=folder, HOME=folder, LC_ALL="C", PYTHONDONTWRITEBYTECODE="1",
                           ASAN_OPTIONS="detect_leaks=0:" + os.environ.get("ASAN_OPTIONS", ""))
        subprocess.run(["bash", "-c", script], cwd=folder, env=environment, check=False)
        for i in range(len(listed)):
            with open(f"{results}/{i}.out", errors="replace") as out, open(f"{results}/{i}.status") as status:
                yield out.read().splitlines(), int(status.read())


def check_page(build, source, page):
    global promises
    with open(page) as file:
        text = file.read()
    listed = []
    for kind, lines in blocks(text):
        if kind == "console":
            listed += commands(lines)
        elif kind == "yaml":
            promises += 1
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as policy:
                policy.write("\n".join(lines) + "\n")
                policy.flush()
                if subprocess.run([f"{build}/spillway", "check", policy.name], stdout=subprocess.DEVNULL).returncode:
                    complain(page, f"a policy has an error: {lines}")
        else:
            complain(page, f"a block of the kind {kind!r}; commands are console, policies yaml")
    if len(listed) < 3:
        complain(page, f"only {len(listed)} commands were found")
    for i, ((command, wanted), (got, status)) in enumerate(zip(listed, run_all(build, source, listed))):
        promises += 1
        asked = i + 1 < len(listed) and listed[i + 1][0] == "echo $?"
        if status and not asked:
            complain(page, f"$ {command}: status {status}:\n" + "\n".join(got))
        squeezed = [squeeze(line) for line in got]
        exact = "test/data" in command
        for line in wanted if exact else [line for line in wanted if squeeze(line) != IF_SLOW]:
            if line.strip() and not any(re.fullmatch(pattern(line, exact), g) for g in squeezed):
                complain(page, f"$ {command}: does not print\n  {line}\nbut\n" + "\n".join("  " + g for g in got))


for page in sys.argv[3:]:
    check_page(os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2]), page)
print(f"{promises} promises, {failed} failed")
sys.exit(failed != 0)
