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
