"""Are the lines that ask for memory named? On a real GPU: python lines_bars.py --build BUILD --log FILE [--seconds N] [PART...]

  known   a program with known lines (lines_job.py): the part of each line's bytes that is found under its name
  gpt     a GPT training job: the part of all bytes that is under a line of its file

Rows and exit status: parts.py.
"""
import json
import os
import subprocess

import bars
import parts

FORWARD_BAR, ALL_BAR = 0.95, 0.8


class Lines(parts.Parts):
    PARTS = {"known": 90, "gpt": 90}
    DEFAULT = ["known", "gpt"]

    def sites(self, name, command):
        """What the report of a run says by site; none if there is no report."""
        path = os.path.join(self.folder.name, f"{name}.trace")
        result, _ = self.run(name, command, {}, {"SPILLWAY_TRACE": path})
        if result.status != "ok" or not os.path.exists(path):
            self.add(f"{name}: ran", 0, 1, result.status, least=True)
            return []
        tool = [self.tool("spillway"), "report", "--json", path]
        answer = subprocess.run(tool, capture_output=True, text=True, check=False)
        sites = json.loads(answer.stdout)["sites"] if answer.returncode == 0 else []
        self.log(" ".join(tool), "\n".join(f"{site['bytes'] >> 20} MiB {site['name']}" for site in sites) or answer.stderr)
        return sites

    def known(self):
        sites = self.sites("known", self.python("lines_job.py"))
        with open(os.path.join(self.options.scripts, "lines_job.py")) as file:
            wanted = bars.asked_by_line(file.read())
        found = bars.bytes_by_line(sites, "lines_job.py")
        if not sites:
            return
        for part in ("setup", "forward", "optimizer"):
            lines = {line: size for line, (of, size) in wanted.items() if of == part}
            named = sum(min(found.get(line, 0), size) for line, size in lines.items())
            missing = [f"{line}: {found.get(line, 0) >> 20} of {size >> 20}" for line, size in lines.items()
                       if found.get(line, 0) < size]
            self.add(f"{part}: bytes under their line", named / sum(lines.values()), FORWARD_BAR if part == "forward" else None,
                     f"of {sum(lines.values()) >> 20} MiB in {len(lines)} lines {' '.join(missing)}", least=True)
        self.all("known", found)

    def gpt(self):
        sites = self.sites("gpt", self.python("gpt.py", "1536", "16", "8", "3"))
        if sites:
            self.all("gpt", bars.bytes_by_line(sites, "gpt.py"))

    def all(self, name, found):
        total, other = sum(found.values()), found.get(None, 0)
        self.add(f"{name}: bytes under a line of the program", (total - other) / total, ALL_BAR,
                 f"of {total >> 20} MiB; {other >> 20} MiB elsewhere", least=True)


parts.main(Lines, parts.parser())
