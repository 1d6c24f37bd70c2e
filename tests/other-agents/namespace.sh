#!/usr/bin/env bash
# namespace.sh RUN SCRIPTS SHARED CLI NODE PEERBUS PYTHON AGENT SCOPE: the first process in fresh
# namespaces, see run.py. Starts loopback, puts RUN over /tmp with what is needed bound into it, and
# becomes scenario.py. Nothing of the user's own /tmp is visible after that.
set -eu
run=$1 scripts=$2 shared=$3 cli=$4 node=$5 peerbus=$6 python=$7 agent=$8 scope=$9

trap 'echo "the namespaces cannot be set up" >&2; exit 3' ERR
ip link set lo up
mount --bind "$scripts" "$run/scripts"
mount --bind "$shared" "$run/shared"
mount --bind "$cli" "$run/cli"
mount --bind "$node" "$run/node"
mount --bind "$peerbus" "$run/bin/peerbus"
mount --rbind "$run" /tmp
cd /tmp
trap - ERR

exec "$python" /tmp/scripts/scenario.py "$agent" "$scope"
