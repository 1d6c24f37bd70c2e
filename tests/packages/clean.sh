#!/usr/bin/env bash
# clean.sh deb|static VERSION FILE: installs a package in an empty root, or puts the binary there,
# and sends a message through the broker that starts by itself. With the package, the root has the C
# library, which it depends on; with the binary nothing at all.
#
# Runs in namespaces of its own: no network but loopback, no processes but its own, and nothing of
# the machine changes. Exit codes: 0 all is well, 1 it is not, 3 it cannot be tried here.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

if [ "${4-}" != inside ]; then
    spaces=(--net --pid --mount --fork --kill-child --mount-proc)
    [ "$(id -u)" -eq 0 ] || spaces+=(--map-root-user)
    if ! unshare "${spaces[@]}" true; then
        echo "$0: no namespaces are to be had here, so the package is not tried" >&2
        exit 3
    fi
    exec unshare "${spaces[@]}" bash "$0" "$@" inside
fi

kind=$1 version=$2 file=$3
top=$(mktemp --directory)
trap 'umount --lazy "$top" && rmdir "$top"' EXIT
mount -t tmpfs -o mode=0755,size=512m none "$top"
root=$top/root log=$top/log
mkdir -p "$root"/{dev,home,proc,tmp} "$log" "$top/runtime"

fails() {
    echo "FAILED $*" >&2
    head -n 50 "$log"/* "$root"/home/.local/state/peerbus/*.log >&2 2>/dev/null || true
    exit 1
}

# The C library as Debian has it, with the entry that says so.
c_library() {
    local package path
    mkdir -p "$root"/var/lib/dpkg/{info,updates} "$root"/usr/{bin,lib,lib64}
    ln -s usr/lib "$root/lib"
    ln -s usr/lib64 "$root/lib64"
    for package in libc6 libgcc-s1; do
        dpkg-query --status "$package" >>"$root/var/lib/dpkg/status"
        echo >>"$root/var/lib/dpkg/status"
        dpkg-query --listfiles "$package" | grep -F '.so' | while read -r path; do
            [ -d "$path" ] || install -D "$path" "$root$path"
        done
        # Which they are matters only to dpkg's own warnings.
        touch "$root/var/lib/dpkg/info/$package:$(dpkg --print-architecture).list"
    done
}

# Says what is wrong with the files of the package.
look() {
    local path page
    for path in usr/share/man/man1/peerbus.1.gz usr/share/man/man1/peerbus-send.1.gz \
        usr/share/bash-completion/completions/peerbus usr/share/zsh/vendor-completions/_peerbus \
        usr/share/fish/vendor_completions.d/peerbus.fish usr/lib/systemd/user/peerbus.service \
        usr/lib/systemd/user/peerbus.socket usr/share/doc/peerbus/copyright \
        usr/share/doc/peerbus/changelog.gz usr/share/doc/peerbus/THIRD-PARTY.txt.gz \
        usr/share/peerbus/.claude-plugin/marketplace.json \
        usr/share/peerbus/deploy/claude-code-plugin/hooks/hooks.json; do
        [ -s "$root/$path" ] || fails "the package has no $path"
    done
    page=$(gzip -dc "$root/usr/share/man/man1/peerbus.1.gz")
    [[ $page == *"peerbus $version"* ]] || fails "the manual is of another version"
    if find "$root/usr/share/peerbus" "$root/usr/bin/peerbus" ! -user root -o -perm /022 -a ! -type l | grep .; then
        fails "these are not root's alone"
    fi
    if command -v systemd-analyze >"$log/systemd"; then
        mkdir "$top/units"
        for path in service socket; do
            # Where the program is for the one who verifies.
            sed "s,=/usr/bin/,=$root/usr/bin/," "$root/usr/lib/systemd/user/peerbus.$path" >"$top/units/peerbus.$path"
        done
        XDG_RUNTIME_DIR=$top/runtime systemd-analyze --user --man=no verify "$top"/units/* >"$log/systemd" 2>&1 ||
            fails "systemd does not take the units"
        [ ! -s "$log/systemd" ] || fails "systemd has something to say of the units"
    fi
}

# Runs the program with nothing but that root.
within() {
    env -i HOME=/home "$(command -v chroot)" "$root" "$program" "$@"
}

if [ "$kind" = deb ]; then
    program=/usr/bin/peerbus
    c_library
    dpkg --root="$root" --install "$file" >"$log/dpkg" 2>&1 || fails "dpkg does not install it"
    look
else
    program=/peerbus
    install "$file" "$root$program"
fi
ip link set lo up
mount -t proc none "$root/proc"
mount -t tmpfs -o mode=0755 none "$root/dev"
touch "$root"/dev/{null,urandom}
mount --bind /dev/null "$root/dev/null"
mount --bind /dev/urandom "$root/dev/urandom"

said=$(within --version 2>&1) || fails "it does not start: $said"
[ "$said" = "peerbus $version" ] || fails "it says that it is: $said"

# The first command starts the broker, and that makes the credentials.
within recv --name bob --count 1 --timeout 60 >"$log/received" 2>"$log/recv" &
receiver=$!
for _ in $(seq 600); do
    grep -q listening "$log/recv" && break
    kill -0 "$receiver" 2>"$log/gone" || fails "nobody listens"
    sleep 0.1
done
within send bob "are you there?" --name alice >"$log/send" 2>&1 || fails "it is not sent"
wait "$receiver" || fails "nothing is received"
grep -qF '"body":"are you there?"' "$log/received" || fails "another message is received"
within stop >"$log/stop" 2>&1 || fails "the broker cannot be stopped"

if [ "$kind" = deb ]; then
    umount "$root/dev/null" "$root/dev/urandom" "$root/dev" "$root/proc"
    dpkg --root="$root" --purge peerbus >"$log/purge" 2>&1 || fails "dpkg does not remove it"
    left=$(find "$root/usr" -name '*peerbus*')
    [ -z "$left" ] || fails "it leaves behind: $left"
fi
echo "$file: tried on a clean root"
