#!/usr/bin/env bash
# namespace.sh RUN SCRIPTS CLI NEWEST PEERBUS PYTHON SCENARIO [PLACE=SOURCE...]: the first process in
# fresh namespaces, see run.py. Each SOURCE is bound, too.
# Starts loopback, puts RUN over /tmp with what is needed bound into it, and becomes the scenario.
# Nothing of the user's own /tmp is visible after that, and nothing here outlives this process.
set -eu
run=$1 scripts=$2 cli=$3 newest=$4 peerbus=$5 python=$6 scenario=$7
shift 7

trap 'echo "the namespaces cannot be set up" >&2; exit 3' ERR
ip link set lo up
mount --bind "$scripts" "$run/scripts"
mount --bind "$scripts/../.." "$run/repository"
mount --bind "$cli" "$run/cli"
mount --bind "$newest" "$run/newest"
mount --bind "$peerbus" "$run/bin/peerbus"
for bound; do
    mount --bind "${bound#*=}" "$run/${bound%%=*}"
done
mount --rbind "$run" /tmp
cd /tmp
trap - ERR

# A scenario may have arguments.
read -ra scenario <<<"$scenario"
exec "$python" "/tmp/scripts/${scenario[0]}" "${scenario[@]:1}"
