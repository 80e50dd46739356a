# SPDX-License-Identifier: Apache-2.0
# spillway.bash: completion of `spillway` for bash. Commands, options, what their values are, keys and policies are read
# from what the tool prints with --help, so that this file knows none of them and cannot go stale.
# shellcheck shell=bash

# The tool that is being typed, or the one in PATH where that cannot be run as it stands (an alias, a ~).
_spillway_tool() {
	local tool=${COMP_WORDS[0]}
	command -v -- "$tool" >/dev/null 2>&1 || tool=spillway
	"$tool" "$@" 2>/dev/null
}

# "  run       run a program": the word, of the lines below "commands:".
_spillway_commands() {
	_spillway_tool --help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'
}

# "  --json           print JSON": the option.
_spillway_options() {
	_spillway_tool "$@" --help | sed -n 's/^  \(--[a-z][a-z-]*\)\([[ ].*\)\{0,1\}$/\1/p'
	echo --help
}

# What stands for the value of an option: "POLICY" for "  --policy POLICY  a policy file"; nothing where it has none.
_spillway_value() {
	_spillway_tool "$1" --help | sed -n "s/^  $2 \([A-Z][A-Z=]*\)  *.*/\1/p" | head -n 1
}

# What the arguments are: "POLICY" for "usage: spillway check [option...] POLICY...".
_spillway_argument() {
	_spillway_tool "$1" --help | sed -n '1s/^usage: spillway [^A-Z]*\([A-Z][A-Z]*\).*/\1/p'
}

_spillway_policies() {
	_spillway_tool check --help | sed -n '/^built-in policies:/{n;p;}'
}

_spillway_keys() {
	_spillway_tool check --help | sed -n '/^keys of a policy/,/^$/s/^  \([a-z][a-z._]*\) .*/\1=/p'
}

_spillway_pids() {
	_spillway_tool list | awk 'NR > 1 { print $1 }'
}

# What can stand where KIND is wanted; cur is the word so far.
_spillway_complete() {
	local kind=$1 cur=$2
	case $kind in
	POLICY) mapfile -t COMPREPLY < <(compgen -W "$(_spillway_policies)" -- "$cur"; compgen -f -- "$cur") ;;
	KEY=VALUE)
		mapfile -t COMPREPLY < <(compgen -W "$(_spillway_keys)" -- "$cur")
		compopt -o nospace 2>/dev/null
		;;
	COMMAND) mapfile -t COMPREPLY < <(compgen -W "$(_spillway_commands)" -- "$cur") ;;
	PID) mapfile -t COMPREPLY < <(compgen -W "$(_spillway_pids)" -- "$cur") ;;
	FOLDER) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
	N | SIZE | NAME | TEXT | API | SECONDS) COMPREPLY=() ;;
	?*) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	esac
	case $kind in POLICY | FOLDER | PATH | FILE) compopt -o filenames 2>/dev/null ;; esac
}

# The program that `run` starts, completed as if it stood alone; at: where it begins.
_spillway_program() {
	local at=$1 cur=$2
	if declare -F _command_offset >/dev/null; then
		_command_offset "$at"
	elif [ "$COMP_CWORD" = "$at" ]; then
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}

_spillway() {
	local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} kind i
	COMPREPLY=()
	if [ "$COMP_CWORD" -le 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_spillway_commands; _spillway_options)" -- "$cur")
		return
	fi
	# Past the options, and past their values, to the first argument.
	for ((i = 2; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--)
			i=$((i + 1))
			break
			;;
		=) # bash makes words of its own of "key=value"
			i=$((i + 1))
			[ "$i" -lt "$COMP_CWORD" ] || return
			;;
		-*)
			kind=$(_spillway_value "$command" "${COMP_WORDS[i]}")
			if [ -n "$kind" ] && [ $((i + 1)) = "$COMP_CWORD" ]; then
				_spillway_complete "$kind" "$cur"
				return
			fi
			[ -z "$kind" ] || i=$((i + 1))
			;;
		*) break ;;
		esac
	done
	kind=$(_spillway_argument "$command")
	if [ "$kind" = PROGRAM ] && { [ "$i" -lt "$COMP_CWORD" ] || [ "${COMP_WORDS[i - 1]}" = -- ]; }; then
		_spillway_program "$i" "$cur"
	elif [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_spillway_options "$command")" -- "$cur")
	elif [ "$kind" = PROGRAM ]; then
		_spillway_program "$i" "$cur"
	elif [ -n "$kind" ]; then
		_spillway_complete "$kind" "$cur"
	fi
}

complete -F _spillway spillway
