#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# completion_test.sh TOOL SOURCE_DIR: every shell offers the commands and options that the tool itself prints, and no
# others. bash is always tested, zsh and fish where they are installed. Also: every command has an example in its help.
# shellcheck disable=SC2086,SC2016 # names of shells have no blanks; fish has a $ of its own
tool=$1
source=$2
here=$(mktemp -d /tmp/completion_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
export LC_ALL=C XDG_RUNTIME_DIR=$here HOME=$here
mkdir "$here/bin" "$here/work"
ln -s "$tool" "$here/bin/spillway"
PATH=$here/bin:$PATH
cd "$here/work" || exit 1
touch job.yaml
failed=0
n=0

# same "promise" "wanted words" "got words": as sets
same() {
	local wanted got
	n=$((n + 1))
	wanted=$(tr ' ' '\n' <<<"$2" | sed '/^$/d' | sort -u)
	got=$(tr ' ' '\n' <<<"$3" | sed '/^$/d' | sort -u)
	[ "$wanted" = "$got" ] && return
	failed=$((failed + 1))
	echo "FAILED: $1 (< wanted, > got)"
	diff <(echo "$wanted") <(echo "$got")
}

# has "promise" word "got words"
has() {
	n=$((n + 1))
	grep -qxF -- "$2" <<<"$3" && return
	failed=$((failed + 1))
	echo "FAILED: $1: no \"$2\" in: ${3//$'\n'/ }"
}

commands=$(spillway --help | awk '/^commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }')
[ "$(wc -w <<<"$commands")" -ge 7 ] || { echo "the commands were not read: $commands"; exit 1; }
options_of() { # in another way than the completions read them
	spillway "$@" --help | awk '/^options:/ { on = 1; next } /^$/ { on = 0 } on && $1 ~ /^--/ { sub(/\[=.*/, "", $1); print $1 }'
	echo --help
}
policies=$(spillway check --help | awk 'on { print; exit } /^built-in policies:/ { on = 1 }')

# ---- bash ---- the words after the name; the last one is completed
. "$source/tools/completion/spillway.bash"
bash_offers() {
	COMP_WORDS=(spillway "$@")
	COMP_CWORD=$#
	COMPREPLY=()
	_spillway
	printf '%s\n' "${COMPREPLY[@]}"
}

# ---- zsh ---- the functions that put words on the screen are replaced by ones that print them
cat >"$here/offers.zsh" <<'END'
_describe() { print -l -- ${${(P)2}%%:*} }
compadd() { [[ $1 != -S ]] || shift 2; [[ $1 != -a ]] || print -l -- ${(P)2} }
_files() { print -l -- *(N) }
_normal() { print -l -- program: $words }
words=(spillway "$@[2,-1]")
CURRENT=$#words
source $1
END
zsh_offers() { zsh -f "$here/offers.zsh" "$source/tools/completion/_spillway" "$@"; }

# ---- fish ----
fish_offers() {
	fish --no-config -c 'source $argv[1]; complete -C "spillway $argv[2..-1]"' "$source/tools/completion/spillway.fish" \
		"$@" | cut -f1
}

shells=bash
for shell in zsh fish; do
	if command -v $shell >/dev/null; then shells="$shells $shell"; else echo "$shell is not installed: not tested"; fi
done

for shell in $shells; do
	if [ $shell = fish ]; then
		# fish offers options only for a word that begins so.
		same "$shell offers the commands" "$commands" "$(fish_offers '' | grep -v '^-')"
	else
		same "$shell offers the commands and the tool's own options" "$commands $(options_of)" "$(${shell}_offers '')"
	fi
	for command in $commands; do
		same "$shell offers the options of $command" "$(options_of "$command")" "$(${shell}_offers "$command" --)"
	done
	for policy in $policies; do
		has "$shell offers the built-in policies to check" "$policy" "$(${shell}_offers check '')"
		has "$shell offers them as the value of run --policy" "$policy" "$(${shell}_offers run --policy '')"
	done
	has "$shell offers files to check" job.yaml "$(${shell}_offers check '')"
	has "$shell offers the keys of a policy" 'spill.mode=' "$(${shell}_offers run --set '')"
	has "$shell goes past the value of an option" --audit "$(${shell}_offers run --policy heap --)"
done
has 'bash offers programs to run' ls "$(bash_offers run -- l)"
has 'bash offers programs without --, too' ls "$(bash_offers run --audit l)"
has 'bash leaves the options of the program to it' job.yaml "$(bash_offers run -- ls job)"
same 'bash offers nothing for the value of a key' '' "$(bash_offers run --set spill.mode = '')"
case $shells in *zsh*) has 'zsh completes the program as if it stood alone' ls "$(zsh_offers run --audit -- ls x)" ;; esac
case $shells in *fish*) has 'fish completes the program as if it stood alone' job.yaml "$(fish_offers run -- ls job)" ;; esac

for shell in $shells; do
	for command in $commands; do
		has "$shell offers the commands to help" "$command" "$(${shell}_offers help '')"
	done
done

for command in $commands; do
	n=$((n + 1))
	spillway "$command" --help | grep -q '^examples\{0,1\}:' || { failed=$((failed + 1)); echo "FAILED: no example: $command"; }
done

echo "$n promises, $failed failed ($shells)"
[ "$failed" = 0 ]
