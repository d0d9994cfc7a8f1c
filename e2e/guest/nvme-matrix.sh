#!/bin/bash
# In the guest: each format by each kind of digest, raw and under each file system: fio verifies 4 KiB at random,
# 128 KiB in order and a mix of sizes, reads and writes, trims, and what was trimmed reads as zeroes. It overwrites both
# namespaces.
#   nvme-matrix.sh ADDRESS PORT NQN NSID NSID
set -u
[ $# = 5 ] || { sed -n 2,5p "$0"; exit 2; }
address=$1 port=$2 nqn=$3; shift 3
failures=0
shopt -s extglob
check() {
    local what=$1; shift
    if "$@" > /tmp/check.out 2>&1; then echo "PASS: $what"; else
        echo "FAIL: $what (exit status $?)"; head -n 20 /tmp/check.out | sed 's/^/    /'
        failures=$((failures + 1)); return 1
    fi
}
device_of() { # device_of NSID
    local try device
    for try in $(seq 100); do
        for device in /sys/block/nvme+([0-9])n*; do
            [ "$(cat "$device/nsid" 2> /dev/null)" = "$1" ] && { echo "/dev/${device##*/}"; return 0; }
        done
        sleep 0.1
    done
    return 1
}
# One call of fio for all of it: starting it takes a second here.
fio_verify() { # fio_verify WHERE...
    fio --direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 --eta=never --size=4m --iodepth=16 "$@" \
        --name=random --stonewall --rw=randwrite --bs=4k \
        --name=sequential --stonewall --rw=write --bs=128k \
        --name=mixed --stonewall --rw=randrw --bsrange=4k-64k
}
trims() { # trims DEVICE: 4 MiB in pieces, at random, all of it
    fio --name=trim --filename="$1" --size=4m --rw=randtrim --bs=64k --direct=1 --eta=never &&
        cmp -n 4194304 "$1" /dev/zero
}
repairs() { case $1 in ext4) e2fsck -fn "$2" ;; xfs) xfs_repair -n "$2" ;; esac; }
force() { case $1 in ext4) echo -F ;; xfs) echo -f ;; esac; }

modprobe nvme-tcp
mkdir -p /mnt/x
for digests in "" "-g" "-G" "-g -G"; do
    what="digests '$digests'" sizes="4k random, 128k sequential, mixed"
    check "connect $what" nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" $digests || exit 1
    for nsid in "$@"; do
        device=$(device_of "$nsid") || { echo "FAIL: namespace $nsid has a block device"; exit 1; }
        block=$(cat "/sys/block/${device##*/}/queue/logical_block_size")
        check "$what, blocks of $block, raw: fio $sizes" fio_verify --filename="$device"
        check "$what, blocks of $block, raw: trims, and zeroes then" trims "$device"
        for system in ext4 xfs; do
            check "$what, blocks of $block: mkfs.$system" "mkfs.$system" -q $(force $system) "$device"
            check "$what, blocks of $block: mount $system" mount "$device" /mnt/x || exit 1
            check "$what, blocks of $block, $system: fio $sizes" fio_verify --directory=/mnt/x
            check "$what, blocks of $block, $system: fstrim" fstrim /mnt/x
            check "$what, blocks of $block, $system: unmount" umount /mnt/x
            check "$what, blocks of $block, $system: is without a fault" repairs $system "$device"
        done
    done
    check "disconnect $what" nvme disconnect -n "$nqn"
done
bad='I/O error|Buffer I/O|XFS.*(error|Corrupt)|EXT4-fs error|Oops|BUG:|WARNING:|hung|nvme.*timeout'
if dmesg | grep -E "$bad" > /tmp/bad; then
    echo "FAIL: the kernel's log is clean"; head -n 10 /tmp/bad | sed 's/^/    /'; exit 1
fi
echo "PASS: the kernel's log is clean"
[ $failures = 0 ]
