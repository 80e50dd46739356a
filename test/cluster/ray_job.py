# SPDX-License-Identifier: Apache-2.0
"""ray_job.py RANKS COMMAND...: a task of Ray for each rank, in a worker of its own that is started with the library and the
rank in its environment; COMMAND runs in it. Ends with the number of ranks that failed."""

import os
import subprocess
import sys

import ray


@ray.remote(num_cpus=1)
def rank(command):
    return subprocess.run(command).returncode


def environment(number):
    given = {name: value for name, value in os.environ.items() if name.startswith(("SPILLWAY_", "SIM_", "CLUSTER_"))}
    return {**given, "RANK": str(number), "WORLD_SIZE": sys.argv[1], "LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"],
            "LD_PRELOAD": os.environ["CLUSTER_LIBRARY"]}


ranks = int(sys.argv[1])
ray.init(num_cpus=ranks, include_dashboard=False, log_to_driver=False, _temp_dir=os.environ["CLUSTER_TEMPORARY"])
results = ray.get([rank.options(runtime_env={"env_vars": environment(number)}).remote(sys.argv[2:])
                   for number in range(ranks)])
print("ray: exit statuses", results)
sys.exit(sum(status != 0 for status in results))
