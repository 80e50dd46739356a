# shellcheck shell=bash
# What several scripts need to know about the machine. Sourced, not run.

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

# The CUDA Toolkit's folder: the one with include/cuda.h; fails when there is none.
toolkit_folder() {
	local folder nvcc
	nvcc=$(command -v nvcc || true)
	for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda ${nvcc:+"$(dirname "$(dirname "$(readlink -f "$nvcc")")")"}; do
		if [ -n "$folder" ] && [ -e "$folder/include/cuda.h" ]; then
			echo "$folder"
			return 0
		fi
	done
	return 1
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
	mkdir -p "$out"
	echo "GPU: $(gpu_name); spillway: $build/libspillway.so, $(stat -c %y "$build/libspillway.so" | cut -d. -f1)"
	rm -f "$out/$name.log" "$out/$name.log.json"
	PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 python3 "$root/test/gpu/${name}_bars.py" --build "$build" \
		--log "$out/$name.log" --seconds "${TOTAL_SECONDS:-530}" "$@" || bad=1
	echo "$SECONDS s in all; logs in $out"
	return $bad
}
