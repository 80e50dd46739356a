# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What several scripts need to know about the machine. Sourced, not run.

# The version, which CMakeLists.txt has.
spillway_version() { # ROOT
	sed -nE 's/^project\(spillway VERSION ([0-9.]+).*/\1/p' "$1/CMakeLists.txt"
}

# ldconfig lives where a user's PATH often does not look.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# The folder of the real libcuda.so.1; fails when there is none.
libcuda_folder() {
	local folder path
	local IFS=:
	for folder in ${LD_LIBRARY_PATH:-}; do
		# Ours is a simulation, and knows a name that NVIDIA's does not.
		if [ -e "$folder/libcuda.so.1" ] && ! grep -q sim_calls "$folder/libcuda.so.1"; then
			echo "$folder"
			return 0
		fi
	done
	path=$(ldconfig -p 2>/dev/null | awk '$1 == "libcuda.so.1" && !found { print $NF; found = 1 }')
	[ -n "$path" ] && dirname "$path"
}

# Is there an NVIDIA GPU that programs here can use?
has_gpu() {
	{ [ -e /dev/nvidia0 ] || [ "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" -gt 0 ]; } && libcuda_folder >/dev/null
}

gpu_name() {
	nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null |
		awk -F', ' 'NR == 1 { print $1 ", driver " $2 }'
}

# The CUDA Toolkit's folder: the one with include/cuda.h; fails when there is none. CUDA_HOME=none: as if there were none.
toolkit_folder() {
	local folder nvcc
	[ "${CUDA_HOME:-}" != none ] || return 1
	nvcc=$(command -v nvcc || true)
	for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda ${nvcc:+"$(dirname "$(dirname "$(readlink -f "$nvcc")")")"}; do
		if [ -n "$folder" ] && [ -e "$folder/include/cuda.h" ]; then
			echo "$folder"
			return 0
		fi
	done
	return 1
}

# The newest CUDA that the headers in a folder are of, e.g. 13000; fails when they are of none.
headers_version() { # FOLDER
	sed -nE 's/^#define CUDA_VERSION ([0-9]+)$/\1/p' "$1/cuda.h" 2>/dev/null | grep -m 1 .
}

# Folders in which headers of CUDA may lie, the best first, one a line: the Toolkit's, the system's, those that packages of
# PyPI bring (nvidia-cuda-runtime 13, which PyTorch 2.11 depends on), in the active environment or where python3 looks; last
# those that setup.sh fetched into BUILD.
header_folders() { # [BUILD]
	local folder python
	if folder=$(toolkit_folder); then
		echo "$folder/include"
	fi
	[ "${CUDA_HOME:-}" = none ] || printf '%s\n' /usr/local/include /usr/include
	for python in ${VIRTUAL_ENV:+"$VIRTUAL_ENV/bin/python"} python3; do
		"$python" -c 'if True:
			import os, site, sys
			for folder in [*filter(None, sys.path), site.getusersitepackages()]:
				print(os.path.join(os.path.abspath(folder), "nvidia", "cu13", "include"))' 2>/dev/null || true
	done
	[ -z "${1:-}" ] || (cd "$1" 2>/dev/null && echo "$PWD/cuda/nvidia/cu13/include") || true
}

# Are these all that the tests and the simulated GPU include? The library and the tool include cuda.h alone.
has_all_headers() { # FOLDER
	[ -e "$1/cuda_runtime_api.h" ] && [ -e "$1/crt/host_defines.h" ] && [ -e "$1/cudaProfiler.h" ]
}

# Prints the folder with the headers of CUDA 13.0 or newer: one with all of them if there is one. Fails when there is none.
cuda_headers() { # [BUILD]
	local folder some='' version
	while read -r folder; do
		version=$(headers_version "$folder") && [ "$version" -ge 13000 ] || continue
		if has_all_headers "$folder"; then
			echo "$folder"
			return 0
		fi
		some=${some:-$folder}
	done < <(header_folders "${1:-}")
	[ -n "$some" ] && echo "$some"
}

# What has the headers on PyPI; cuda.h and cuda_runtime_api.h, what they include, cudaProfiler.h.
header_packages=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-cuda-profiler-api==13.0.85)

# Fetches the headers, some megabytes, to FOLDER/nvidia/cu13/include. They are the same for each architecture.
fetch_headers() { # PYTHON FOLDER
	local wheel
	[ ! -e "$2/done" ] || return 0
	rm -rf "$2"
	"$1" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$2" \
		--platform manylinux2014_x86_64 "${header_packages[@]}" >&2 || return 1
	for wheel in "$2"/*.whl; do
		"$1" -m zipfile -e "$wheel" "$2" || return 1
		rm "$wheel"
	done
	touch "$2/done"
}

# unpack_debian FOLDER ARCHITECTURE PACKAGE...: Debian's packages, unpacked below FOLDER/root without being installed, which
# takes no root. The lists of the archive are kept apart from the system's. SUITE: another release of Debian than this
# system's. Fails with 1 if the archive does not answer, with 2 if it has not all of them.
unpack_debian() {
	local folder=$1 architecture=$2 options package
	shift 2
	mkdir -p "$folder"/{lists/partial,cache/archives/partial,packages,root}
	touch "$folder/status"
	options=("-oAPT::Architecture=$architecture" "-oAPT::Architectures=$architecture" "-oDir::State::Lists=$folder/lists"
		"-oDir::State::status=$folder/status" "-oDir::Cache=$folder/cache" -oAcquire::Languages=none -oDebug::NoLocking=1
		-oAPT::Sandbox::User=)
	if [ -n "${SUITE:-}" ]; then
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $SUITE main" >"$folder/sources.list"
		options+=("-oDir::Etc::SourceList=$folder/sources.list" -oDir::Etc::SourceParts=/dev/null)
	fi
	apt-get "${options[@]}" -q update >/dev/null || return 1
	(cd "$folder/packages" && apt-get "${options[@]}" -q download "$@" >/dev/null) || return 2
	for package in "$folder"/packages/*.deb; do
		dpkg-deb -x "$package" "$folder/root" || return 2
	done
}

find_nvcc() {
	local folder
	if folder=$(toolkit_folder) && [ -x "$folder/bin/nvcc" ]; then
		echo "$folder/bin/nvcc"
	else
		command -v nvcc
	fi
}

# The demo job for a real GPU, with the runtime linked statically: the way to the driver that no preloaded cudart sees.
build_gpu_job() { # NVCC ROOT TARGET
	[ "$3" -nt "$2/test/job/train.c" ] && [ "$3" -nt "$2/test/job/train_kernels.h" ] &&
		[ "$3" -nt "$2/test/portable.h" ] && return 0
	mkdir -p "$(dirname "$3")"
	"$1" -x cu -cudart static -O2 -I"$2" -o "$3" "$2/test/job/train.c"
}

# run_bars NAME ARGUMENT...: test/gpu/NAME_bars.py on this machine's GPU, with the ready build in BUILD (default ./build), logs
# in OUT (default ./gpu-out), in TOTAL_SECONDS (530) at most. Returns 0 if all bars were reached, 1 if not, 2 if there is no
# usable GPU or no build. root must be set.
run_bars() {
	local name=$1 build out=${OUT:-$root/gpu-out} bad=0
	shift
	build=$(cd "${BUILD:-$root/build}" 2>/dev/null && pwd) || {
		echo "$name.sh: there is no build in ${BUILD:-$root/build}" >&2
		return 2
	}
	if ! has_gpu; then
		echo "$name.sh: no NVIDIA GPU with a driver was found here" >&2
		return 2
	fi
	# NVLink multicast can put GPUs that other machines use out of service; no bar needs it.
	export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
	mkdir -p "$out"
	echo "GPU: $(gpu_name); spillway: $build/libspillway.so, $(stat -c %y "$build/libspillway.so" | cut -d. -f1)"
	rm -f "$out/$name.log" "$out/$name.log.json"
	PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 python3 "$root/test/gpu/${name}_bars.py" --build "$build" \
		--log "$out/$name.log" --seconds "${TOTAL_SECONDS:-530}" "$@" || bad=1
	echo "$SECONDS s in all; logs in $out"
	return $bad
}
