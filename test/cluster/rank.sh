#!/bin/sh
# rank.sh: what a launcher starts for each rank of scripts/cluster.sh: a training program under Spillway, whose output goes to
# a file of the rank. In a container the library is there already. The rank CLUSTER_VICTIM is killed in the middle.
# CLUSTER_TRAIN: the program with its arguments. CLUSTER_OUT: a folder. CLUSTER_RUN: `spillway run ...`, or nothing.
rank=${RANK:-${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:?no rank is known}}}
if [ "$rank" != "$CLUSTER_VICTIM" ]; then
	# shellcheck disable=SC2086 # both are lists of words
	exec $CLUSTER_RUN $CLUSTER_TRAIN >"$CLUSTER_OUT/rank$rank.out" 2>"$CLUSTER_OUT/rank$rank.err"
fi
# Without the second exec a shell would be killed in its place.
# shellcheck disable=SC2086
( exec $CLUSTER_RUN $CLUSTER_TRAIN >"$CLUSTER_OUT/rank$rank.out" 2>"$CLUSTER_OUT/rank$rank.err" ) &
victim=$!
tries=0
until [ -s "$CLUSTER_OUT/rank$rank.trace" ] || [ $tries = 600 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
sleep 0.3
kill -KILL $victim
wait $victim
