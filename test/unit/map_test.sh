#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# map_test.sh SOURCE_DIR: the pages about the code name what is there. The rooms in shim/README.md are those of rooms.txt,
# its glossary's symbols exist, the map in README.md names files and folders, and comments that cite a page of docs/ name
# one of its headings; what they say of who reads the page of figures, and of processors, is so.
source=$1
. "${0%/*}/../expect.sh"

cd "$source" || exit 1

# ---- the rooms ----
rooms=$(sed -n 's/^\([a-z][a-z]*\)  *\(.*\)/\1|\2/p' shim/rooms.txt)
in_page=$(sed -n 's/^| `\([a-z]*\)\/` | \(.*\) |$/\1|\2/p' shim/README.md)
promise 'rooms.txt has rooms' [ -n "$rooms" ]
promise 'the rooms in shim/README.md are those of rooms.txt, in order, each with its sentence' [ "$rooms" = "$in_page" ]
for room in $(echo "$rooms" | sed 's/|.*//'); do
	promise "shim/$room is a folder" [ -d "shim/$room" ]
done
for folder in shim/*/; do
	folder=${folder#shim/}
	promise "rooms.txt names shim/$folder" grep -q "^${folder%/} " shim/rooms.txt
done

# ---- the glossary ----
glossary=$(sed -n '/^## Glossary/,$p' shim/README.md | sed -n '/^|---/,$p' | sed 1d)
promise 'the glossary has terms' [ -n "$glossary" ]
promise 'its words are in order and each stands once' [ "$glossary" = "$(echo "$glossary" | LC_ALL=C sort -t'|' -k2,2 -u)" ]
words=$(mktemp)
trap 'rm -f "$words"' EXIT
cat $(find shim policy -name '*.[ch]' -o -name '*.def') | tr -cs 'A-Za-z0-9_' '\n' | sort -u >"$words"
for symbol in $(echo "$glossary" | sed 's/^|[^|]*|[^|]*|//' | tr -c 'A-Za-z0-9_\n' ' '); do
	promise "$symbol, of the glossary, is in the sources" grep -qx "$symbol" "$words"
done

# ---- the map of the code ----
map=$(sed -n '/^## Map of the code/,/^## /p' README.md | sed -n '/^|---/,/^$/p' | sed '1d;/^$/d')
promise 'the map in README.md has rows' [ -n "$map" ]
for path in $(echo "$map" | sed 's/^| \([^|]*\)|.*/\1/' | tr '`' ' '); do
	promise "$path, of the map, is there" [ -e "$path" ]
done
for path in test/*/; do
	promise "the map names $path" sh -c 'echo "$1" | grep -q "^|[^|]*\`$2\`"' sh "$map" "$path"
done

# ---- what README.md and the pages for newcomers say ----
promise 'who names x86-64 as what is needed names Arm, too' \
	sh -c '! grep -h x86-64 README.md docs/quickstart.md | grep -v Arm'
for pair in $(sed -n 's/.*`docs\/\([a-z]*\.md\)`, A \([a-z]*\).*/\1:\2/p' README.md); do
	promise "docs/${pair%:*} has the heading A ${pair#*:}" grep -q "^## .*A ${pair#*:}" "docs/${pair%:*}"
done
mode=$(sed -n 's/^spill.mode: //p' policy/inference.yaml)
promise "docs/results.md names the mode of the policy inference: $mode" grep -q "policy \`inference\` says \`$mode\`" docs/results.md
for page in docs/*.md; do
	promise "README.md names $page" grep -q "\`$page\`" README.md
done
for file in README.md docs/*.md .github/*.md; do
	for link in $(grep -oE '\]\([A-Za-z0-9_./-]+[)#]' "$file" 2>/dev/null | tr -d '](#)'); do
		promise "$link, to which $file links, is there" [ -e "$(dirname "$file")/$link" ]
	done
done
# The rooms of the tool that read pages of figures.
readers=$(grep -lE '(pages|page|figures)_read\(' tools/*/*.c | sed 's!tools/\([a-z]*\)/.*!\1!' | grep -vx common | sort -u | tr '\n' ' ')
names() { # FILE: who reads the page of figures, or shows it, as the page says
	tr '\n' ' ' <"$1" | grep -oE '(`[a-z -]+`(, | and )?)+ (read|show) it' | tr -cs 'a-z' '\n' |
		grep -vxE '|spillway|json|and|read|show|it' | sort -u | tr '\n' ' '
}
promise "docs/design.md says who reads the page of figures: $readers" [ "$(names docs/design.md)" = "$readers" ]
for name in $(names docs/adding.md); do
	promise "$name, which docs/adding.md names, reads the page of figures" sh -c 'echo " $1" | grep -q " $2 "' sh "$readers" "$name"
done
promise 'docs/adding.md names who shows a figure' [ -n "$(names docs/adding.md)" ]

# ---- citations of docs/ ----
cited=$(grep -rhoE 'docs/[a-z]+\.md' shim policy tools test scripts README.md docs | sort -u)
promise 'pages of docs/ are cited' [ "$(echo "$cited" | wc -l)" -ge 2 ]
for page in $cited; do
	promise "$page is there" [ -f "$page" ]
done
# In comments "docs/PAGE.md, Heading": lines of a comment may be broken anywhere in it.
joined=$(find shim policy test -name '*.[ch]' -exec sed 's/^[ 	]*\*//' {} + | tr -s ' \t\n' ' ')
for page in $cited; do
	headings=$(sed -n 's/^## *//p' "$page" | sed 's/[].[*^$()+?{|\\]/\\&/g' | tr '\n' '|')
	all=$(echo "$joined" | grep -aoE "$page, [A-Z]" | wc -l)
	good=$(echo "$joined" | grep -aoE "$page, (${headings%|})" | wc -l)
	promise "comments name headings of $page ($good of $all)" [ "$good" = "$all" ]
done

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
