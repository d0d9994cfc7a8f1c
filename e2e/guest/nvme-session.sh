#!/bin/bash
# In the guest: what a host does with two namespaces of one subsystem, from discovery to the last comparison.
# It overwrites both.
#   nvme-session.sh ADDRESS PORT NQN NSID NSID
set -u
[ $# = 5 ] || { sed -n 2,4p "$0"; exit 2; }
address=$1 port=$2 nqn=$3; shift 3
namespaces="$1 $2"
failures=0

pass() { echo "PASS: $*"; }
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
check() {
    local what=$1; shift
    if "$@" > /tmp/check.out 2>&1; then pass "$what"; else
        fail "$what (exit status $?)"; head -n 20 /tmp/check.out | sed 's/^/    /'; return 1
    fi
}
finish() {
    if dmesg | grep -E 'I/O error|Buffer I/O|EXT4-fs error|Oops|BUG:|WARNING:|hung|nvme.*timeout|rror recovery' > /tmp/bad; then
        fail "the kernel's log is clean"; head -n 10 /tmp/bad | sed 's/^/    /'
    else
        pass "the kernel's log is clean"
    fi
    [ $failures = 0 ]; exit
}

# device_of NSID: waits for the block device of a namespace.
device_of() {
    local try subsystem device
    for try in $(seq 100); do
        for subsystem in /sys/class/nvme-subsystem/*; do
            [ "$(cat "$subsystem/subsysnqn" 2> /dev/null)" = "$nqn" ] || continue
            for device in /sys/block/nvme"${subsystem##*/nvme-subsys}"n*; do
                [ "$(cat "$device/nsid" 2> /dev/null)" = "$1" ] && { echo "/dev/${device##*/}"; return 0; }
            done
        done
        sleep 0.1
    done
    return 1
}

connect() { check "connect ${*:-plainly}" nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" "$@"; }
disconnect() { check "disconnect" nvme disconnect -n "$nqn"; }

modprobe nvme-tcp || { fail "modprobe nvme-tcp"; finish; }
check "discover" nvme discover -t tcp -a "$address" -s "$port"
cp /tmp/check.out /tmp/discovery
check "the discovery log names the subsystem" grep -F "$nqn" /tmp/discovery

connect || finish
controller=$(basename "$(dirname "$(grep -lxF "$nqn" /sys/class/nvme/nvme*/subsysnqn | head -n 1)")")
check "smart-log" nvme smart-log "/dev/$controller"
check "effects-log" nvme effects-log "/dev/$controller"
check "error-log" nvme error-log "/dev/$controller" -e 1
check "fw-log" nvme fw-log "/dev/$controller"
check "ana-log" nvme ana-log "/dev/$controller"
for ns in $namespaces; do
    device=$(device_of "$ns") || { fail "namespace $ns has a block device"; finish; }
    block=$(cat "/sys/block/${device##*/}/queue/logical_block_size")
    pass "namespace $ns is $device, blocks of $block, physical $(cat "/sys/block/${device##*/}/queue/physical_block_size")"
    nvme id-ns "$device" | sed -n 's/^nguid *: *//p' > "/tmp/nguid.$ns"
    check "namespace $ns: mkfs.ext4" mkfs.ext4 -q -F "$device" || finish
    mkdir -p "/mnt/$ns"
    check "namespace $ns: mount" mount "$device" "/mnt/$ns" || finish
    check "namespace $ns: write files" sh -c 'cp -a /etc "$1/etc" && head -c 20000000 /dev/urandom > "$1/random" && sync' - "/mnt/$ns"
    check "namespace $ns: write and delete" sh -c 'head -c 30000000 /dev/urandom > "$1/gone" && sync && rm "$1/gone"' - "/mnt/$ns"
    check "namespace $ns: fstrim" fstrim -v "/mnt/$ns"
    (cd "/mnt/$ns" && find . -xdev -type f -exec sha256sum {} +) > "/tmp/sums.$ns"
    check "namespace $ns: unmount" umount "/mnt/$ns"
done
disconnect

# The same data by every kind of connection, and each leaves something that the next one compares.
for options in "-g" "-G" "-g -G" ""; do
    connect $options || finish
    for ns in $namespaces; do
        device=$(device_of "$ns") || { fail "namespace $ns has a block device"; finish; }
        check "namespace $ns: the NGUID is the same" sh -c '[ "$(nvme id-ns "$1" | sed -n "s/^nguid *: *//p")" = "$(cat "$2")" ]' - "$device" "/tmp/nguid.$ns"
        check "namespace $ns: e2fsck" e2fsck -fn "$device"
        check "namespace $ns: mount" mount "$device" "/mnt/$ns" || finish
        check "namespace $ns: all $(wc -l < "/tmp/sums.$ns") files are the same" sh -c 'cd "$1" && sha256sum --quiet -c "$2"' - "/mnt/$ns" "/tmp/sums.$ns"
        check "namespace $ns: write one more" sh -c 'head -c 3000000 /dev/urandom > "$1/with$2"' - "/mnt/$ns" "${options// /}"
        (cd "/mnt/$ns" && find . -xdev -type f -exec sha256sum {} +) > "/tmp/sums.$ns"
        check "namespace $ns: unmount" umount "/mnt/$ns"
    done
    disconnect
done
finish
