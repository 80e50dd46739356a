#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tool_test.sh TOOL SOURCE_DIR SIM_DIR: what the `spillway` command promises. The library is any shared object that has its names; nothing of
# CUDA is needed, but for what `check` says where there is a driver: SIM_DIR has a simulated one. Each promise is one line of "expect"; the last line says how many failed.
tool=$1
source=$2
sim=$3
# A sanitizer in the tool wants to be first in LD_PRELOAD; these tests are about who is first.
export ASAN_OPTIONS="verify_asan_link_order=0:$ASAN_OPTIONS"
unset NVTX_INJECTION64_PATH SPILLWAY_TRACE SPILLWAY SPILLWAY_POLICY SPILLWAY_SET LD_PRELOAD
. "${0%/*}/../expect.sh"
here=$(mktemp -d /tmp/tool_test.XXXXXX) || exit 1
here=$(cd "$here" && pwd -P)
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 1
library=$here/nothing.so
echo 'int spillway_version(void); int cuGetProcAddress_v2(void);
int spillway_version(void) { return 0; } int cuGetProcAddress_v2(void) { return 0; }' >nothing.c
${CC:-cc} -shared -fPIC -o "$library" nothing.c || exit 77
cp nothing.so other.so
mkdir folder
printf 'version: 1\n' >good.yaml
printf 'version: 3\nfoo: 1\n' >bad.yaml
printf 'rules:\n- use: heap\n- use: driver\n' >warn.yaml
printf '#!/nonexistent/sh\n' >lost.sh
printf '#!%s/static\n' "$here" >script.sh
printf 'x' >plain
chmod +x lost.sh script.sh
run() { "$tool" run --library "$library" "$@"; }
with() { env "$@"; }

expect 'run passes the exit status' 7 '' '' run -- sh -c 'exit 7'
expect 'run passes dying by a signal' 143 '' '*' run -- sh -c 'kill -TERM $$'
expect 'run needs no -- and leaves the options of the program alone' 0 '--set x' '' run echo --set x
expect 'run replaces itself by the program, process id and all' 0 'same' '' sh -c \
	'echo $$ >pid; exec "$1" run --library "$2" -- sh -c "test \$\$ = \$(cat pid) && echo same"' sh "$tool" "$library"
expect 'run puts the library first' 0 "$library" '' run -- printenv LD_PRELOAD
expect 'run keeps an existing LD_PRELOAD behind it' 0 "$library:$here/other.so" '' \
	with LD_PRELOAD="$here/other.so" "$tool" run --library "$library" -- printenv LD_PRELOAD
expect 'run does not add the library twice' 0 "$library:$here/other.so" '' \
	with LD_PRELOAD="$here/other.so:$library" "$tool" run --library "$library" -- printenv LD_PRELOAD
mkdir launch
for name in sudo docker ssh srun sbatch env; do printf '#!/bin/sh\necho started\n' >launch/$name; done
chmod +x launch/*
gone='Spillway will not take effect in what it starts: *'
expect 'run says that sudo takes the environment away' 0 started "*sudo: $gone" run -- launch/sudo -E x
expect 'run says that a container has an environment of its own' 0 started "*docker: $gone" \
	run -- launch/docker run image
expect 'run says that ssh goes elsewhere' 0 started "*ssh: $gone" run -- launch/ssh host x
expect 'run says that Slurm was told to strip' 0 started "*srun: $gone" run -- launch/srun -n 2 --export=NONE x
expect 'run says so too where a variable tells Slurm' 0 started "*sbatch: $gone" \
	with SBATCH_EXPORT=HOME "$tool" run --library "$library" -- launch/sbatch x
expect 'run says nothing of Slurm as it is' 0 started '' run -- launch/srun -n 2 x
expect 'run says nothing where the option lets the library through' 0 started '' \
	with SLURM_EXPORT_ENV=NONE "$tool" run --library "$library" -- launch/srun --export ALL,A=b x
expect 'run says that env -i strips' 0 started "*env: $gone" run -- launch/env -i x
expect 'run says nothing of env that adds' 0 started '' run -- launch/env A=b x -i
expect 'run without --trace asks for no ranges' 1 '' '' run -- printenv NVTX_INJECTION64_PATH
expect 'run without --audit leaves LD_AUDIT alone' 1 '' '' run -- printenv LD_AUDIT
expect 'run --audit needs its library beside the other' 2 '' '*no libspillway-audit.so beside*' run --audit -- true
${CC:-cc} -shared -fPIC -o libspillway-audit.so -x c - <<END
unsigned la_version(unsigned version) { return version; }
END
expect 'run --audit names its library' 0 "$here/libspillway-audit.so" '' run --audit -- printenv LD_AUDIT
expect 'run --audit keeps an existing LD_AUDIT behind it' 0 "$here/libspillway-audit.so:$here/none.so" '*' \
	with LD_AUDIT="$here/none.so" "$tool" run --audit --library "$library" -- printenv LD_AUDIT
expect 'run --audit leaves room for the thread-local memory of libraries' 0 'glibc.rtld.optional_static_tls=16384' '' \
	with -u GLIBC_TUNABLES "$tool" run --audit --library "$library" -- printenv GLIBC_TUNABLES
expect 'run --audit leaves settings of that alone' 0 'a=b' '' \
	with GLIBC_TUNABLES=a=b "$tool" run --audit --library "$library" -- printenv GLIBC_TUNABLES
expect 'run makes the library path absolute' 0 "$library" '' "$tool" run --library nothing.so -- printenv LD_PRELOAD
expect 'run --trace names the file by its whole path' 0 "$here/t.%p" '' run --trace t.%p -- printenv SPILLWAY_TRACE
expect 'run --trace takes a file in another folder' 0 "$here/folder/t" '' run --trace folder/../folder/t -- printenv SPILLWAY_TRACE
expect 'run --trace lets the library see NVTX ranges' 0 "$library" '' run --trace t -- printenv NVTX_INJECTION64_PATH
expect 'run --trace leaves NVTX to whom the user has named' 0 "$here/tool.so" '' \
	with NVTX_INJECTION64_PATH="$here/tool.so" "$tool" run --trace t --library "$library" -- printenv NVTX_INJECTION64_PATH
expect 'run --trace refuses a letter it does not know' 2 '' "*'%x' is not known*%p*" run --trace t.%x -- echo started
expect 'run --trace refuses a folder that is not there' 2 '' '*nosuch/t*No such file*' run --trace nosuch/t -- echo started
expect 'run --trace refuses a folder as a file' 2 '' '*no name of a file*' run --trace folder/ -- echo started
expect 'and one that is there, whatever the name ends in' 2 '' '*/folder" is a folder; name a file in it' \
	run --trace "$here/folder" -- echo started
expect 'run without --trace makes no trace' 1 '' '' run -- printenv SPILLWAY_TRACE
expect 'run makes the policy path absolute' 0 "$here/good.yaml" '' run --policy good.yaml -- printenv SPILLWAY_POLICY
expect 'run leaves the name of a built-in policy' 0 passthrough '' run --policy passthrough -- printenv SPILLWAY_POLICY
expect 'run joins several --set' 0 'spill.mode=off,default=driver' '' \
	run --set spill.mode=off --set default=driver -- printenv SPILLWAY_SET
expect 'run keeps the environment where no option is given' 0 'host.budget=0' '' \
	with SPILLWAY_SET=host.budget=0 "$tool" run --library "$library" -- printenv SPILLWAY_SET
expect 'run --share sets what it takes to share a GPU' 0 'share=auto,device.total=90%,vmm.spill=move' '' \
	run --share -- printenv SPILLWAY_SET
echo 'vmm.spill: move' >stays.yaml
expect 'but not what the user or the policy sets' 0 'device.total=8GiB,share=turns' '' \
	run --share --policy stays.yaml --set device.total=8GiB,share=turns -- printenv SPILLWAY_SET
expect 'nor what the environment does' 0 'share.weight=3,share=auto,device.total=90%,vmm.spill=move' '' \
	with SPILLWAY_SET=share.weight=3 "$tool" run --share --library "$library" -- printenv SPILLWAY_SET
expect 'run --share is not for --fit' 2 '' '*leave one of them out' run --share --fit -- echo started
expect 'run starts nothing with a bad policy and prints all errors' 2 '' \
	'bad.yaml:1:10: error: *bad.yaml:2:1: error: *--set:1:1: error: *' run --policy bad.yaml --set x=1 -- echo started
expect 'keys of the variable are told by its name' 2 '' 'SPILLWAY_SET:1:1: error: *' \
	with SPILLWAY_SET=x=1 "$tool" run --library "$library" -- echo started
expect 'run checks the policy of the environment too' 2 '' 'bad.yaml:1:10: *' \
	with SPILLWAY_POLICY=bad.yaml "$tool" run --library "$library" -- echo started
expect 'run names variables that nobody reads' 0 started \
	'environment: warning: nobody reads SPILLWAY_POLCY; did you mean SPILLWAY_POLICY?' \
	with SPILLWAY_POLCY=x "$tool" run --library "$library" -- echo started
for variable in $(grep -rhoE '"SPILLWAY_[A-Z_]+"' "$source/shim" "$source/tools" --include='*.c' | tr -d '"' | sort -u); do
	expect "$variable is read" 0 started '' with "$variable=" "$tool" run --library "$library" -- echo started
done
expect 'run prints warnings and goes on' 0 started 'warn.yaml:3:3: warning: *' run --policy warn.yaml -- echo started
expect 'run says where it looked for the library' 2 '' '*libspillway.so is not found*Looked at:*/lib64/libspillway.so*' \
	sh -c 'cp "$1" lonely && ./lonely run -- echo started' sh "$tool"
mkdir -p tree/bin tree/lib
cp "$tool" tree/bin/spillway
cp nothing.so tree/lib/libspillway.so
expect 'run finds the library of an installed tree' 0 "$here/tree/lib/libspillway.so" '' \
	tree/bin/spillway run -- printenv LD_PRELOAD
expect 'run refuses a library that is not there' 2 '' '*--library: nowhere.so*' "$tool" run --library nowhere.so true
mkdir 'a b'
cp nothing.so 'a b'
echo 'int nothing_at_all;' >stranger.c
expect 'run --for sets what a program needs' 0 'heap report.capacity=device+host' '' \
	run --for llama.cpp -- sh -c 'echo $SPILLWAY_POLICY $SPILLWAY_SET'
expect 'be it a policy alone' 0 'inference' '' run --for vllm -- sh -c 'echo $SPILLWAY_POLICY $SPILLWAY_SET'
expect 'but not what the user sets' 0 'report.capacity=physical,spill.mode=static' '' \
	run --for llama.cpp --set report.capacity=physical,spill.mode=static -- printenv SPILLWAY_SET
expect 'nor what the environment does' 0 'spill.limit=2GiB' '' \
	with SPILLWAY_SET=spill.limit=2GiB "$tool" run --for batch-finder --library "$library" -- printenv SPILLWAY_SET
expect 'run --for is not for --policy' 2 '' '*--for has a policy, and --policy names one*' \
	run --for jax --policy good.yaml -- echo started
expect 'nor for a policy of the environment' 2 '' '*--for has a policy, and SPILLWAY_POLICY names one*' \
	with SPILLWAY_POLICY=heap "$tool" run --for jax --library "$library" -- echo started
expect 'nor for --fit' 2 '' '*--fit finds a policy, and --for has one*' run --fit --for jax -- echo started
expect 'run --for knows its programs alone' 2 '' "*no program 'lama.cpp'; did you mean llama.cpp?*" \
	run --for lama.cpp -- echo started
printf '#!/bin/sh\necho "started$SPILLWAY_POLICY$SPILLWAY_SET"\n' >llama-server
chmod +x llama-server
cp llama-server python3
mkdir ComfyUI
looks='*this looks like'
expect 'run proposes --for, and applies nothing' 0 started "$looks llama.cpp; \`spillway run --for llama.cpp\`*" \
	run -- ./llama-server -m model
expect 'it knows the modules of Python' 0 started "$looks vllm;*" run -- ./python3 -u -m vllm.entrypoints.openai.api_server
expect 'and its scripts' 0 started "$looks comfyui;*" run -- ./python3 -X dev ComfyUI/main.py -m vllm
expect 'run proposes nothing for other programs' 0 started '' run -- ./python3 train.py vllm
expect 'nor where the user has chosen' 0 'startedspill.mode=static' '' run --set spill.mode=static -- ./llama-server
expect 'nor where --for was given' 0 'startedheapvmm.spill=move' '' run --for jax -- ./llama-server
rm python3
${CC:-cc} -shared -fPIC -o stranger.so stranger.c || exit 77
cp "$library" half.so
truncate -s 200 half.so
for stranger in stranger.so half.so stranger.c /dev/null "$tool"; do
	expect "run refuses $stranger as the library" 2 '' '*--library: *' "$tool" run --library "$stranger" -- echo started
done
expect 'and says what is missing' 2 '' "*stranger.so is not Spillway's library: it does not define spillway_version*" \
	"$tool" run --library stranger.so -- echo started
expect 'run refuses a library that LD_PRELOAD cannot name' 2 '' '*blank or a colon*' \
	"$tool" run --library 'a b/nothing.so' true
expect 'a program that is not there is 127' 127 '' 'spillway: nosuch: no such program' run -- nosuch
expect 'a file that is no program is 126' 126 '' 'spillway: ./plain: *' run -- ./plain
expect 'a folder is no program' 126 '' 'spillway: ./folder: *' run -- ./folder
expect 'a script without its interpreter is told from a missing program' 127 '' '*interpreter or loader*' run -- ./lost.sh
expect 'no program is wrong usage' 2 '' '*no program given*' run
expect 'an unknown option is wrong usage' 2 '' '*unknown option "--polizy"*' run --polizy x true
expect 'an option without its value is wrong usage' 2 '' '*"--set" needs a value*' run --set
expect 'SPILLWAY=0 is said and passed on' 0 0 '*SPILLWAY=0 is set*' \
	with SPILLWAY=0 "$tool" run --library "$library" -- printenv SPILLWAY

printf 'int main(void) { return 5; }\n' >five.c
if ${CC:-cc} -static -o static five.c 2>/dev/null; then
	expect 'a static program is run, with a word' 5 '' '*static: *statically linked' run -- ./static
	expect 'a script of a static interpreter is run, with a word' 5 '' '*static: *statically linked' run -- ./script.sh
fi
if ${CC:-cc} -o dynamic five.c && [ "$(id -u)" = 0 ] && chown 1 dynamic && chmod u+s dynamic; then
	expect 'a set-user-ID program is run, with a word' 5 '' '*more rights*' run -- ./dynamic
fi

expect 'check says ok on stdout' 0 'good.yaml: ok' '' "$tool" check good.yaml
expect 'check takes built-in names' 0 'heap: ok
passthrough: ok' '' "$tool" check heap passthrough
expect 'check prints errors of each and ends with 2' 2 'good.yaml: ok' 'bad.yaml:1:10: error: *bad.yaml:2:1: error: *' \
	"$tool" check bad.yaml good.yaml
expect 'check lets warnings pass' 0 'warn.yaml: ok, 1 warning' 'warn.yaml:3:3: warning: *' "$tool" check warn.yaml
cat >here.yaml <<'END'
rules:
- {match: {device: 2}, use: heap}
- {match: {size: < 1MiB}, use: system, system.register: no}
- {match: {size: < 2MiB}, use: managed, fallback: system, system.register: no}
- {match: {size: < 3MiB}, use: managed, fallback: heap}
- {use: system}
END
with_gpu() {
	env LD_LIBRARY_PATH="$sim" SIM_DEVICES=2 "$@"
}
expect 'check without a driver does not warn of devices' 0 'here.yaml: ok' '' "$tool" check here.yaml
expect 'check warns of rules that no device here can serve' 0 'here.yaml: ok, 2 warnings' \
	'here.yaml:2:3: warning: rule 1: none of its devices is here, there are 2; it matches nothing
here.yaml:3:3: warning: rule 2: no device here can serve use: system (there is no access to pageable memory, and system.register is no); the driver serves what it matches' \
	with_gpu "$tool" check here.yaml
expect 'check warns where there is no managed memory' 0 'here.yaml: ok, 3 warnings' \
	'*here.yaml:4:3: warning: rule 3: no device here can serve use: managed or its fallback (there is no concurrent managed access); the driver*' \
	with_gpu env SIM_CONCURRENT_MANAGED=0 "$tool" check here.yaml
expect 'check does not warn where all is there' 0 'here.yaml: ok' '' \
	with_gpu env SIM_PAGEABLE=1 SIM_DEVICES=3 "$tool" check here.yaml
expect 'check --json has those warnings too' 0 '*"warnings": 2, *"rule 1: none of its devices is here*' '' \
	with_gpu "$tool" check --json here.yaml
expect 'a driver that does not start is none' 0 'here.yaml: ok' '' \
	with_gpu env SIM_FAIL=cuInit:1:100 "$tool" check here.yaml
expect 'check without a file is wrong usage' 2 '' '*no policy given*' "$tool" check
for verb in suspend resume; do
	expect "$verb without a process is wrong usage" 2 '' '*no process given*' "$tool" $verb
	expect "$verb takes process ids alone, and looks at all of them first" 2 '' '*"4x" is no process id*' \
		"$tool" $verb $$ 4x
	expect "$verb takes no id that cannot be one" 2 '' '*"99999999999" is no process id*' "$tool" $verb 99999999999
	expect "$verb takes no group of processes" 2 '' '*unknown option "-1"*' "$tool" $verb -1
	expect "$verb takes no 0" 2 '' '*"0" is no process id*' "$tool" $verb 0
	expect "$verb of a process that is not there says so" 1 '' '*there is no process 2147483647' "$tool" $verb 2147483647
	expect "$verb of a process without Spillway says so" 1 '' "*process $$ does not run under Spillway*" "$tool" $verb $$
	expect "$verb goes on to the next process" 1 '' "*no process 2147483647
*process $$ does not*" "$tool" $verb 2147483647 $$
	expect "help of $verb goes to stdout with an example" 0 'usage: *example*:*' '' "$tool" $verb --help
done
expect 'set without a process is wrong usage' 2 '' '*no process given*' "$tool" set
expect 'set takes a process id first' 2 '' '*"4x" is no process id*' "$tool" set 4x device.budget=1GiB
expect 'set without a setting is wrong usage' 2 '' '*nothing to change*' "$tool" set $$
expect 'set looks at all settings first' 2 '' '*"20GiB" is not KEY=VALUE*' "$tool" set $$ device.budget=1GiB 20GiB
expect 'set of a process without Spillway says so' 1 '' "*process $$ does not run under Spillway*" \
	"$tool" set $$ device.budget=1GiB
expect 'help of set goes to stdout with an example' 0 'usage: *example:*' '' "$tool" set --help
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	setpriv --reuid 1 --clear-groups sleep 100 &
	until [ "$(awk '/^Uid/ {print $3}' /proc/$!/status)" = 1 ]; do :; done
	expect "another user's process is not ours to suspend" 1 '' \
		"*process $! is another user's*sudo -u daemon spillway suspend $!" "$tool" suspend $!
	kill $!
fi
empty() { env -u XDG_RUNTIME_DIR XDG_RUNTIME_DIR="$here" "$@"; }
expect 'list takes no argument' 2 '' '*takes no argument*"x"*' "$tool" list x
expect 'help of list goes to stdout with an example' 0 'usage: *example:*' '' "$tool" list --help
expect 'list is no failure when there is nothing' 0 '*' '*' empty "$tool" list
expect 'an unknown command gets a suggestion' 2 '' '*did you mean "check"?' "$tool" chekc
expect 'no command is wrong usage' 2 '' '*no command given*' "$tool"
expect 'help goes to stdout with examples' 0 'usage: *examples:*' '' "$tool" --help
# Values that are each right, and together are not.
warns() { # "promise" "keys, with commas between them" "the warning (a pattern)"
	echo "version: 1" >warned.yaml
	echo "$2" | tr ',' '\n' | sed 's/=/: /' >>warned.yaml
	expect "check: $1" 0 '*ok, 1 warning*' "warned.yaml: warning: $3" "$tool" check warned.yaml
	expect "explain: $1" 0 '*' "*warning: $3" "$tool" explain --size 1MiB warned.yaml
	expect "run: $1" 0 1 "*warning: $3" run --policy warned.yaml -- printenv SPILLWAY_WARNED
	expect "run with --set: $1" 0 1 "*warning: $3" run --set "$2" -- printenv SPILLWAY_WARNED
}
warns 'one process that may pin more than all together' host.budget=64GiB,host.total=32GiB '*host.budget of at most host.total*'
warns 'so it is of shares' host.budget=60%,host.total=50% '*host.budget of at most host.total*'
for mode in off static; do
	warns "memory that $mode does not move" vmm.spill=move,spill.mode=$mode "*spill.mode: $mode; write spill.mode: exact*"
done
warns 'a heap without device memory' device.budget=0 '*device.budget: 0 *write auto, a SIZE or N%*'
warns 'none of it' device.budget=0% '*device.budget: 0 *write auto, a SIZE or N%*'
for set in host.budget=32GiB,host.total=32GiB host.budget=60%,host.total=1GiB host.budget=2GiB,host.total=1GiB,host.share=off \
	vmm.spill=move,spill.mode=exact vmm.spill=move,spill.mode=fast device.budget=2MiB observe=yes,device.budget=0; do
	expect "nothing is wrong with $set" 1 '' '' run --set $set -- printenv SPILLWAY_WARNED
done
expect 'an earlier warning is not taken for one of this run' 1 '' '' env SPILLWAY_WARNED=1 "$tool" run --library "$library" -- printenv SPILLWAY_WARNED
expect 'memory that nobody can have is an error' 2 '' '*device.budget: 0 with spill.mode: off*write device.budget: auto*' \
	run --set device.budget=0,spill.mode=off -- echo started
# rule "promise" "the rule" STATUS "stderr (a pattern)"
rule() {
	printf 'version: 1\nrules:\n- %s\n' "$2" >rule.yaml
	expect "$1" "$3" '*' "$4" "$tool" check rule.yaml
}
rule 'managed memory has no place' '{use: managed, place: host}' 0 'rule.yaml:3:3: warning: rule 1: *managed.advise: preferred-host*'
rule 'on the device neither' '{use: managed, place: device}' 0 '*managed.advise: preferred-device*'
rule 'nor has memory of the system' '{use: system, place: host}' 0 '*use: system is none*write use: heap*'
rule 'nor what is denied' '{use: deny, place: host}' 0 '*remove place*'
rule 'unless the heap may serve it' '{use: managed, place: host, fallback: heap}' 0 ''
rule 'the heap has places' '{use: heap, place: host}' 0 ''
rule 'a rule that asks for moves' '{use: heap, vmm.spill: move}' 0 ''
rule 'what nobody knows gets the list' '{use: xyzzy}' 2 '*"xyzzy" is unknown; write heap, *'

for word in version --version -V; do
	expect "$word prints the version" 0 'spillway [0-9]*.[0-9]*' '' "$tool" $word
done
expect 'help without a command prints the commands' 0 "$("$tool" --help | sed 's/\[/[[]/g')" '' "$tool" help
for command in run demo check explain doctor list top report replay prom cdi kernel suspend resume set help version; do
	expect "help $command is $command --help" 0 "$("$tool" $command --help | sed 's/\[/[[]/g')" '' "$tool" help $command
done
expect 'help of what is no command says so' 2 '' '*unknown command "rum"; did you mean "run"?' "$tool" help rum
expect 'help of two commands is refused' 2 '' '*"check" is one argument too many*' "$tool" help run check
expect 'version takes nothing' 2 '' '*"now" is one argument too many*' "$tool" version now
expect 'options that are not there are refused' 2 '' '*unknown option "-x"*' "$tool" version -x
expect 'help of run goes to stdout with examples' 0 'usage: *examples:*' '' "$tool" run --help
expect 'help of check goes to stdout with an example' 0 'usage: *example:*' '' "$tool" check --help
expect 'output that cannot be written is an error' 1 '' '*could not be written: No space left on device' sh -c '"$1" --help >/dev/full' sh "$tool"
# Of a tool with the thread sanitizer that cannot be seen: its runtime writes a file of its own, before main().
if sh -c 'ulimit -f 0; "$1" --version' sh "$tool" >/dev/null 2>&1; then
	expect 'a file that may not grow is an error, and what was there stays' 0 '*prom": cannot be written: File too large
status 1' '' sh -c 'echo old >x.prom; { ulimit -f 0; "$1" prom x.prom; echo status $?; } 2>&1 | cat' sh "$tool"
	expect 'it is as it was' 0 old '' cat x.prom
	expect 'nothing lies beside it' 1 '' '' sh -c 'ls -A | grep "^.x.prom"'
fi
expect 'programs that are run end by that signal as ever' 0 '' '' \
	sh -c '! "$1" run -- grep -q "^Sig\(Ign\|Cgt\): *0*1000000" /proc/self/status' sh "$tool"

printf 'version: 1\n' >base.yaml
printf 'include: base.yaml\nrules:\n- {name: "a\303\251", match: {size: "< 1MiB"}, use: driver}\n- {match: {api: [pitch]}, use: deny}\n- {match: {process: "py*"}, use: managed, fallback: [system], cap: 1GiB}\n' >rules.yaml
expect 'check --json is a list with an object for each policy' 2 '[[]{"schema": 1, "policy": "bad.yaml", "ok": false, "errors": 2, "warnings": 0, "problems": [[]{"file": "bad.yaml", "line": 1, "column": 10, "severity": "error", "text": "version: \\"3\\" is unknown; write 1"}, *
 {"schema": 1, "policy": "good.yaml", "ok": true, "errors": 0, "warnings": 0, "problems": [[]], "settings": [[]{"key": "version", "value": "1", "file": "good.yaml", "line": 1, "limit": null, "cut": null}*]}]' '' "$tool" check --json bad.yaml good.yaml
expect 'check refuses a file of 10 MiB by its size' 2 '' '*larger than 1 MiB*' sh -c \
	'truncate -s 10M large.yaml && "$1" check large.yaml' sh "$tool"
expect 'explain says why not, and what would happen' 0 'rule 1 (aé): no, the size is 1536MiB, not < 1MiB
rule 2 (rule 2): no, the api is malloc, not pitch
rule 3 (rule 3): yes
use: managed, then system
  at most 1GiB may be live under the rule; what is over goes to the next use
  managed memory: advise nothing; prefetch none
  system memory: register yes; huge pages yes; NUMA node auto' '' \
	"$tool" explain --size 1.5GiB --process python3 rules.yaml
expect 'explain falls to the default' 0 '*rule 3 (rule 3): no, the name of the process is not known; the rule wants "py[*]"
no rule matches: the default holds
use: heap
  heap memory is placed: auto; movable: yes' '' "$tool" explain rules.yaml
expect 'explain says who serves what no rule names' 0 '*no rule matches: no rule that names the api, so the driver serves it
use: driver*' '' "$tool" explain --api vmm heap
expect 'explain says that it is of the heap' 0 '*note: vmm.spill: move*' '' \
	"$tool" explain --api vmm --set vmm.spill=move heap
expect 'what vmm.spill: yes was is said' 2 '' '*vmm.spill: *yes* is unknown; write no, move*' \
	"$tool" explain --api vmm --set vmm.spill=yes heap
expect 'explain says that a pool serves' 0 '*note: async.use: driver*' '' "$tool" explain --api async passthrough
for policy in heap training training-fast inference; do
	expect "explain says that a pool serves while it can, $policy" 0 '*
use: heap
  heap memory is placed: auto; movable: yes
note: async.use: auto, so the driver*s pool serves it while it can; *' '' "$tool" explain --api async $policy
done
for policy in observe managed system; do
	expect "explain says that a pool serves, $policy" 0 '*note: *driver*' '' "$tool" explain --api pool $policy
done
expect 'explain of what is the driver'"'"'s in any case says no more' 0 '*
use: driver' '' "$tool" explain --api pool --lib /usr/lib/libnccl.so.2 training
expect 'a rule denies what is asked for in stream order' 0 '*use: deny*' '' "$tool" explain --api pool --set default=deny passthrough
expect 'explain of a pool in the heap says no more' 0 '*
  heap memory is placed: auto; movable: yes' '' "$tool" explain --api pool --set async.use=heap heap
expect 'explain says that no pool is managed memory' 0 '*note: this use cannot serve in stream order*' '' \
	"$tool" explain --api async --set async.use=heap managed
expect 'explain of managed memory' 0 '*
use: managed, then heap
  heap memory is placed: auto; movable: yes
  managed memory: advise preferred-device; prefetch none' '' "$tool" explain --size 64MiB managed
expect 'explain of system memory' 0 '*
use: system, then managed, then heap
  heap memory is placed: auto; movable: yes
  managed memory: advise nothing; prefetch none
  system memory: register yes; huge pages yes; NUMA node auto' '' "$tool" explain --size 64MiB system
expect 'explain of observe says that the driver serves' 0 '*note: observe: yes*' '' "$tool" explain observe
expect 'explain leaves a communication library to the driver' 0 'rule 1 (communication libraries): yes
use: driver' '' "$tool" explain --lib /usr/lib/libnccl.so.2 training
expect 'explain --json' 0 '{"schema": 1, "policy": "rules.yaml", "passed_over": [[]{"rule": 1, "name": "aé", "why": "the size is 1MiB, not < 1MiB"}], "rule": 2, "name": "rule 2", "use": [[]"deny"], "place": "auto", "movable": true, "cap": null, "managed": {"advise": [[]], "prefetch": "none"}, "system": {"register": true, "huge_pages": true, "numa_node": null}, "settings": [[]*[]], "note": null}' '' \
	"$tool" explain --json --api pitch rules.yaml
expect 'explain takes every part of a request' 0 '*yes*' '' "$tool" explain --api vmm --device 3 --thread t \
	--order 3 --live 1GiB --free 2GiB --args 'a b' --rank 3 --set default=driver --lib x --caller 'a.py:3 in f' observe
expect 'explain with a bad policy prints its errors' 2 '' 'bad.yaml:1:10: *' "$tool" explain bad.yaml
cat >rank.yaml <<'END'
rules:
- {match: {rank: [0, 4 .. 7]}, use: driver}
- {match.rank: 1x, use: deny}
END
expect 'a bad rank is an error with its place' 2 '' \
	'rank.yaml:3:16: error: rule 2: match.rank: "1x" is no rank; write a number, "0 .. 3" or ">= 4"' "$tool" check rank.yaml
sed -i 3d rank.yaml
expect 'explain of a rank that a rule is about' 0 'rule 1 (rule 1): yes
use: driver' '' "$tool" explain --rank 5 rank.yaml
expect 'explain of another rank' 0 'rule 1 (rule 1): no, the rank is 3, not 0 or 4 .. 7
*' '' "$tool" explain --rank 3 rank.yaml
expect 'explain of a process without a rank' 0 'rule 1 (rule 1): no, the process has no rank; the rule wants 0 or 4 .. 7
*' '' env RANK=5 "$tool" explain rank.yaml
expect 'explain --json of another rank' 0 '*"why": "the rank is 3, not 0 or 4 .. 7"}*"rule": null*' '' \
	"$tool" explain --json --rank 3 rank.yaml
for bad in '--size 5' '--size 5%' '--api x' '--device 63' '--rank x' '--rank 9223372036854775808' '--order -1' '--order 99999999999999999999' '--live x' '--free x' \
	'--nosuch' '--size' ''; do
	# shellcheck disable=SC2086 # several words
	expect "explain $bad is wrong usage" 2 '' 'spillway: *' "$tool" explain $bad
done
expect 'explain of two policies is wrong usage' 2 '' '*one policy is needed*' "$tool" explain heap heap
expect 'help of explain goes to stdout with an example' 0 'usage: *example:*' '' "$tool" explain --help

# Every key and value of keys.def is an item of the manual page, and every item is one: compared as sorted lists.
page=$source/tools/man/spillway-policy.5
items() { # MACRO: the words behind ".It MACRO" and behind further MACROs of the line
	sed -n "s/^\.It $1 //p" "$page" | sed "s/ , $1 /\n/g" | sort -u
}
sed -n 's/^POLICY_\(RULE_\|LIMIT_\)\{0,1\}KEY("\([^"]*\)".*/\2/p' "$source/policy/keys.def" | sort -u >keys.txt
sed -n 's/^POLICY_VALUE([A-Z]*, [^,]*, "\([^"]*\)".*/\1/p' "$source/policy/keys.def" | sort -u >values.txt
items Cm >page_keys.txt
items Li >page_values.txt
items Sy >page_policies.txt
ls "$source/policy" | sed -n 's/\.yaml$//p' | sort -u >policies.txt
[ "$(wc -l <keys.txt)" -ge 30 ] && [ "$(wc -l <values.txt)" -ge 30 ] || complain 'keys.def was not read'
expect 'the manual page has every key, and no other' 0 '' '' diff keys.txt page_keys.txt
expect 'the manual page has every value, and no other' 0 '' '' diff values.txt page_values.txt
expect 'the manual page has every built-in policy, and no other' 0 '' '' diff policies.txt page_policies.txt
for page in spillway.1 spillway-policy.5; do
	sed -n '/^\.Bd -literal/,/^\.Ed/p' "$source/tools/man/$page" | sed 1d\;\$d >manual.yaml
	expect "the policy of $page is good" 0 'manual.yaml: ok' '' "$tool" check manual.yaml
done

echo "$n promises, $failed failed"
[ "$failed" = 0 ]
