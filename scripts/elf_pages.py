# SPDX-License-Identifier: Apache-2.0
"""elf_pages.py FILE...: makes ELF files usable under an emulator (qemu 8.2, qemu-aarch64 -p) that gives programs pages of 64 KiB on
a machine whose own are smaller. It takes what of a page lies behind the end of a file, or behind the end of the memory of a
program that it loads itself, for no memory: system calls get EFAULT there. Files are filled up to whole pages, and so is what
writable segments have in memory of those that the emulator loads, which are dynamic linkers and programs."""

import struct
import sys

PAGE = 64 << 10
LOAD, WRITABLE = 1, 2


def whole(size):
    return -(-size // PAGE) * PAGE


for name in sys.argv[1:]:
    with open(name, "r+b") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            continue
        first, = struct.unpack_from("<Q", head, 32)
        bytes_each, count = struct.unpack_from("<HH", head, 54)
        for at in range(first, first + count * bytes_each, bytes_each):
            file.seek(at)
            kind, flags, _, address, _, _, in_memory, _ = struct.unpack("<IIQQQQQQ", file.read(56))
            if kind == LOAD and flags & WRITABLE:
                file.seek(at + 40)
                file.write(struct.pack("<Q", whole(address + in_memory) - address))
        file.truncate(whole(file.seek(0, 2)))
