# SPDX-License-Identifier: Apache-2.0
"""pod_check.py POD DOCKERFILE: are docs/cluster/pod.json and the Dockerfile what they say? The keys of the manifest are those of
the Pod of Kubernetes' API v1 that it uses; each volume that is mounted is there, and the library that is preloaded lies where
the init container copies it. Neither has been run. Prints the first rule that is broken, and ends with 1."""

import json
import re
import sys


def need(truth, what):
    if not truth:
        sys.exit(f"no pod: {what}")


# Of each kind of object: its keys, and what they are; a list has one element that says what all are.
SECURITY = {"runAsNonRoot": bool, "runAsUser": int, "runAsGroup": int, "seccompProfile": {"type": str}}
CONTAINER = {"name": str, "image": str, "command": [str], "env": [{"name": str, "value": str}],
             "resources": {"limits": dict}, "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}],
             "securityContext": {**SECURITY, "allowPrivilegeEscalation": bool, "capabilities": {"drop": [str]}}}
POD = {"apiVersion": str, "kind": str, "metadata": {"name": str},
       "spec": {"restartPolicy": str, "securityContext": {**SECURITY, "fsGroup": int}, "initContainers": [CONTAINER],
                "containers": [CONTAINER],
                "volumes": [{"name": str, "emptyDir": {"medium": str, "sizeLimit": str}}]}}


def fits(value, shape, where):
    if isinstance(shape, list):
        need(isinstance(value, list), f"{where} is no list")
        for element in value:
            fits(element, shape[0], f"{where}[]")
    elif isinstance(shape, dict):
        need(isinstance(value, dict), f"{where} is no object")
        for key in value:
            need(key in shape, f"{where} has {key}, which is not known")
            fits(value[key], shape[key], f"{where}.{key}")
    else:
        need(type(value) is shape, f"{where} is no {shape.__name__}")


pod = json.load(open(sys.argv[1]))
fits(pod, POD, "the pod")
need((pod["apiVersion"], pod["kind"]) == ("v1", "Pod"), "it is no Pod of v1")
spec = pod["spec"]
volumes = {volume["name"]: volume["emptyDir"] for volume in spec["volumes"]}
for size in [v["sizeLimit"] for v in volumes.values()] + [spec["containers"][0]["resources"]["limits"]["memory"]]:
    need(re.fullmatch(r"[0-9]+[KMGT]i", size), f"{size!r} is no quantity")
names = [container["name"] for container in spec["initContainers"] + spec["containers"]]
need(len(set(names)) == len(names), "a name is there twice")
for container in spec["initContainers"] + spec["containers"]:
    need(re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", container["name"]), f"{container['name']!r} is no name")
    for mount in container["volumeMounts"]:
        need(mount["name"] in volumes, f"there is no volume {mount['name']}")
main, first = spec["containers"][0], spec["initContainers"][0]
preload = next(variable["value"] for variable in main["env"] if variable["name"] == "LD_PRELOAD")
shared = next(mount["mountPath"] for mount in main["volumeMounts"] if mount["name"] == "spillway")
need(preload == f"{shared}/libspillway.so", "the library that is preloaded is not in the volume")
filled = next(mount["mountPath"] for mount in first["volumeMounts"] if mount["name"] == "spillway")
need(first["command"][-1] == f"{filled}/", "the init container copies elsewhere")
need(not any(variable["name"] == "LD_PRELOAD" for variable in first.get("env", [])), "the init container preloads it, too")
need(volumes["shm"]["medium"] == "Memory" and any(m["mountPath"] == "/dev/shm" for m in main["volumeMounts"]),
     "/dev/shm is no memory")

docker = [line for line in open(sys.argv[2]).read().splitlines() if line and not line.startswith("#")]
for line in docker:
    need(line.split()[0] in ("FROM", "RUN", "COPY", "CMD"), f"Dockerfile: {line!r} is not known")
need(docker[0].startswith("FROM "), "Dockerfile: it begins with no FROM")
copied = next(line for line in docker if "--from=build" in line)
need("/build/libspillway.so" in copied and copied.endswith(first["command"][2].removesuffix(".")),
     "Dockerfile: the library is not where the init container takes it")
