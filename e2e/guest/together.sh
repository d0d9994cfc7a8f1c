#!/bin/bash
# In the guest: the kernel as one of the clients of together.sh. It writes by ext4, waits for the host to kill the node
# and start it again while it goes on writing, and finds everything.
#   together.sh ADDRESS PORT NQN NSID
# Hook of the host: killed (returns when the node was killed and is there again).
set -u
shopt -s extglob
address=$1 port=$2 nqn=$3 nsid=$4
failures=0
check() {
    local what=$1; shift
    if "$@" > /tmp/check.out 2>&1; then echo "PASS: $what"; else
        echo "FAIL: $what (exit status $?)"; head -n 20 /tmp/check.out | sed 's/^/    /'
        failures=$((failures + 1)); return 1
    fi
}
device_of() {
    local try device
    for try in $(seq 200); do
        for device in /sys/block/nvme+([0-9])n*; do
            [ "$(cat "$device/nsid" 2> /dev/null)" = "$1" ] && { echo "/dev/${device##*/}"; return 0; }
        done
        sleep 0.1
    done
    return 1
}
fio_job() {
    check "the kernel: fio $1" fio --name=job --directory=/mnt/x --size=8m --rw=randwrite --bs=4k --iodepth=16 \
        --direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 --eta=never "${@:2}"
}

modprobe nvme-tcp
check "the kernel connects, with both digests" nvme connect -t tcp -a "$address" -s "$port" -n "$nqn" -i 2 -g -G \
    --keep-alive-tmo=30 --reconnect-delay=1 --ctrl-loss-tmo=240 || exit 1
device=$(device_of "$nsid") || { echo "FAIL: namespace $nsid has a block device"; exit 1; }
mkdir -p /mnt/x
check "the kernel: mkfs.ext4" mkfs.ext4 -q -F "$device"
check "the kernel: mount" mount "$device" /mnt/x || exit 1
fio_job "writes at random, verified"
cp -a /etc /mnt/x/etc && sync
(cd /mnt/x && find . -xdev -type f -exec sha256sum {} +) > /tmp/sums
# What is under way when the node dies: the kernel sends it again.
write_on() {
    local n=0
    while [ ! -e /tmp/stop ]; do
        n=$((n + 1))
        head -c 262144 /dev/urandom > "/mnt/x/$n" && sync -f "/mnt/x/$n" || echo "$n" >> /tmp/lost
        sleep 0.2
    done
}
write_on &
writer=$!
check "the kernel: the node is killed and started" kc-host hook killed
sleep 2
touch /tmp/stop
check "the kernel: the writer ends" wait $writer
check "the kernel: none of its files was lost" test ! -e /tmp/lost
echo 3 > /proc/sys/vm/drop_caches
check "the kernel: all files are the same" sh -c 'cd /mnt/x && sha256sum --quiet -c /tmp/sums'
fio_job "finds what it wrote" --verify_only=1
check "the kernel: unmount" umount /mnt/x
check "the kernel: e2fsck" e2fsck -fn "$device"
check "the kernel: disconnect" nvme disconnect -n "$nqn"
[ $failures = 0 ]
