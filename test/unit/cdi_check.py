# SPDX-License-Identifier: Apache-2.0
"""cdi_check.py FILE: is this a spec of the Container Device Interface that engines take? The rules are those of the
interface's JSON schema (github.com/cncf-tags/container-device-interface, schema/) and of its validation of names and of
edits that are empty (pkg/cdi). Prints the first rule that is broken, and ends with 1."""

import json
import re
import sys


def need(truth, what):
    if not truth:
        sys.exit(f"no spec: {what}")


def keys(value, where, required, allowed=()):
    need(isinstance(value, dict), f"{where} is no object")
    for key in required:
        need(key in value, f"{where} has no {key}")
    for key in value:
        need(key in required or key in allowed, f"{where} has {key}, which the schema does not know")


def texts(value, where):
    need(isinstance(value, list) and all(isinstance(text, str) for text in value), f"{where} is no list of texts")


def edits(value, where):
    keys(value, where, (), ("env", "deviceNodes", "mounts", "hooks"))
    need(any(value.values()), f"{where} is empty")
    texts(value.get("env", []), f"{where}.env")
    for variable in value.get("env", []):
        need(re.fullmatch(r"[^=]+=.*", variable, re.S), f"{where}.env: {variable!r} is no NAME=VALUE")
    for mount in value.get("mounts", []):
        keys(mount, f"{where}.mounts", ("hostPath", "containerPath"), ("options",))  # type: from 0.4.0 on
        for path in mount["hostPath"], mount["containerPath"]:
            need(isinstance(path, str) and path.startswith("/"), f"{where}.mounts: {path!r} is no full path")
        texts(mount.get("options", []), f"{where}.mounts.options")


spec = json.load(open(sys.argv[1]))
keys(spec, "the spec", ("cdiVersion", "kind", "devices"), ("annotations", "containerEdits"))
need(spec["cdiVersion"] in ("0.3.0", "0.4.0", "0.5.0", "0.6.0"), f"cdiVersion {spec['cdiVersion']!r} is not known")
vendor, slash, of_class = spec["kind"].partition("/")
need(slash, "kind is not VENDOR/CLASS")
need(re.fullmatch(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?", vendor), f"{vendor!r} is no name of a vendor")
need(re.fullmatch(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", of_class), f"{of_class!r} is no name of a class")
need(isinstance(spec["devices"], list) and spec["devices"], "devices are none")
names = set()
for device in spec["devices"]:
    keys(device, "a device", ("name", "containerEdits"), ("annotations",))
    name = device["name"]
    need(isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", name),
         f"{name!r} is no name of a device")
    need(name not in names, f"{name!r} is there twice")
    names.add(name)
    edits(device["containerEdits"], f"containerEdits of {name}")
