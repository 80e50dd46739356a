# SPDX-License-Identifier: Apache-2.0
"""spillway_kernel.py TOOL install [option...]: `spillway kernel`. Writes a kernel spec for Jupyter that starts IPython's
kernel under `spillway run`, with the options given here. Jupyter finds it by its folder; nothing of Jupyter is needed to
write it."""
import getopt
import json
import os
import re
import shutil
import subprocess
import sys

OK, BROKEN, BAD = 0, 1, 2  # the exit statuses of the tool
HELP = """usage: spillway kernel install [option...]

Writes a kernel spec for Jupyter: a kernel of Python that runs under Spillway, to be chosen in the menu of
kernels. A spec that is there is not overwritten; `jupyter kernelspec remove NAME` removes it.

options:
  --name NAME          the folder of the spec, by which Jupyter knows the kernel (spillway)
  --display-name TEXT  what Jupyter shows (Python 3 with Spillway)
  --user               for this user: in $JUPYTER_DATA_DIR, else ~/.local/share/jupyter (default)
  --prefix FOLDER      in FOLDER/share/jupyter instead, as of a virtual environment
  --python PROGRAM     the Python that has ipykernel (python3)
  --policy POLICY      as for `spillway run`; a file is named by its full path
  --set KEY=VALUE      as for `spillway run`; may be given again

Exit status: 0 it was written, 1 it could not be, 2 wrong usage or an error in the policy.

example:
  spillway kernel install --set device.budget=90%"""


class Refused(Exception):
    """What is wrong, and the exit status."""


def read_options(words):
    """The values of the options by name, and of --set a list. None: the help was printed."""
    request = {"name": "spillway", "display-name": "Python 3 with Spillway", "python": "python3", "policy": "", "set": []}
    try:
        options, rest = getopt.gnu_getopt(
            words, "h", ["name=", "display-name=", "user", "prefix=", "python=", "policy=", "set=", "help"])
    except getopt.GetoptError as error:
        raise Refused(f"{error}; `spillway kernel --help` lists them", BAD)
    for option, value in options:
        if option in ("-h", "--help"):
            print(HELP)
            return None
        if option == "--set":
            request["set"].append(value)
        else:
            request[option[2:]] = value
    if rest != ["install"]:
        raise Refused("write `spillway kernel install [option...]`", BAD)
    # Jupyter's own rule, but for capitals, which it takes to be small ones.
    if not re.fullmatch(r"[a-z0-9_][a-z0-9._-]{0,63}", request["name"]):
        raise Refused(f"--name: \"{request['name']}\" is no name of a kernel; it has small letters, digits, -, _ and ., and "
                      "begins with a letter, a digit or _", BAD)
    if "user" in request and "prefix" in request:
        raise Refused("--user and --prefix are two places; name one", BAD)
    return request


def find_policy(tool, policy, sets):
    """What --policy is to be: Jupyter starts kernels in the folders of their notebooks. The tool says what is wrong in it."""
    settings = ["--set", ",".join(sets)] if sets else []
    if subprocess.run([tool, "explain", *settings, "--", policy or "heap"], stdout=subprocess.DEVNULL).returncode:
        sys.exit(BAD)
    help_of_check = subprocess.run([tool, "check", "--help"], stdout=subprocess.PIPE, text=True).stdout
    builtin = help_of_check.partition("\nbuilt-in policies:\n")[2].partition("\n")[0].split()
    return policy if not policy or policy in builtin else os.path.realpath(policy)


def find_python(name):
    """A link is not followed: the python of a virtual environment is one, and knows its environment by that. But the path is
    made absolute, since Jupyter may have another PATH."""
    found = shutil.which(name)
    if not found:
        raise Refused(f"--python: {name}: no such program", BAD)
    return os.path.join(os.getcwd(), found)


def find_folder(request):
    """Where Jupyter looks for it."""
    if "prefix" in request:
        data = os.path.join(request["prefix"], "share/jupyter")
    elif os.environ.get("JUPYTER_DATA_DIR"):
        data = os.environ["JUPYTER_DATA_DIR"]
    elif os.environ.get("XDG_DATA_HOME"):
        data = os.path.join(os.environ["XDG_DATA_HOME"], "jupyter")
    elif os.environ.get("HOME"):
        data = os.path.join(os.environ["HOME"], ".local/share/jupyter")
    else:
        raise Refused("HOME is not set: say --prefix", BAD)
    return os.path.join(data, "kernels", request["name"])


def write_new(path, name, text):
    """A spec of --prefix is for others, too; it holds no secret."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8", errors="surrogateescape") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
    except FileExistsError:
        raise Refused(f"{path} is there already; say another --name, or remove it: jupyter kernelspec remove {name}", BROKEN)
    except OSError as error:
        raise Refused(f"{error.filename or path} cannot be made: {error.strerror}", BROKEN)


def install(tool, request):
    policy = find_policy(tool, request["policy"], request["set"])
    python, path = find_python(request["python"]), os.path.join(find_folder(request), "kernel.json")
    options = ["--policy", policy] if policy else []
    for item in request["set"]:
        options += ["--set", item]
    # Jupyter puts the name of a file in the place of {connection_file}.
    spec = {"argv": [tool, "run", *options, "--", python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": request["display-name"], "language": "python", "metadata": {"debugger": True}}
    write_new(path, request["name"], json.dumps(spec, ensure_ascii=False) + "\n")
    # The kernel would fail at its start, where nobody sees why.
    nothing = subprocess.DEVNULL
    if subprocess.run([python, "-c", "import ipykernel"], stdin=nothing, stdout=nothing, stderr=nothing).returncode:
        say(f"{python} has no ipykernel, which the kernel needs: {python} -m pip install ipykernel")
    print(path)


def say(text):
    print(f"spillway: {text}", file=sys.stderr)


def main(tool, words):
    try:
        request = read_options(words)
        if request:
            install(tool, request)
    except Refused as refused:
        say(refused.args[0])
        return refused.args[1]
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
