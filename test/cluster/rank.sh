#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rank.sh: what a launcher starts for each rank of scripts/cluster.sh: a training program under Spillway, whose output goes to
# a file of the rank. In a container the library is there already. The rank CLUSTER_VICTIM is killed in the middle, when all
# CLUSTER_RANKS have begun: a launcher that ends the others then would end some before they use the GPU, and they say nothing.
# CLUSTER_TRAIN: the program with its arguments. CLUSTER_LONG: the same, which does not end by itself. CLUSTER_OUT: a folder.
# CLUSTER_RUN: `spillway run ...`, or nothing.
rank=${RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:?no rank is known}}}
if [ "$rank" != "$CLUSTER_VICTIM" ]; then
	# shellcheck disable=SC2086 # both are lists of words
	exec $CLUSTER_RUN $CLUSTER_TRAIN >"$CLUSTER_OUT/rank$rank.out" 2>"$CLUSTER_OUT/rank$rank.err"
fi
# Without the second exec a shell would be killed in its place.
# shellcheck disable=SC2086
( exec $CLUSTER_RUN $CLUSTER_LONG >"$CLUSTER_OUT/rank$rank.out" 2>"$CLUSTER_OUT/rank$rank.err" ) &
victim=$!
tries=0 begun=0
until [ $begun -ge "$CLUSTER_RANKS" ] || [ $tries = 600 ]; do
	tries=$((tries + 1)) begun=0
	sleep 0.1
	for trace in "$CLUSTER_OUT"/rank*.trace; do
		[ ! -s "$trace" ] || begun=$((begun + 1))
	done
done
sleep 0.3
kill -KILL $victim
wait $victim
