#!/bin/bash
# In the guest: what changes under a host. A volume grows, is taken from the host and given back, and the node is killed while
# I/O waits; and the data of all of it is verified. It overwrites both namespaces.
#   nvme-changes.sh ADDRESS PORT NQN NSID512 NSID4096
# Hooks of the host: cairn ARGS... (the command line), kill (the node, which comes back by itself).
set -u
[ $# = 5 ] || { sed -n 2,6p "$0"; exit 2; }
address=$1 port=$2 nqn=$3 small=$4 large=$5
hostnqn=nqn.2014-08.org.nvmexpress:uuid:5b1ce7a0-5b1c-4e7a-8b1c-e7a05b1ce7a0
hostid=5b1ce7a0-5b1c-4e7a-8b1c-e7a05b1ce7a0
failures=0

pass() { echo "PASS: $*"; }
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
check() {
    local what=$1; shift
    if "$@" > /tmp/check.out 2>&1; then pass "$what"; else
        fail "$what (exit status $?)"; head -n 20 /tmp/check.out | sed 's/^/    /'; return 1
    fi
}
# A node that was killed makes the kernel reconnect and say so: only what was lost is an error.
finish() {
    if dmesg | grep -E 'I/O error, dev|Buffer I/O|XFS.*(error|Corrupt)|Oops|BUG:|WARNING:|hung' > /tmp/bad; then
        fail "the kernel's log is clean"; head -n 10 /tmp/bad | sed 's/^/    /'
    else
        pass "the kernel's log is clean"
    fi
    [ $failures = 0 ]; exit
}
within() { # within SECONDS COMMAND...: until it succeeds
    local until=$((SECONDS + $1)); shift
    while ! "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.2
    done
}
device_of() {
    local subsystem device
    for subsystem in /sys/class/nvme-subsystem/*; do
        [ "$(cat "$subsystem/subsysnqn" 2> /dev/null)" = "$nqn" ] || continue
        for device in /sys/block/nvme"${subsystem##*/nvme-subsys}"n*; do
            [ "$(cat "$device/nsid" 2> /dev/null)" = "$1" ] && { echo "/dev/${device##*/}"; return 0; }
        done
    done
    return 1
}
is_gone() { ! device_of "$1"; }
megabytes() { echo $(($(cat "/sys/block/${1##*/}/size") / 2048)); }
fio_job() { # fio_job NAME OPTIONS...
    check "fio $1" fio --name="$1" --direct=1 --ioengine=libaio --verify_fatal=1 --eta=never "${@:2}"
}

modprobe nvme-tcp || { fail "modprobe nvme-tcp"; finish; }
check "connect" nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" -i 2 -G \
    --hostnqn="$hostnqn" --hostid="$hostid" --keep-alive-tmo=10 --reconnect-delay=1 --ctrl-loss-tmo=120 || finish
within 20 device_of "$small" && within 20 device_of "$large" || { fail "both namespaces have devices"; finish; }
device=$(device_of "$small") other=$(device_of "$large")
controller=/dev/$(basename "$(dirname "$(grep -lxF "$nqn" /sys/class/nvme/nvme*/subsysnqn | head -n 1)")")

# What a person types.
check "list-subsys" nvme list-subsys
check "list-ns" nvme list-ns "$controller"
check "id-ctrl in words" nvme id-ctrl -H "$controller"
cp /tmp/check.out /tmp/id-ctrl
check "it tells compare and write" grep -q 'Fused Compare and Write Supported' /tmp/id-ctrl
check "id-ns in words" nvme id-ns -H "$device"
check "get-feature: what can be done with the number of queues" nvme get-feature "$controller" -f 7 -s 3
check "get-feature: arbitration by default" nvme get-feature "$controller" -f 1 -s 1
check "log 00h: the pages there are" nvme get-log "$controller" --log-id=0 --log-len=1024
check "log 12h: the features there are" nvme get-log "$controller" --log-id=0x12 --log-len=1024
check "changed-ns-list-log" nvme changed-ns-list-log "$controller"
check "ns-rescan" nvme ns-rescan "$controller"
check "dsm: deallocate by hand" nvme dsm "$device" --namespace-id="$small" --ad --blocks=8 --slbs=0

# Both ways of data, and a file system that another one than ext4 made.
fio_job raw-mixed-512 --filename="$device" --size=4m --rw=randrw --bsrange=512-64k --blockalign=512 --iodepth=16 --verify=crc32c
check "trim 4 MiB in pieces" fio --name=trim --filename="$device" --size=4m --rw=randtrim --bs=64k --eta=never
check "it reads as zeroes" cmp -n 4194304 "$device" /dev/zero
check "mkfs.xfs" mkfs.xfs -q -f "$device" || finish
mkdir -p /mnt/x
check "mount xfs" mount "$device" /mnt/x || finish
fio_job xfs-seq-128k --directory=/mnt/x --size=16m --rw=write --bs=128k --iodepth=8 --verify=crc32c
check "unpack files" sh -c 'cp -a /etc /mnt/x/etc && sync'
(cd /mnt/x && find . -xdev -type f -exec sha256sum {} +) > /tmp/sums
check "fstrim" fstrim -v /mnt/x

# It grows under the mount.
before=$(megabytes "$device")
check "resize on the node" kc-host hook cairn volume resize v512 --size $((before + 128))M
larger() { [ "$(megabytes "$device")" = $((before + 128)) ]; }
check "the host sees the new size" within 30 larger
check "xfs_growfs" xfs_growfs /mnt/x
check "all $(wc -l < /tmp/sums) files are the same" sh -c 'cd /mnt/x && sha256sum --quiet -c /tmp/sums'
check "unmount" umount /mnt/x
check "xfs_repair finds nothing" xfs_repair -n "$device"

# The other volume is taken away and given back.
check "allow this host" kc-host hook cairn host allow v4096 "$hostnqn"
check "its device stays" device_of "$large"
check "write what must be there afterwards" sh -c 'head -c 1048576 /dev/urandom > /tmp/kept && dd if=/tmp/kept of="$1" bs=64k oflag=direct status=none' - "$other"
check "deny this host" kc-host hook cairn host deny v4096 "$hostnqn"
check "the device goes" within 30 is_gone "$large"
check "the other one stays" test -b "$device"
check "a denied namespace is in no list" sh -c '! nvme list-ns "$1" | grep -q "$(printf ":0x%x$" "$2")"' - "$controller" "$large"
check "allow it again" kc-host hook cairn host allow v4096 "$hostnqn"
check "the device comes back" within 30 device_of "$large"
other=$(device_of "$large")
check "with what was on it" cmp -n 1048576 "$other" /tmp/kept

# The node is killed while I/O waits: the host reconnects by itself, and nothing is lost.
fio --name=killed --filename="$other" --size=12m --rw=randwrite --bs=4k --iodepth=16 --direct=1 --ioengine=libaio \
    --verify=crc32c --verify_fatal=1 --eta=never --rate_iops=600 > /tmp/fio.out 2>&1 &
fio=$!
sleep 3
check "kill -9 the node" kc-host hook kill
check "I/O is under way" kill -0 $fio
if wait $fio; then pass "fio ends, and what it wrote is verified"; else
    fail "fio across the kill (exit status $?)"; tail -n 20 /tmp/fio.out | sed 's/^/    /'
fi
check "mount xfs after the kill" mount "$device" /mnt/x
check "all files are the same after the kill" sh -c 'cd /mnt/x && sha256sum --quiet -c /tmp/sums'
check "unmount" umount /mnt/x
check "disconnect" nvme disconnect -n "$nqn"
finish
