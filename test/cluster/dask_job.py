# SPDX-License-Identifier: Apache-2.0
"""dask_job.py SCHEDULER RANKS COMMAND...: COMMAND on each of the workers, which are processes under Spillway that were started
with their ranks. Ends with the number of ranks that failed."""

import subprocess
import sys

from distributed import Client


def rank(command):
    return subprocess.run(command).returncode


with Client(sys.argv[1], timeout=120) as client:
    client.wait_for_workers(int(sys.argv[2]), timeout=120)
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    results = client.gather([client.submit(rank, sys.argv[3:], workers=[worker], allow_other_workers=False, pure=False)
                             for worker in workers])
    print("dask: exit statuses", results)
    sys.exit(sum(status != 0 for status in results))
