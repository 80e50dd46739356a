#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does every object of the library and the tool have the same code and read-only data at two commits? For commits that
# only move files, rename what is static, or change comments. Objects are matched by contents, so that a moved file is
# the same; what differs is printed by its path at either commit.
# Usage: scripts/same-code.sh OLD NEW     [CMAKE_FLAGS in the environment]
# Exit status 0: all the same; 1: some differ; 2: a commit does not build.
set -euo pipefail

old=${1:?usage: scripts/same-code.sh OLD NEW} new=${2:?usage: scripts/same-code.sh OLD NEW}
cd "$(dirname "$0")/.."
include=$(scripts/setup.sh --headers)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Commits are built one after another at the same path, so that no path in the objects differs.
build() { # build COMMIT NAME: "digest path" of each object goes to the file NAME
	rm -rf "$folder/tree" "$folder/build"
	mkdir "$folder/tree"
	git archive "$1" | tar -x -C "$folder/tree"
	# shellcheck disable=SC2086
	cmake -G Ninja -S "$folder/tree" -B "$folder/build" -DCUDA_INCLUDE_DIR="$include" -DSPILLWAY_TESTS=OFF ${CMAKE_FLAGS:-} \
		>"$folder/log" 2>&1 && ninja -C "$folder/build" lib >>"$folder/log" 2>&1 || {
		tail -20 "$folder/log" >&2
		echo "$1 does not build" >&2
		exit 2
	}
	find "$folder/build" -name '*.c.o' | sort | while read -r object; do
		digest=$(sections "$object" | while read -r section; do
			echo "$section"
			objcopy -O binary --only-section="$section" "$object" /dev/stdout
		done | sha256sum | cut -c 1-32)
		echo "$digest $(sed 's|.*\.dir/||; s|/__/||g' <<<"$object")"
	done | sort >"$folder/$2"
}

# sections OBJECT: those that are loaded and not written: code and read-only data.
sections() {
	objdump -h "$1" | awk '$2 ~ /^\.(text|rodata|data\.rel\.ro)/ { print $2 }'
}

build "$old" old
build "$new" new
objects=$(wc -l <"$folder/new")
# Each digest counts as often as it occurs.
different=$(diff <(cut -d' ' -f1 "$folder/old") <(cut -d' ' -f1 "$folder/new") | sed -n 's/^[<>] //p' | sort -u)
[[ -z $different ]] && { echo "$objects objects, all the same"; exit 0; }
echo "$different" | while read -r digest; do
	sed -n "s/^$digest /old: /p" "$folder/old"
	sed -n "s/^$digest /new: /p" "$folder/new"
done | sort -u
echo "$objects objects, $(wc -l <<<"$different") digests differ"
exit 1
