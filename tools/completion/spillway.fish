# SPDX-License-Identifier: Apache-2.0
# spillway.fish: completion of `spillway` for fish. Everything is read from what the tool prints with --help (see
# spillway.bash), so that this file cannot go stale.

function __spillway_tool
    set -l words (commandline -opc)
    set -l tool spillway
    if test (count $words) -gt 0; and command -q -- $words[1]
        set tool $words[1]
    end
    command $tool $argv 2>/dev/null
end

function __spillway_commands
    __spillway_tool --help | sed -n '/^commands:/,/^$/s/^  \([a-z][a-z-]*\)  *\(.*\)/\1\t\2/p'
end

function __spillway_options
    __spillway_tool $argv --help | sed -n 's/^  \(--[a-z][a-z-]*\)\(\[[^ ]*\| [A-Z][A-Z=]*\)\{0,1\}  *\(.*\)/\1\t\3/p'
    printf '%s\t%s\n' --help 'say what there is'
end

function __spillway_value
    __spillway_tool $argv[1] --help | sed -n "s/^  $argv[2] \([A-Z][A-Z=]*\)  *.*/\1/p" | head -n 1
end

function __spillway_argument
    __spillway_tool $argv[1] --help | sed -n '1s/^usage: spillway [^A-Z]*\([A-Z][A-Z]*\).*/\1/p'
end

function __spillway_kind
    switch $argv[1]
        case POLICY
            __spillway_tool check --help | sed -n '/^built-in policies:/{n;p;}' | string split -n ' '
            __fish_complete_path (commandline -ct)
        case 'KEY=VALUE'
            __spillway_tool check --help | sed -n '/^keys of a policy/,/^$/s/^  \([a-z][a-z._]*\) .*/\1=/p'
        case COMMAND
            __spillway_commands
        case PID
            __spillway_tool list | awk 'NR > 1 { print $1 "\t" $3 }'
        case FOLDER
            __fish_complete_directories (commandline -ct)
        case N SIZE NAME TEXT API SECONDS ''
        case '*'
            __fish_complete_path (commandline -ct)
    end
end

function __spillway_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    if test (count $words) -le 1
        __spillway_commands
        __spillway_options
        return
    end
    # Past the options, and past their values, to the first argument.
    set -l i 3
    set -l past no
    while test $i -le (count $words)
        if test "$words[$i]" = --
            set past yes
            set i (math $i + 1)
            break
        else if string match -q -- '-*' $words[$i]
            set -l kind (__spillway_value $words[2] $words[$i])
            if test -n "$kind"
                if test $i -eq (count $words)
                    __spillway_kind $kind
                    return
                end
                set i (math $i + 1)
            end
        else
            set past yes
            break
        end
        set i (math $i + 1)
    end
    set -l kind (__spillway_argument $words[2])
    if test "$kind" = PROGRAM; and begin; test $past = yes; or not string match -q -- '-*' "$word"; end
        if test $i -gt (count $words)
            complete -C -- "$word"
        else
            complete -C -- (string join ' ' -- (string escape -- $words[$i..-1]) "$word")
        end
    else if string match -q -- '-*' "$word"
        __spillway_options $words[2]
    else
        __spillway_kind "$kind"
    end
end

complete -c spillway -f -a '(__spillway_complete)'
