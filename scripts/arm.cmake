# SPDX-License-Identifier: Apache-2.0
# A toolchain of CMake for 64-bit Arm, with the cross compiler of Debian (gcc-aarch64-linux-gnu). scripts/arm.sh uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
# Programs are this machine's, libraries and headers are told by -D: nothing of this machine may be found instead.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
