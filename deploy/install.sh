#!/bin/sh
# Puts peerbus into ~/.local/bin, from an archive whose sum is checked:
#   sh install.sh [--from URL-OR-DIRECTORY] [--to DIRECTORY] [--version VERSION]
# It changes nothing else. To take it away again: peerbus uninstall --all --purge, and remove the file.
set -eu

from=https://github.com/peerbus/peerbus/releases/download
to=
version=0.4.0

fails() {
    echo "install.sh: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
    --from | --to | --version)
        [ $# -gt 1 ] || fails "$1 needs a value"
        case $1 in
        --from) from=$2 given=yes ;;
        --to) to=$2 ;;
        --version) version=$2 ;;
        esac
        shift 2
        ;;
    *) fails "$1 is not known: --from URL-OR-DIRECTORY, --to DIRECTORY and --version VERSION are" ;;
    esac
done

if [ -z "$to" ]; then
    [ -n "${HOME-}" ] || fails "HOME is not set: say where to put it with --to"
    to=$HOME/.local/bin
fi
system=$(uname -s) machine=$(uname -m)
case $system-$machine in
Linux-x86_64) platform=x86_64-linux ;;
Linux-aarch64) platform=aarch64-linux ;;
Darwin-x86_64) platform=x86_64-macos ;;
Darwin-arm64) platform=aarch64-macos ;;
*) fails "there is no archive for $system on $machine: \`cargo install --locked --path crates/cli\` in a clone builds it" ;;
esac
archive=peerbus-$version-$platform.tar.gz
[ -n "${given-}" ] || from=$from/v$version

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

fetch() {
    case $from in
    http://* | https://*)
        if command -v curl >/dev/null; then
            curl -fsSL "$from/$1" -o "$work/$1" || fails "$from/$1 cannot be fetched"
        elif command -v wget >/dev/null; then
            wget -q "$from/$1" -O "$work/$1" || fails "$from/$1 cannot be fetched"
        else
            fails "neither curl nor wget is here: fetch $from/$1 by hand, and say --from its directory"
        fi
        ;;
    *) cp "$from/$1" "$work/$1" || fails "there is no $1 in $from" ;;
    esac
}

fetch "$archive"
fetch "$archive.sha256"
if command -v sha256sum >/dev/null; then
    sum=$(sha256sum "$work/$archive")
else
    sum=$(shasum -a 256 "$work/$archive")
fi
wanted=$(cat "$work/$archive.sha256")
[ "${sum%% *}" = "${wanted%% *}" ] ||
    fails "$archive is not what its sum says (${sum%% *}, wanted ${wanted%% *}): nothing was installed"
tar -xzf "$work/$archive" -C "$work" || fails "$archive cannot be unpacked: nothing was installed"

mkdir -p "$to" || fails "$to cannot be made: say another place with --to"
# Beside it first: a program that runs cannot be written over, but replaced.
new=$to/.peerbus.$$
trap 'rm -rf "$work" "$new"' EXIT
cp "$work/${archive%.tar.gz}/peerbus" "$new" 2>/dev/null && chmod 755 "$new" ||
    fails "$to cannot be written: say another place with --to"
said=$("$new" --version) || fails "the program does not start here: nothing was changed"
[ ! -d "$to/peerbus" ] || fails "$to/peerbus is a directory: say another place with --to"
mv -f "$new" "$to/peerbus" || fails "$to/peerbus cannot be replaced"
echo "$said is in $to/peerbus"
case :$PATH: in
*:"$to":*) ;;
*) echo "$to is not on your PATH: export PATH=\"$to:\$PATH\"" ;;
esac
echo "Try it: peerbus demo. Connect your agents: peerbus install. Take it away: peerbus uninstall --all --purge, then rm $to/peerbus"
