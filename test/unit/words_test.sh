#!/bin/sh
# words_test.sh SOURCE_DIR [names|text]: words that shim/retired.txt retires are not used again.
#   names: no file of shim/ is called by a retired word, and no function, type or macro that a header there declares
#          begins with one; the symbols of the glossary in shim/README.md are declared.
#   text:  no comment or message has a retired phrase.
# Without the second argument both are checked.
source=$1
what=${2:-names text}
failed=0
n=0

# none "what": standard input, which is what is wrong, is empty.
none() {
	wrong=$(cat)
	n=$((n + 1))
	[ -z "$wrong" ] && return 0
	failed=$((failed + 1))
	echo "FAILED: $1:"
	echo "$wrong" | head -20 | sed 's/^/  /'
}

cd "$source" || exit 1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# code FILE...: "FILE:LINE:TEXT" of each line, without comments.
code() {
	for file; do
		awk -v file="$file" '{
			out = ""
			for (rest = $0; rest != ""; ) {
				if (inside) {
					at = index(rest, "*/")
					if (!at) break
					rest = substr(rest, at + 2); inside = 0
				} else {
					at = index(rest, "/*")
					if (!at) { out = out rest; break }
					out = out substr(rest, 1, at - 1); rest = substr(rest, at + 2); inside = 1
				}
			}
			if (out ~ /[^ \t]/) print file ":" FNR ":" out
		}' "$file"
	done
}

case " $what " in *" names "*)
	awk -F'\t' '$1 == "name" { print $2 }' shim/retired.txt >"$folder/words"
	[ "$(wc -l <"$folder/words")" -ge 20 ] || { echo "FAILED: retired.txt has too few names"; exit 1; }
	words=$(tr '\n' '|' <"$folder/words" | sed 's/|$//')
	# A word that its own replacement begins with: recent, recent_submissions.
	kept=$(awk -F'\t' '$1 == "name" && index($3, $2 "_") == 1 { print $3 }' shim/retired.txt | tr '\n' '|' | sed 's/|$//')
	find shim -name '*.[ch]' | sort | grep -E "/($words)\.[ch]$|/($words)_[a-z_]*\.[ch]$|[/_]inside\.h$" |
		grep -vE "/($kept)[._]" >"$folder/wrong"
	none 'files are called by a retired word' <"$folder/wrong"
	code $(find shim -name '*.h' ! -name spillway.h | sort) >"$folder/code"
	upper=$(echo "$words" | tr 'a-z' 'A-Z')
	grep -E "[ *(]($words)_[a-z0-9_]+\(|(struct|enum|union) ($words)(_[a-z0-9_]*)?[ ;*]|#define ($upper)_[A-Z0-9_]+" "$folder/code" |
		grep -vE "[ *]($kept)[_( ;]" >"$folder/wrong"
	none 'headers declare names that begin with a retired word' <"$folder/wrong"
	cat "$folder/code" $(find shim policy -name '*.c' -o -name '*.def') | tr -cs 'A-Za-z0-9_' '\n' | sort -u >"$folder/used"
	sed -n '/^## Glossary/,$p' shim/README.md | sed -n '/^|---/,$p' | sed '1d;s/^|[^|]*|[^|]*|//' | tr -cs 'A-Za-z0-9_' '\n' |
		grep -vxE 'struct|enum|union|' | sort -u | comm -23 - "$folder/used" >"$folder/wrong"
	none 'symbols of the glossary do not exist' <"$folder/wrong" ;;
esac

case " $what " in *" text "*)
	awk -F'\t' '$1 == "text" { print $2 }' shim/retired.txt >"$folder/phrases"
	[ -s "$folder/phrases" ] || { echo "FAILED: retired.txt has no phrases"; exit 1; }
	# A comment may break a phrase: lines are joined, and what stands between is one space.
	while read -r phrase; do
		find shim policy tools -name '*.[ch]' | sort | while read -r file; do
			sed 's/^[ \t]*\*//' "$file" | tr -s ' \t\n' ' ' | grep -oiE ".{0,30}(^|[^A-Za-z_])$phrase([^A-Za-z_].{0,20}|$)" |
				sed "s|^|$file: |"
		done >"$folder/wrong"
		none "comments or messages say \"$phrase\"" <"$folder/wrong"
	done <"$folder/phrases" ;;
esac
echo "$n promises, $failed failed"
[ "$failed" = 0 ]
