#!/bin/bash
# In the guest, Linux 6.11 or newer: writes that must not be torn (RWF_ATOMIC). The kernel has seen how large they may
# be, takes one of that size, and refuses what could be torn. It overwrites both namespaces. The guest's native multipath
# must be off (nvme_core.multipath=N): with it 6.12 shows limits of 0 and takes no such write.
#   nvme-atomic.sh ADDRESS PORT NQN NSID NSID
set -u
[ $# = 5 ] || { sed -n 2,5p "$0"; exit 2; }
address=$1 port=$2 nqn=$3; shift 3
failures=0
check() {
    local what=$1; shift
    if "$@" > /tmp/check.out 2>&1; then echo "PASS: $what"; else
        echo "FAIL: $what (exit status $?)"; head -n 20 /tmp/check.out | sed 's/^/    /'; failures=$((failures + 1))
    fi
}

cat > /tmp/atomic.py << 'PYTHON'
"""atomic.py DEVICE accepted|refused OFFSET LENGTH: one write with RWF_ATOMIC; what was accepted is read back."""
import errno, mmap, os, sys

RWF_ATOMIC = 0x40
device, wanted, offset, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
file = os.open(device, os.O_RDWR | os.O_DIRECT)
written, found = mmap.mmap(-1, length), mmap.mmap(-1, length)
written[:] = os.urandom(length)
try:
    assert os.pwritev(file, [written], offset, RWF_ATOMIC) == length, "written in part"
    assert wanted == "accepted", "it was accepted"
    assert os.preadv(file, [found], offset) == length and found[:] == written[:], "something else is read"
except OSError as error:
    if wanted == "accepted":
        raise
    assert error.errno == errno.EINVAL, error
PYTHON

uname -r
modprobe nvme-tcp
check "connect" nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" -G
shopt -s extglob
for nsid in "$@"; do
    for try in $(seq 100); do
        for queue in /sys/block/nvme+([0-9])n*; do
            [ "$(cat "$queue/nsid" 2> /dev/null)" = "$nsid" ] && break 2
        done
        sleep 0.1
    done
    device=/dev/${queue##*/} block=$(cat "$queue/queue/logical_block_size")
    for limit in unit_min_bytes:$block unit_max_bytes:65536 max_bytes:65536 boundary_bytes:65536; do
        echo "    $device atomic_write_${limit%:*} $(cat "$queue/queue/atomic_write_${limit%:*}")"
        check "blocks of $block: atomic_write_${limit%:*} is ${limit#*:}" \
            [ "$(cat "$queue/queue/atomic_write_${limit%:*}")" = "${limit#*:}" ]
    done
    atomic() { check "blocks of $block: $1" python3 /tmp/atomic.py "$device" "${@:2}"; }
    atomic "an atomic write of 64 KiB is accepted" accepted 131072 65536
    atomic "one of a block" accepted "$block" "$block"
    atomic "one of 16 KiB, the last before a boundary" accepted 49152 16384
    atomic "64 KiB across a boundary are refused" refused 4096 65536
    atomic "8 KiB across one are" refused 61440 8192
    atomic "128 KiB are" refused 131072 131072
    atomic "12 KiB, no power of two, are" refused 0 12288
done
check "disconnect" nvme disconnect -n "$nqn"
[ $failures = 0 ]
