# The front door. Everything is built by CMake and Ninja under build/; each target does its own set-up.
BUILD  ?= build
PREFIX ?= /usr/local
CMAKE_FLAGS ?=

.PHONY: all lib setup demo test asan tsan gpu-test bench format install clean

# With these settings besides those of the command line.
configure = cmake -G Ninja -S . -B $(BUILD) -DCUDA_INCLUDE_DIR="$$(scripts/setup.sh --toolkit)/include" $(1) $(CMAKE_FLAGS) > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }

all: setup
	@$(call configure,-DSPILLWAY_TESTS=ON)
	@cmake --build $(BUILD)

# What a user needs, and no test. A folder that was configured with them stays so: what was built of them is not lost.
lib:
	@scripts/setup.sh --lib
	@$(call configure,$(if $(wildcard $(BUILD)/build.ninja),,-DSPILLWAY_TESTS=OFF))
	@cmake --build $(BUILD) --target lib

# Packages by apt where missing, and a word about the CUDA Toolkit.
setup:
	@scripts/setup.sh

# A training job larger than its memory: without Spillway, with it, and compared.
# Of the tests' folder it needs the job and the simulated GPU alone.
demo: setup
	@$(call configure,-DSPILLWAY_TESTS=ON)
	@cmake --build $(BUILD) --target lib demo_parts
	@scripts/demo.sh $(BUILD)

# Everything that needs no GPU; the last line counts, the one before it says what building and testing took.
test:
	@scripts/test.sh -b 'make --no-print-directory all' $(BUILD)

asan:
	@scripts/test.sh -b 'make --no-print-directory BUILD=build-asan CMAKE_FLAGS="-DSPILLWAY_SANITIZE=address -DSPILLWAY_DEBUG=ON" all' build-asan

tsan:
	@scripts/test.sh -b 'make --no-print-directory BUILD=build-tsan CMAKE_FLAGS="-DSPILLWAY_SANITIZE=thread -DSPILLWAY_DEBUG=ON" all' build-tsan

# The same programs on a real GPU; what cannot run there is named.
gpu-test: all
	@scripts/gpu.sh rules tests

bench: all
	@scripts/bench.sh $(BUILD)

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

install: lib
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@rm -rf build build-asan build-tsan build.log build-asan.log build-tsan.log
