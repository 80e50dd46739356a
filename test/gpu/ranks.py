# SPDX-License-Identifier: Apache-2.0
"""Starts the ranks of a job on one machine. It does what torchrun does for one, without a PyTorch of its own."""
import os
import socket
import subprocess
import sys


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def environment(rank, ranks, port):
    """What a launcher sets for a rank, and what this one was given for that rank alone: RANK1_NAME is NAME in rank 1."""
    own = f"RANK{rank}_"
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
            **{name.removeprefix(own): value for name, value in os.environ.items() if name.startswith(own)}}


def start(ranks):
    """In a process that is no rank: runs its command once for each rank, and exits when all of them have ended, with the
    first status that is not 0. None is ended because another one has failed. In a rank it returns."""
    if "RANK" in os.environ:
        return
    port = free_ports(1)[0]
    children = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **environment(rank, ranks, port)})
                for rank in range(ranks)]
    codes = [child.wait() for child in children]
    sys.exit(next((code if code > 0 else 128 - code for code in codes if code), 0))
