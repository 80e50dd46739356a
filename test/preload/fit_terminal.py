# SPDX-License-Identifier: Apache-2.0
"""fit_terminal.py POLL_LIBRARY WORDS COMMAND...: runs the command on a terminal, lets it end by a line once it has said
WORDS, and prints what it said. Exit status: that of the command, or 99 if it ended without having said so."""
import os
import pty
import sys

child, terminal = pty.fork()
if child == 0:
    os.environ["LD_PRELOAD"] = sys.argv[1]
    os.execvp(sys.argv[3], sys.argv[3:])
text, told = b"", False
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:  # the other end is closed
        break
    if not part:
        break
    text += part
    if not told and sys.argv[2].encode() in text:
        told = True
        os.write(terminal, b"\n")
status = os.waitpid(child, 0)[1]
sys.stdout.write(text.decode().replace("\r\n", "\n"))
sys.exit(os.waitstatus_to_exitcode(status) if told else 99)
