# The front door. Everything is built by CMake and Ninja under build/; each target does its own set-up.
BUILD  ?= build
PREFIX ?= /usr/local
CMAKE_FLAGS ?=

.PHONY: all setup demo test asan tsan gpu-test bench format install clean

all: setup
	@cmake -G Ninja -S . -B $(BUILD) -DCUDA_INCLUDE_DIR="$$(scripts/setup.sh --toolkit)/include" $(CMAKE_FLAGS) > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@cmake --build $(BUILD)

# Packages by apt where missing, and a word about the CUDA Toolkit.
setup:
	@scripts/setup.sh

# A training job larger than its memory: without Spillway, with it, and compared.
demo: all
	@scripts/demo.sh $(BUILD)

# Everything that needs no GPU; the last line counts.
test: all
	@scripts/test.sh $(BUILD)

asan: setup
	@$(MAKE) --no-print-directory BUILD=build-asan CMAKE_FLAGS="-DSPILLWAY_SANITIZE=address -DSPILLWAY_DEBUG=ON" all
	@scripts/test.sh build-asan

tsan: setup
	@$(MAKE) --no-print-directory BUILD=build-tsan CMAKE_FLAGS="-DSPILLWAY_SANITIZE=thread -DSPILLWAY_DEBUG=ON" all
	@scripts/test.sh build-tsan

# The same programs on a real GPU; what cannot run there is named.
gpu-test: all
	@scripts/gpu.sh rules tests

bench: all
	@scripts/bench.sh $(BUILD)

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@rm -rf build build-asan build-tsan build.log build-asan.log build-tsan.log
