#!/usr/bin/env python3
"""torch_snapshot.py: a memory snapshot of PyTorch's as a log of allocations that `spillway replay` reads.

    python3 torch_snapshot.py [--tensors] snapshot.pickle out.csv

The snapshot is what torch.cuda.memory._dump_snapshot() writes, best after _record_memory_history(). Without --tensors the
log is of segments, what PyTorch asks the driver for: that is what Spillway sees. With --tensors it is of what the program
asks PyTorch for. PyTorch is not needed.

A pickle can run anything when it is read. This reader builds numbers, text, lists, tuples and dictionaries and nothing
else: whatever names a class or a function is refused before it is looked up, and reading may take so much memory, for the
size of the file, and no more.

Exit status: 0 written, 1 it could not be written, 2 wrong usage, or not a snapshot.
"""
import os
import pickle
import resource
import sys

FILE_MOST = 8 << 30
EVENTS_MOST = 50_000_000
DEVICES = 63
ADDRESS_MOST = 1 << 64
BYTES_MOST = 16 << 40


class Refused(Exception):
    """The file is no snapshot, or wants more than one may."""


class PlainUnpickler(pickle.Unpickler):
    """Numbers, text and containers of them."""

    def find_class(self, module, name):
        raise Refused(f"it names {str(module)[:40]!r}.{str(name)[:40]!r}; a snapshot has plain data alone")

    def persistent_load(self, pid):
        raise Refused("it refers to something outside itself; a snapshot has plain data alone")


def bound_memory(size):
    """Python takes some sixty bytes for each of such a file; one number in it could ask for any amount."""
    most = (1 << 30) + 100 * size
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def load(path):
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > FILE_MOST:
            raise Refused("it is too large")
        bound_memory(size)
        try:
            return PlainUnpickler(file).load()
        except Refused:
            raise
        except MemoryError:
            raise Refused("it wants more memory than a snapshot of its size needs") from None
        except Exception as error:  # a damaged pickle ends in one of a dozen exceptions
            raise Refused(f"it is no whole pickle ({type(error).__name__})") from None


def field(entry, name, kind):
    value = entry.get(name)
    if type(value) is not kind:
        raise Refused(f"an entry has no {name!r}")
    return value


def number(entry, name, most):
    value = field(entry, name, int)
    if not 0 <= value < most:
        raise Refused(f"{name!r} of an entry is out of range")
    return value


def listed(value, what):
    if type(value) is not list:
        raise Refused(f"{what} is no list")
    return value


def entries_of(snapshot):
    """(device, entry) of each trace, in its order."""
    traces = listed(snapshot.get("device_traces", []), "device_traces")
    if len(traces) > DEVICES:
        raise Refused("it is of too many devices")
    n = 0
    for device, trace in enumerate(traces):
        for entry in listed(trace, "a device's trace"):
            if type(entry) is not dict:
                raise Refused("an entry is no dictionary")
            n += 1
            if n > EVENTS_MOST:
                raise Refused("it has too many entries")
            yield device, entry


def live_at_end(snapshot, tensors):
    """(device, address, bytes) of what is there when the snapshot is taken."""
    for segment in listed(snapshot.get("segments", []), "segments"):
        if type(segment) is not dict:
            raise Refused("a segment is no dictionary")
        device = number(segment, "device", DEVICES)
        address = number(segment, "address", ADDRESS_MOST)
        if not tensors:
            yield device, address, number(segment, "total_size", BYTES_MOST)
            continue
        for block in listed(segment.get("blocks", []), "blocks"):
            if type(block) is not dict:
                raise Refused("a block is no dictionary")
            size = number(block, "size", BYTES_MOST)
            if field(block, "state", str) == "active_allocated":
                yield device, block["address"] if type(block.get("address")) is int else address, size
            address += size


def events_of(snapshot, tensors):
    """(action, device, address, bytes), what was there before the trace began first."""
    begins, ends = ("alloc",), ("free_completed",)
    if not tensors:
        begins, ends = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
    events, live, before = [], {}, {}
    for device, entry in entries_of(snapshot):
        action = field(entry, "action", str)
        if action == "oom":
            events.append(("allocate failure", device, 0, number(entry, "size", BYTES_MOST)))
        if action not in begins + ends:
            continue
        address, size = number(entry, "addr", ADDRESS_MOST), number(entry, "size", BYTES_MOST)
        if action in begins:
            live[device, address] = size
            events.append(("allocate", device, address, size))
        else:
            if live.pop((device, address), None) is None:
                before[device, address] = size
            events.append(("free", device, address, size))
    for device, address, size in live_at_end(snapshot, tensors):
        if (device, address) not in live:
            before.setdefault((device, address), size)
    first = [("allocate", device, address, size) for (device, address), size in before.items()]
    return first + events


def write(path, events):
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="ascii") as file:
        file.write("Action,Pointer,Size,Device\n")
        for action, device, address, size in events:
            file.write(f"{action},{address:#x},{size},{device}\n")


def main(arguments):
    if "-h" in arguments or "--help" in arguments:
        print(__doc__)
        return 0
    tensors = "--tensors" in arguments
    paths = [argument for argument in arguments if argument != "--tensors"]
    if len(paths) != 2 or any(path.startswith("-") for path in paths):
        print("usage: torch_snapshot.py [--tensors] snapshot.pickle out.csv", file=sys.stderr)
        return 2
    try:
        snapshot = load(paths[0])
        if type(snapshot) is not dict or ("segments" not in snapshot and "device_traces" not in snapshot):
            raise Refused("it has neither segments nor device_traces")
        events = events_of(snapshot, tensors)
        if not events:
            raise Refused("nothing was allocated in it; was _record_memory_history() called?")
    except Refused as why:
        print(f"torch_snapshot.py: {paths[0]}: {why}", file=sys.stderr)
        return 2
    except MemoryError:
        print(f"torch_snapshot.py: {paths[0]}: it wants more memory than a snapshot of its size needs", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"torch_snapshot.py: {error}", file=sys.stderr)
        return 2
    try:
        write(paths[1], events)
    except FileExistsError:
        print(f"torch_snapshot.py: {paths[1]} is there already, and is not overwritten", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"torch_snapshot.py: {error}", file=sys.stderr)
        return 1
    print(f"{paths[1]}: {len(events)} events; next: spillway replay {paths[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
