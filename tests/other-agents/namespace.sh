#!/usr/bin/env bash
# namespace.sh RUN PYTHON AGENT SCOPE PLACE=SOURCE...: the first process in fresh namespaces, see run.py.
# Starts loopback, puts RUN over /tmp with each SOURCE bound into it at its PLACE, and becomes scenario.py.
# Nothing of the user's own /tmp is visible after that.
set -eu
run=$1 python=$2 agent=$3 scope=$4
shift 4

trap 'echo "the namespaces cannot be set up" >&2; exit 3' ERR
ip link set lo up
for bound; do
    mount --bind "${bound#*=}" "$run/${bound%%=*}"
done
mount --rbind "$run" /tmp
cd /tmp
trap - ERR

exec "$python" /tmp/scripts/scenario.py "$agent" "$scope"
