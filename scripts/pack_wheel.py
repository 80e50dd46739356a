# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of an installed tree: pack_wheel.py TREE VERSION ARCHITECTURE GLIBC FOLDER, e.g. stage 1.2.3 x86_64 2.28 dist.

What lies in bin/ becomes the console command as it is, no Python code in front of it; all else is installed beside it
(lib/, share/, include/), where the command looks. tools/python is the module that `import spillway` gives.
"""
import os
import stat
import sys

from wheel.wheelfile import WheelFile

NAME = "spillway_gpu"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

METADATA = """Metadata-Version: 2.4
Name: spillway-gpu
Version: {version}
Summary: Run CUDA programs that need more memory than the GPU has, without changing them
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Classifier: Environment :: GPU :: NVIDIA CUDA
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """Wheel-Version: 1.0
Generator: spillway scripts/pack_wheel.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def files(tree):
    for folder, _, names in sorted(os.walk(tree)):
        for name in sorted(names):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, tree), path


def main(tree, version, architecture, glibc, target):
    platform = f"manylinux_{glibc.replace('.', '_')}_{architecture}"
    name = os.path.join(target, f"{NAME}-{version}-py3-none-{platform}.whl")
    info, data = f"{NAME}-{version}.dist-info", f"{NAME}-{version}.data"
    with open(os.path.join(ROOT, "README.md")) as file:
        readme = file.read()
    with open(os.path.join(ROOT, "LICENSE")) as file:
        license_text = file.read()
    os.makedirs(target, exist_ok=True)
    with WheelFile(name, "w") as wheel:
        wheel.write(os.path.join(ROOT, "tools", "python", "spillway.py"), "spillway.py")
        for inside, path in files(tree):
            room, _, rest = inside.partition(os.sep)
            wheel.write(path, f"{data}/scripts/{rest}" if room == "bin" else f"{data}/data/{inside}")
        wheel.writestr(f"{info}/licenses/LICENSE", license_text)
        wheel.writestr(f"{info}/METADATA", METADATA.format(version=version, readme=readme))
        wheel.writestr(f"{info}/WHEEL", WHEEL.format(platform=platform))
    os.chmod(name, stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
    print(name)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
