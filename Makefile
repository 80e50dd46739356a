# SPDX-License-Identifier: Apache-2.0
# The main entry point. CMake and Ninja build everything under build/; each target does its own setup.
BUILD  ?= build
PREFIX ?= /usr/local
CMAKE_FLAGS ?=

.PHONY: all lib wheel packages setup demo test test-all asan tsan gpu-test bench format install uninstall clean

# Settings in addition to those of the command line.
configure = cmake -G Ninja -S . -B $(BUILD) -DCUDA_INCLUDE_DIR="$$(BUILD=$(BUILD) scripts/setup.sh --headers)" $(1) $(CMAKE_FLAGS) > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }

all: setup
	@$(call configure,-DSPILLWAY_TESTS=ON)
	@cmake --build $(BUILD)

# Builds what a user needs, without tests. A folder that was configured with tests keeps them, so that their objects
# are not lost.
lib:
	@BUILD=$(BUILD) scripts/setup.sh --lib
	@$(call configure,$(if $(wildcard $(BUILD)/build.ninja),,-DSPILLWAY_TESTS=OFF))
	@cmake --build $(BUILD) --target lib
	@echo "$(BUILD)/spillway and $(BUILD)/libspillway.so are built. Next: $(BUILD)/spillway doctor; $(BUILD)/spillway run -- PROGRAM"

# Makes dist/: a wheel and a tarball for x86_64 and for aarch64 that run with glibc 2.28 or newer. Fetches what it needs.
wheel:
	@scripts/wheel.sh

# Makes dist/: a .deb and a .rpm for this machine's architecture.
packages:
	@BUILD=$(BUILD) scripts/setup.sh --lib
	@BUILD=$(BUILD) scripts/packages.sh

# Installs missing packages with apt, and looks for CUDA's headers; fetches them into BUILD where there are none.
setup:
	@BUILD=$(BUILD) scripts/setup.sh

# Runs a training job larger than its memory, without and with Spillway, and compares the results. Of the test folder
# only the job and the simulated GPU are built.
demo: setup
	@$(call configure,-DSPILLWAY_TESTS=ON)
	@cmake --build $(BUILD) --target lib demo_parts
	@scripts/demo.sh $(BUILD)

# Runs what is promised, once each, on a simulated GPU. The last line counts the results, the line before it shows the time
# of building and testing.
test:
	@scripts/test.sh -d -b 'make --no-print-directory all' $(BUILD)

# Runs every test that needs no GPU: in each mode, and those about the repository (test/nightly.txt). So do asan and tsan.
test-all:
	@scripts/test.sh -b 'make --no-print-directory all' $(BUILD)

asan:
	@scripts/test.sh -b 'make --no-print-directory BUILD=build-asan CMAKE_FLAGS="-DSPILLWAY_SANITIZE=address -DSPILLWAY_DEBUG=ON" all' build-asan

tsan:
	@scripts/test.sh -b 'make --no-print-directory BUILD=build-tsan CMAKE_FLAGS="-DSPILLWAY_SANITIZE=thread -DSPILLWAY_DEBUG=ON" all' build-tsan

# Runs the same programs on a real GPU, and names what cannot run there.
gpu-test: all
	@scripts/gpu.sh rules tests

bench: all
	@scripts/bench.sh $(BUILD)

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

install: lib
	@cmake --install $(BUILD) --prefix $(PREFIX)

# Removes what the last `make install` installed, and the folder that is ours alone.
uninstall:
	@grep -q '^$(PREFIX)/' $(BUILD)/install_manifest.txt || { echo "uninstall: the last make install from here was not to $(PREFIX)"; exit 1; }
	@sed 's|^|$(DESTDIR)|' $(BUILD)/install_manifest.txt | xargs -d '\n' rm -fv --
	@find "$(DESTDIR)$(PREFIX)/share/spillway" -depth -type d -empty -delete

clean:
	@rm -rf build build-asan build-tsan build.log build-asan.log build-tsan.log
