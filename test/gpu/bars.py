# SPDX-License-Identifier: Apache-2.0
"""What the bars of spilling are made of: pure functions over what programs printed (tested by bars_test.py).

A job prints "each STEP MILLISECONDS LOSS" after every step, and its need: "need BYTES" or "reserved N MiB".
"""
import json
import random
import re
import statistics
from dataclasses import dataclass, field

from harness import UNITS

# Belady's bytes per step of gpt.py 1536 16 8, whole allocations (docs/facts.md, Moving memory), in 1e9, by ratio.
GPT_BYTES = {1.25: 5.96, 1.5: 10.0, 2.0: 17.1}
# The same of jobs of spill_jobs.py at 1.5, of which the bars are (docs/lab/2026-11-27-measurements.md, Other jobs). By births it is less.
JOB_BYTES = {"twice": 10.6, "conv": 5.2}
STEADY_SLACK = 1.15  # a step is steady when it takes no longer than this times the median of the last half


@dataclass
class Steps:
    ms: list = field(default_factory=list)
    losses: list = field(default_factory=list)
    need: int = 0  # bytes

    @property
    def complete(self):
        return len(self.ms) > 0


def steps_of(output):
    """The steps of a job, as far as it came."""
    steps = Steps()
    for line in output.splitlines():
        words = line.split()
        if len(words) == 4 and words[0] == "each" and words[1].isdigit():
            steps.ms.append(float(words[2]))
            steps.losses.append(words[3])
        elif len(words) >= 2 and words[0] == "need" and words[1].isdigit():
            steps.need = int(words[1])
    reserved = re.search(r"\breserved (\d+) MiB", output)
    if reserved:
        steps.need = int(reserved[1]) << 20
    return steps


def texts_of_jobs(output):
    """[(name, what it printed)] of a program that does several jobs, each of which begins with a line "job NAME"."""
    parts = re.split(r"^job (\S+)$", output, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2]))


def jobs_of(output):
    """{name: Steps} of such a program."""
    return {name: steps_of(text) for name, text in texts_of_jobs(output)}


def calls_of(output):
    """The same of its lines "calls FUNCTION COUNT MICROSECONDS": {name: {function: (count, microseconds)}}. A function that
    waits for the GPU takes what the GPU takes, and is left out."""
    return {name: {function: (float(count), float(us))
                   for function, count, us in re.findall(r"^calls (\S+) (\S+) (\S+)$", text, re.MULTILINE)
                   if "Synchronize" not in function} for name, text in texts_of_jobs(output)}


def nccl_rows(output):
    """Of a program of nccl-tests: [(bytes, GB/s out of place, wrong, GB/s in place, wrong)] of bus bandwidths; a number of
    wrong elements is None where none were looked at."""
    number = r"([\d.e+]+|N/A)"
    found = re.findall(rf"^ +(\d+) +\d+ +\w+ +(?:\w+ +)?-?\d+ +{number} +{number} +{number} +{number} +{number} +{number} +{number} "
                       rf"+{number}", output, re.MULTILINE)
    return [(int(size), float(out), None if out_wrong == "N/A" else int(float(out_wrong)),
             None if place == "N/A" else float(place), None if place_wrong == "N/A" else int(float(place_wrong)))
            for size, _, _, out, out_wrong, _, _, place, place_wrong in found]


def ratio(own, native, tries=2000):
    """(ratio of the medians, least, most) with what 95 of 100 ratios lie between of runs drawn again from these."""
    draw = random.Random(1)
    found = sorted(statistics.median(draw.choices(own, k=len(own))) / statistics.median(draw.choices(native, k=len(native)))
                   for _ in range(tries))
    return statistics.median(own) / statistics.median(native), found[tries // 40], found[-1 - tries // 40]


def last_half(values):
    return values[len(values) // 2:]


def spread(values):
    """(median, least, most)"""
    return statistics.median(values), min(values), max(values)


def steady(ms):
    """(index of the first steady step, median of the steady steps). Steady is what two steps in a row begin, and what
    three of four keep to from there on; a lone slow step does not end it."""
    median = statistics.median(last_half(ms))
    limit = STEADY_SLACK * median
    for first in range(len(ms)):
        rest = ms[first:]
        good = sum(t <= limit for t in rest)
        if rest[0] <= limit and (len(rest) == 1 or rest[1] <= limit) and good >= 0.75 * len(rest):
            return first, statistics.median(rest)
    return len(ms), median


def lost_ms(ms, native_ms, first, median):
    """Time lost until the steady state: what the steps before took more than a steady one, less what the native job's
    first steps (loading of kernels) took more than its own."""
    own = statistics.median(last_half(native_ms))
    return sum(t - median for t in ms[:first]) - sum(t - own for t in native_ms[:first])


def reference_ms(in_memory_ms, gigabytes, pair_gb_s):
    """The least that a step can take: the computing, or the bytes (1e9) each way over the link."""
    return max(in_memory_ms, gigabytes / pair_gb_s * 1e3)


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def losses_equal(natives, other):
    """Are the losses those of native runs, as far as these (lists of losses, two at least) agree? (good, text)"""
    n = min(len(losses) for losses in [*natives, other])
    if n == 0:
        return False, "no losses"
    if any(other[:n] == native[:n] for native in natives):
        return True, f"{n} equal bit for bit"
    first = natives[0][:n]
    if all(native[:n] == first for native in natives):
        where = next(i for i in range(n) if other[i] != first[i])
        return False, f"DIFFER at step {where + 1}: {other[where]} for {first[where]}"
    rows = [[number(t) for t in row] for row in zip(*(losses[:n] for losses in [*natives, other]))]
    if any(v is None or v != v for row in rows for v in row):
        return False, "a loss is no number"
    own = max(max(row[:-1]) - min(row[:-1]) for row in rows)
    worst = max(min(abs(row[-1] - v) for v in row[:-1]) for row in rows)
    # Few runs tell little of how far another may go; data gone wrong is another order of magnitude.
    return worst <= 4 * own, f"{'within' if worst <= 4 * own else 'DIFFER:'} x{worst / own:.1f} of native spread {own:.1e}"


def lines_of(output):
    """"name median least most unit" lines of a measuring program, by name."""
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 5 and all(number(w) is not None for w in words[1:4]):
            found[words[0]] = tuple(float(w) for w in words[1:4])
    return found


def ranks_bar(alone, both, bar=1.15, apart=0.95):
    """Of two GPUs that move at once / one: (bar, what is to be said). alone, both: GB/s of one bare link, without and with
    the other busy; None: not measured. Links that share something, be it the host's memory, allow no better than their
    rates: then there is no bar but that."""
    if not alone or not both:
        return bar, "whether the links are separate was not measured"
    said = f"bare pair {alone:.1f} GB/s alone, {both:.1f} with the other busy"
    return (bar, said) if both >= apart * alone else (None, f"{said}: shared, which allows {alone / both:.2f}")


def belady_of(output, need, ratios):
    """What replay's JSON says of the budgets need / ratio, by ratio: GB in per step at least. Budgets that were not asked for
    are in it, too, and those that were are rounded to whole units of 2 MiB."""
    try:
        answers = [answer for answer in json.loads(output)["budgets"] if answer["least_bytes_in"] is not None]
    except (ValueError, KeyError):
        return {}
    found = {}
    for ratio in ratios:
        nearest = min(answers, key=lambda answer: abs(answer["budget"] - need / ratio), default=None)
        if nearest and abs(nearest["budget"] - need / ratio) <= 2 << 20:
            found[round(ratio, 3)] = nearest["least_bytes_in"] / 1e9
    return found


def bytes_in(text):
    found = re.fullmatch(r"([\d.]+) ?([KMGT]?i?B)", text.strip())
    return float(found[1]) * UNITS[found[2]] if found else None


def host_peak(output, where="host"):
    """Bytes: the peak of host-backed memory by the shim's summary; None: there is none."""
    found = re.findall(rf"^spillway: +{where} +.*?, +([\d.]+ ?[KMGT]?i?B)\b at most", output, re.MULTILINE)
    return max((bytes_in(text) or 0 for text in found), default=None)


def device_peak(output):
    """The same of device memory."""
    return host_peak(output, "device")


def settled_rate(samples, ms):
    """GB/s, both ways together, while the link was busy in the last steps of a run, which took ms each; None: not known.
    samples: harness.moved_samples()'s. The last step ends when the last memory has moved, within one sample."""
    last = next((i for i, sample in enumerate(samples) if sample[1] == samples[-1][1]), 0)
    begin = next((i for i, sample in enumerate(samples) if sample[0] >= samples[last][0] - sum(ms) / 1e3), last)
    busy = samples[last][2] - samples[begin][2] if samples else 0
    return (samples[last][1] - samples[begin][1]) / busy / 1e9 if busy > 0 else None


def a_step(samples, ms):
    """What each counter grew by in one of the last steps of a run, which took ms each; None: not known. samples:
    harness.watch_counters()'s. The last step ends when the last memory has moved, within one sample."""
    moved_in = [counters["moved_in_bytes"] for _, counters in samples]
    last = next((i for i, moved in enumerate(moved_in) if moved == moved_in[-1]), 0)
    begin = next((i for i, sample in enumerate(samples) if sample[0] >= samples[last][0] - sum(ms) / 1e3), last)
    if begin >= last:
        return None
    steps = (samples[last][0] - samples[begin][0]) / statistics.mean(ms) * 1e3
    return {name: (value - samples[begin][1].get(name, 0)) / steps for name, value in samples[last][1].items()}


def copied(step):
    """(1e9 bytes in, 1e9 bytes out) that were copied, of what a_step() says: what was dead moved without a copy."""
    dead_in = step["dead_in_bytes"]
    return (step["moved_in_bytes"] - dead_in) / 1e9, (step["moved_out_bytes"] - step["dead_bytes"] + dead_in) / 1e9


def asked_by_line(source):
    """{line: (part, bytes)} of the comments "asks PART MIB" in a job's source."""
    found = {}
    for number, line in enumerate(source.splitlines(), 1):
        said = re.search(r"# asks (\w+) (\d+)(?:, backward \d+)?$", line.rstrip())
        if said:
            found[number] = said[1], int(said[2]) << 20
    return found


def asked_in_backward(source):
    """{line: bytes} of the comments "# ... backward MIB" in a job's source."""
    found = {}
    for number, line in enumerate(source.splitlines(), 1):
        said = re.search(r"#.* backward (\d+)$", line.rstrip())
        if said:
            found[number] = int(said[1]) << 20
    return found


IN_BACKWARD = " [backward]"  # of a line of the forward pass, for which the backward pass made it


def bytes_by_line(sites, name, *figures, backward=False):
    """Bytes by line of the file of that name, of the rows of a report by site; under "backward" those of that site, and
    under None those of all others. What the backward pass made for a line is left out, or with backward nothing else is
    counted. figures: what of a row is added, "bytes" if nothing is named."""
    found = {}
    for site in sites:
        if site["name"].endswith(IN_BACKWARD) != backward:
            continue
        said = re.match(re.escape(name) + r":(\d+) in ", site["name"])
        line = int(said[1]) if said else site["name"] if site["name"] == "backward" else None
        found[line] = found.get(line, 0) + sum(site[figure] for figure in figures or ["bytes"])
    return found


def moved(output):
    """(bytes in, bytes out, seconds with a copy on its way or None) by the shim's summary; None where it does not say:
    "spillway:   moved 12.3 GiB to the device and 12.0 GiB to the host, ..., link busy 1.23 s" (the last is optional), or
    "... to the device, 2.0 GiB to the host and 10.0 GiB to other GPUs, ...": both are bytes out."""
    size = r"([\d.]+ ?[KMGT]?i?B)"
    found = re.findall(rf"^spillway: +moved {size} to the device(?:,| and) {size} to the host(?: and {size} to other GPUs)?"
                       r"(.*)$", output, re.MULTILINE)
    if not found:
        return None
    came, went, lent, rest = max(found, key=lambda line: bytes_in(line[0]))
    busy = re.search(r"busy ([\d.]+) (ms|s)\b", rest)
    seconds = float(busy[1]) / (1000 if busy[2] == "ms" else 1) if busy else None
    return bytes_in(came), bytes_in(went) + (bytes_in(lent) if lent else 0), seconds


@dataclass
class Bar:
    part: str
    what: str
    value: float  # None: not measured
    bar: float  # None: for information
    text: str = ""  # the spread and whatever explains the value
    least: bool = False  # the bar is a least, not a most
    near: float = None  # the best end of the value's spread: reaches the bar, though the median does not
    unit: str = ""

    @property
    def verdict(self):
        if self.value is None:
            return "n/a"
        if self.bar is None:
            return ""
        if self.meets(self.value):
            return "pass"
        return "within spread" if self.near is not None and self.meets(self.near) else "MISS"

    def meets(self, value):
        return value >= self.bar if self.least else value <= self.bar

    def row(self):
        value = "n/a" if self.value is None else f"{self.value:.3g}{self.unit}" if abs(self.value) < 1000 \
            else f"{self.value:.0f}{self.unit}"
        bar = "" if self.bar is None else f"{'>=' if self.least else '<='} {self.bar:g}{self.unit}"
        return [self.part, self.what, value, bar, self.verdict, self.text]


HEAD = ["part", "what", "value", "bar", "verdict", "spread, remarks"]
