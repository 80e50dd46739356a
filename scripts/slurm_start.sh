# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# slurm_start.sh: a slurmctld, slurmd and munge of the caller's own on this machine. Sourced, not run. All that they have
# (configuration, key, sockets, ports) lies in a folder of the caller's, so that a Slurm of the machine is left alone.

# slurm_has_all: are Slurm, its header and munge installed?
slurm_has_all() {
	command -v slurmctld && command -v slurmd && command -v srun && command -v munged && [ -e /usr/include/slurm/spank.h ]
} >/dev/null

# slurm_get: installs what is missing, by apt-get, without starting it. Fails with a line on standard output that says why.
slurm_get() {
	# slurmd starts what users submit.
	[ "$(id -u)" = 0 ] || { echo 'slurmd has to run as root'; return 1; }
	! slurm_has_all || return 0
	command -v apt-get >/dev/null || { echo 'Slurm and munge are not here, and there is no apt-get'; return 1; }
	{ DEBIAN_FRONTEND=noninteractive apt-get update -q &&
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends slurm-wlm munge libslurm-dev; } >/dev/null 2>&1
	slurm_has_all || { echo 'slurm-wlm, munge and libslurm-dev cannot be installed'; return 1; }
}

# A port that nobody listens at.
slurm_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# slurm_start FOLDER [LINE]: starts them: one node of 4 processors, whatever the machine has, 2 GiB and a GPU. LINE is for
# plugstack.conf. Sets SLURM_CONF, and slurm_started for slurm_end, which the caller must call. Returns 1 if the node is not ready
# within a minute; FOLDER/*.log say why.
slurm_start() {
	local here=$1 host tries
	host=$(hostname -s)
	slurm_started=()
	chmod 755 "$here"
	mkdir -m 700 "$here"/{munge,state,spool}
	head -c 1024 /dev/urandom >"$here/munge/key"
	chmod 400 "$here/munge/key"
	cat >"$here/slurm.conf" <<END
ClusterName=spillway
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(slurm_port)
SlurmdPort=$(slurm_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$here/munge/socket
CredType=cred/munge
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd.pid
SlurmctldLogFile=$here/slurmctld.log
SlurmdLogFile=$here/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
KillWait=5
ReturnToService=2
PlugStackConfig=$here/plugstack.conf
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=2048 Gres=gpu:1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
	echo "NodeName=$host Name=gpu File=/dev/null" >"$here/gres.conf"
	echo "${2:-}" >"$here/plugstack.conf"
	export SLURM_CONF=$here/slurm.conf
	munged --foreground --force --key-file="$here/munge/key" --socket="$here/munge/socket" --pid-file="$here/munge/pid" \
		--log-file="$here/munge/log" --seed-file="$here/munge/seed" >"$here/munged.out" 2>&1 &
	slurm_started+=($!)
	for ((tries = 100; tries; tries--)); do
		[ ! -e "$here/munge/socket" ] || break
		sleep 0.1
	done
	slurmctld -D >"$here/slurmctld.out" 2>&1 &
	slurm_started+=($!)
	slurmd -D -N "$host" >"$here/slurmd.out" 2>&1 &
	slurm_started+=($!)
	for ((tries = 300; tries; tries--)); do
		[ "$(sinfo -h -o %T 2>/dev/null)" != idle ] || return 0
		sleep 0.2
	done
	return 1
}

# slurm_end: ends what slurm_start has started, the last first. A step that ends needs all of them: it would wait for munge for ever.
slurm_end() {
	local number tries
	for ((tries = 100; tries && ${#slurm_started[@]}; tries--)); do
		[ "$(sinfo -h -o %T 2>/dev/null)" != idle ] || break
		sleep 0.2
	done
	for ((number = ${#slurm_started[@]} - 1; number >= 0; number--)); do
		kill "${slurm_started[number]}" 2>/dev/null
		for ((tries = 100; tries; tries--)); do
			kill -0 "${slurm_started[number]}" 2>/dev/null || break
			sleep 0.1
		done
		kill -KILL "${slurm_started[number]}" 2>/dev/null
	done
	slurm_started=()
}
