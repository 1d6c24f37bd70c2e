#!/usr/bin/env bash
# installed.sh archive|npm|wheel VERSION FILE…: installs what was made for a user whose home is empty, tries it, installs it
# over an older version whose broker runs, and takes it away: nothing is left. What must be refused is tried too.
#
# Runs in namespaces of its own: no network but loopback, no processes but its own. Exit codes: 0 all is well, 1 it is not,
# 3 it cannot be tried here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [ "${!#}" != inside ]; then
    spaces=(--net --pid --mount --fork --kill-child --mount-proc)
    [ "$(id -u)" -eq 0 ] || spaces+=(--map-root-user)
    if ! unshare "${spaces[@]}" true; then
        echo "$0: no namespaces are to be had here, so the package is not tried" >&2
        exit 3
    fi
    exec unshare "${spaces[@]}" bash "$0" "$@" inside
fi

kind=$1 version=$2
shift 2
files=("${@:1:$#-1}")
ip link set lo up
top=$(mktemp --directory)
trap 'rm -rf "$top"' EXIT
home=$top/home log=$top/log
mkdir "$home" "$log"

fails() {
    echo "FAILED $kind: $*" >&2
    head -n 40 "$log"/* >&2 || true
    exit 1
}

# A command as that user has it.
user() {
    env -i HOME="$home" PATH="$home/.local/bin:$home/prefix/bin:$home/venv/bin:$PATH" "$@"
}

# A command that must say no, with this sentence, and leave nothing.
refuses() {
    local said=$1
    shift
    if user "$@" >"$log/refused" 2>&1; then fails "$* is not refused"; fi
    grep -qF "$said" "$log/refused" || fails "$* says something else than: $said"
    [ -z "$(find "$home" -name '*peerbus*' | head -n 1)" ] || fails "$* left something"
}

# The installed program as one of an older version: the same bytes, with another version in them.
older=${version//[0-9]/0}
aged() {
    local file
    find "$home" -type f \( -name peerbus -o -path '*peerbus*/package.json' \) >"$log/aged"
    while read -r file; do
        LC_ALL=C sed -i "s/${version//./\\.}/$older/g" "$file"
    done <"$log/aged"
    said=$(user peerbus --version)
    [ "$said" = "peerbus $older" ] || fails "an older one says that it is: $said"
}

# Runs the command again until it says this: what others do takes a moment.
until_said() {
    local said=$1
    shift
    for _ in $(seq 600); do
        user "$@" >"$log/said" 2>&1 && grep -q "$said" "$log/said" && return
        sleep 0.1
    done
    fails "$* does not come to say: $said"
}

case $kind in
archive)
    from=$(dirname "${files[0]}")
    script=$here/../../deploy/install.sh
    place() { user sh "$script" --from "$from"; }
    away() { rm "$home/.local/bin/peerbus" && rmdir "$home/.local/bin"; }
    mkdir "$top/bad" "$top/stub"
    cp "$from"/*.tar.gz "$from"/*.sha256 "$top/bad/"
    printf x >>"$top/bad/$(basename "${files[0]}")"
    refuses "is not what its sum says" sh "$script" --from "$top/bad"
    refuses "there is no peerbus-9.9.9" sh "$script" --from "$from" --version 9.9.9
    refuses "cannot be made" sh "$script" --from "$from" --to /proc/none
    printf '#!/bin/sh\necho Plan9\n' >"$top/stub/uname"
    chmod +x "$top/stub/uname"
    refuses "there is no archive for Plan9" env PATH="$top/stub:$PATH" sh "$script" --from "$from"
    printf '#!/bin/sh\n[ "$1" = -m ] && echo arm64 || echo Darwin\n' >"$top/stub/uname"
    refuses "there is no peerbus-$version-aarch64-macos.tar.gz" env PATH="$top/stub:$PATH" sh "$script" --from "$top"
    ;;
npm)
    refuses "is not installed: npm left it out" node "$here/../../deploy/npm/peerbus.js" --version
    # From an empty home to two shells that have talked: one command, which fetches everything.
    python3 "$here/registry.py" 4873 "${files[@]}" >"$log/registry" 2>&1 &
    until_said ready cat "$log/registry"
    began=${EPOCHREALTIME//[.,]/}
    user npm_config_registry=http://127.0.0.1:4873 npx --yes peerbus demo >"$log/npx" 2>&1 || fails "npx does not run it"
    echo "from an empty home to two shells that have talked: $(((${EPOCHREALTIME//[.,]/} - began) / 1000)) ms"
    rm -rf "${home:?}/.npm"
    place() { user npm install --silent --offline --no-audit --no-fund --global --prefix "$home/prefix" "${files[@]}"; }
    away() { user npm uninstall --silent --global --prefix "$home/prefix" peerbus "$(npm_platform)" && rm -rf "$home/prefix" "$home/.npm"; }
    npm_platform() { user npm ls --global --prefix "$home/prefix" --json | grep -o '@peerbus/[a-z0-9-]*' | head -n 1; }
    ;;
wheel)
    user python3 -m venv "$home/venv"
    place() { user pip install --quiet --disable-pip-version-check --no-index --force-reinstall "${files[@]}"; }
    away() { user pip uninstall --quiet --disable-pip-version-check --yes peerbus && rm -rf "$home/venv"; }
    cp "${files[0]}" "$top/peerbus-$version-py3-none-win_amd64.whl"
    refuses "is not a supported wheel" pip install --no-index "$top/peerbus-$version-py3-none-win_amd64.whl"
    ;;
esac

place >"$log/place" 2>&1 || fails "it is not installed"
said=$(user peerbus --version) || fails "it does not start"
[ "$said" = "peerbus $version" ] || fails "it says that it is: $said"
user peerbus demo >"$log/demo" 2>&1 || fails "the demo fails"

aged
# As an agent's .mcp.json starts it, which starts the broker.
hello='{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}'
mkfifo "$top/to"
user peerbus adapter --name probe <"$top/to" >"$log/adapter" 2>"$log/adapter.err" &
adapter=$!
exec 7>"$top/to"
printf '%s\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n' "$hello" >&7
until_said '^probe ' peerbus peers
until_said "^broker: version $older, started on demand" peerbus peers
user peerbus send probe "are you there?" >"$log/send" 2>&1 || fails "nothing reaches the agent"
grep -qF '"serverInfo"' "$log/adapter" || fails "the adapter does not greet"

place >"$log/again" 2>&1 || fails "it cannot be installed over one that runs"
said=$(user peerbus --version)
[ "$said" = "peerbus $version" ] || fails "after an upgrade it says that it is: $said"
kill -0 "$adapter" || fails "the adapter is gone"
user peerbus send probe "still there?" >"$log/send" 2>&1 || fails "what runs is disturbed"
grep -qF "is $older, older than this $version" "$log/send" || fails "nobody is told of the older broker"
user peerbus peers 2>&1 | grep -q "^broker: version $older," || fails "a broker that is used does not stay"
exec 7>&-
wait "$adapter" || fails "the adapter fails at its end"
until_said "^broker: version $version, started on demand" peerbus peers

user peerbus uninstall --all --purge --yes >"$log/purge" 2>&1 || fails "it does not take itself away"
away >"$log/away" 2>&1 || fails "it cannot be taken away"
left=$(find "$home" -name '*peerbus*')
[ -z "$left" ] || fails "it leaves behind: $left"
echo "${files[0]}: installed, used, installed over an older one whose broker ran, and taken away"
