#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# count.sh [FOLDER]: source lines that are no tests and neither blank nor comment alone: C (*.c, *.h, *.def) of shim, tools
# and policy by folder; then all tracked source in any language, with what does not belong to the product (lab/, contrib/)
# as "moved". FOLDER: the repository (by default the one this script lies in).
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# Other languages: a line that begins with # or // is a comment.
others() {
	git ls-files | grep -v '^test/' | grep -E '\.(py|sh|awk|js|css|html|cmake|in|fish|bash)$|^Makefile$|CMakeLists\.txt$|completion/|^\.ci/run$' |
		grep -E "$1" | tr '\n' '\0' | xargs -0 -r cat | grep -cvE '^[ \t]*($|#|//)' || true
}

find shim tools policy -type f \( -name '*.c' -o -name '*.h' -o -name '*.def' \) -print0 | sort -z | xargs -0 awk '
FNR == 1 {
	inside = 0
	folder = FILENAME
	sub(/\/[^\/]*$/, "", folder)
	if (!(folder in lines)) order[++folders] = folder
}
{
	# What is left of the line once comments are taken off; a quoted string is passed over whole.
	text = $0
	code = ""
	while (text != "") {
		if (inside) {
			at = index(text, "*/")
			if (!at) break
			text = substr(text, at + 2)
			inside = 0
		} else if (match(text, /^"([^"\\]|\\.)*"?/) || match(text, /^\047([^\047\\]|\\.)*\047?/)) {
			code = code "x"
			text = substr(text, RLENGTH + 1)
		} else if (substr(text, 1, 2) == "//") {
			break
		} else if (substr(text, 1, 2) == "/*") {
			inside = 1
			text = substr(text, 3)
		} else if (match(text, /^[^"\047\/]+/)) {
			code = code substr(text, 1, RLENGTH)
			text = substr(text, RLENGTH + 1)
		} else {
			code = code substr(text, 1, 1)
			text = substr(text, 2)
		}
	}
	if (code ~ /[^ \t]/) lines[folder]++
}
END {
	for (i = 1; i <= folders; i++) {
		room = order[i]
		part = room
		sub(/\/.*/, "", part)
		printf "%7d  %s\n", lines[room], room
		sum[part] += lines[room]
		all += lines[room]
	}
	printf "%7d  all of shim\n%7d  all of tools\n%7d  all of policy\n%7d  in all\n", sum["shim"], sum["tools"], sum["policy"], all
}'
moved=$(git ls-files lab contrib | grep -E '\.(c|h|def|py|sh)$' | tr '\n' '\0' | xargs -0 -r cat | grep -cvE '^[ \t]*($|#|//|/?\*)' || true)
printf '%7d  other languages: tools (web pages, Python, completion)\n' "$(others '^tools/')"
printf '%7d  other languages: scripts, CMake, Makefile and the rest\n' "$(others '^[^t]|^t[^o]')"
printf '%7d  moved: lab/, contrib/\n' "$moved"
