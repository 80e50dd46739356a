# SPDX-License-Identifier: Apache-2.0
"""Are the lines named at which memory is asked for and tensors are born? On a real GPU:
python lines_bars.py --build BUILD --log FILE [--seconds N] [PART...]

  known   a program with known lines (lines_job.py): the part of each line's bytes that is found under its name, and of
          what the backward pass makes for it; of the latter only so much counts as it is known to make
  gpt     a GPT training job: the part of all bytes that is under a line of its file
  moved   the same of the bytes that move when it has a budget of 1 / 1.5 of its need, in exact and fast
  cost    a step of it that fits, with all births named as far as their share of the time allows, over the native step

Bytes are those of tensors where the report has them (an allocator reports births), and otherwise those of allocations. The
backward pass runs in threads without a line of Python: what it makes is under the line of the forward pass for which it does,
where that is known.

Rows and exit status: parts.py.
"""
import json
import os
import statistics
import subprocess

import bars
import parts

FORWARD_BAR, ALL_BAR, COST_BAR = 0.95, 0.8, 1.01
GPT = ("1536", "16", "8")


class Lines(parts.Parts):
    PARTS = {"known": 90, "gpt": 90, "moved": 300, "cost": 300}
    DEFAULT = ["known", "gpt", "moved", "cost"]

    def report(self, name, command, settings=None):
        """What the report of a run says, as JSON; None if there is none."""
        path = os.path.join(self.folder.name, f"{name}.trace")
        result, _ = self.run(name, command, settings or {}, {"SPILLWAY_TRACE": path})
        if result.status != "ok" or not os.path.exists(path):
            self.add(f"{name}: ran", 0, 1, result.status, least=True)
            return None
        tool = [self.tool("spillway"), "report", "--json", path]
        answer = subprocess.run(tool, capture_output=True, text=True, check=False)
        os.remove(path)
        if answer.returncode != 0:
            self.log(" ".join(tool), answer.stderr)
            self.add(f"{name}: report", 0, 1, answer.stderr[:100], least=True)
            return None
        report = json.loads(answer.stdout)
        self.log(" ".join(tool), "\n".join(
            f"{site['bytes'] >> 20} MiB asked for, {site['tensor_bytes'] >> 20} MiB of tensors, "
            f"{site['bytes_in'] + site['bytes_out'] >> 20} MiB moved: {site['name']}" for site in report["sites"]))
        return report

    def born(self, report, name):
        """(bytes by line, those that the backward pass made for it, what they are of)"""
        tensors = report["total"]["tensor_bytes"]
        figure = "tensor_bytes" if tensors else "bytes"
        found, backward = (bars.bytes_by_line(report["sites"], name, figure, backward=which) for which in (False, True))
        if tensors:
            found[None] = tensors - sum(size for line, size in found.items() if line is not None) - sum(backward.values())
        return found, backward, "tensors" if tensors else "allocations"

    def known(self):
        report = self.report("known", self.python("lines_job.py"))
        if not report:
            return
        with open(os.path.join(self.options.scripts, "lines_job.py")) as file:
            source = file.read()
        wanted, of_backward = bars.asked_by_line(source), bars.asked_in_backward(source)
        found, backward, what = self.born(report, "lines_job.py")
        for part in ("setup", "forward", "optimizer"):
            lines = {line: size for line, (of, size) in wanted.items() if of == part}
            self.under(part, what, found, lines, FORWARD_BAR if part == "forward" else None)
        right = self.under("backward", what, backward, of_backward, None)
        wrong = {None: sum(backward.values()) - sum(right.values())}
        self.all("known", found, {**right, **wrong}, f"bytes of {what}")

    def under(self, part, what, found, wanted, bar):
        """The bytes by line that were found of those that were wanted."""
        right = {line: min(found.get(line, 0), size) for line, size in wanted.items()}
        missing = [f"{line}: {found.get(line, 0) >> 20} of {size >> 20}" for line, size in wanted.items()
                   if found.get(line, 0) < size]
        self.add(f"{part}: bytes of {what} under their line", sum(right.values()) / sum(wanted.values()), bar,
                 f"of {sum(wanted.values()) >> 20} MiB in {len(wanted)} lines {' '.join(missing)}", least=True)
        return right

    def gpt(self):
        report = self.report("gpt", self.python("gpt.py", *GPT, "3"))
        if report:
            found, backward, what = self.born(report, "gpt.py")
            self.all("gpt", found, backward, f"bytes of {what}")

    def moved(self):
        native, steps = self.run("gpt native", self.python("gpt.py", *GPT, "3"))
        if not steps.need:
            self.failed("gpt native: need", 1, native, least=True)
            return
        for mode in "exact", "fast":
            report = self.report(f"gpt {mode} 1.5", self.python("gpt.py", *GPT, "12"), parts.settings(mode, steps.need, 1.5))
            if report:
                moved = [bars.bytes_by_line(report["sites"], "gpt.py", "bytes_in", "bytes_out", backward=which)
                         for which in (False, True)]
                self.all(f"gpt {mode} 1.5", *moved, "moved bytes")

    def cost(self):
        ms = {"native": [], "named": []}
        for turn in range(3):
            for which, settings in ("native", None), ("named", {}):
                result, steps = self.run(f"gpt {which} {turn}", self.python("gpt.py", *GPT, "18", "each"), settings)
                if not steps.complete:
                    self.failed("a step that fits / native", COST_BAR, result)
                    return
                ms[which].append(parts.last_median(steps))
        native, named = (bars.spread(ms[which]) for which in ("native", "named"))
        self.add("a step that fits / native", statistics.median(ms["named"]) / statistics.median(ms["native"]), COST_BAR,
                 "named {:.1f} ({:.1f} .. {:.1f}), native {:.1f} ({:.1f} .. {:.1f}) ms".format(*named, *native))

    def all(self, name, found, backward, what):
        """found: bytes by line; backward: those that the backward pass made for it."""
        made, of_lines = sum(backward.values()), sum(size for line, size in backward.items() if line is not None)
        total, nowhere = sum(found.values()) + made, found.get("backward", 0)
        if not total:
            self.add(f"{name}: {what} under a line of the program", None, ALL_BAR, "there are none", least=True)
            return
        named = sum(size for line, size in found.items() if line not in ("backward", None))
        self.add(f"{name}: {what} under a line of the program", (named + of_lines) / total, ALL_BAR,
                 f"of {total >> 20} MiB; {total - named - of_lines - nowhere >> 20} MiB elsewhere", least=True)
        self.add(f"{name}: {what} of the backward pass", (made + nowhere) / total, None, f"{made + nowhere >> 20} MiB")
        if made + nowhere:
            self.add(f"{name}: {what} of the backward pass under a line of the forward pass", of_lines / (made + nowhere),
                     None, f"{nowhere >> 20} MiB under none", least=True)
        if total > made + nowhere:
            self.add(f"{name}: {what} under a line, of all but the backward pass", named / (total - made - nowhere),
                     None, "", least=True)


parts.main(Lines, parts.parser())
