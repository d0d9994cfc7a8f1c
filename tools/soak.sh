#!/bin/bash
# The long form of what `make test` proves in short: a device overwritten ten times and verified each time, the same with
# snapshots coming and going, power cuts in between as far as a process can have them (kill -9), the whole device read in the
# end; then the simulator over many seeds, and the sessions of the kernel's NVMe host once more, on a newer Linux.
#   tools/soak.sh [SIZE_MIB [SEEDS]]     default: a device of 2,048 MiB, 300 seeds; about 40 minutes on two cores
set -u
size_mib=${1:-2048} seeds=${2:-300}
. "$(dirname "$0")/../e2e/lib.sh"
share() { echo $((size_mib * 9 / 10 * $1 / 100)); }

# overwrite NAME SHARE TIMES: writes all of the volume at random, reads it back and compares, so often.
overwrite() {
    fio --name="$1" --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=randwrite --bs=4k --iodepth=32 --size="$(share "$2")M" \
        --loops="$3" --verify=crc32c --verify_fatal=1 --do_verify=1 --randrepeat=0 --eta=never
}

# snapshots NAME FILE: takes one each few seconds and deletes the one before it, as long as FILE is there. Says how many.
snapshots() {
    local number=0
    while [ -e "$2" ]; do
        number=$((number + 1))
        "$cairn" snapshot create "$1@s$number" >> "$work/snapshots.log" 2>&1 || return 1
        sleep 3
        [ "$number" = 1 ] || "$cairn" snapshot delete "$1@s$((number - 1))" >> "$work/snapshots.log" 2>&1 || return 1
    done
    echo "$number"
}

start_again() {
    kill -KILL "$demo_pid"
    wait "$demo_pid" 2> /dev/null
    demo_pid=
    start_demo
}

if need soak fio python3; then
    start_demo --device-size "${size_mib}M" --volume "full:$(share 80)M"
    check "80 % of what is usable, overwritten ten times, is right each time" overwrite full 80 10
    start_again
    check "and once more after kill -9" overwrite full 80 1
    check "it is deleted" "$cairn" volume delete full --now
    "$cairn" volume create kept --size "$(share 25)M" > /dev/null
    touch "$work/go"
    snapshots kept "$work/go" > "$work/snapshots" &
    snapshooter=$!
    check "a quarter, overwritten ten times under snapshots that come and go, is right each time" overwrite kept 25 10
    rm "$work/go"
    check "all snapshots were taken and deleted" wait "$snapshooter"
    check "there were some" test "$(cat "$work/snapshots")" -ge 3
    start_again
    check "and once more after kill -9" overwrite kept 25 1
    stop_demo
    check "not a byte of the device is wrong" "$cairn" device check "$work/d/node-1/device-1.img"
fi
for workload in store volume; do
    check "the simulator, $workload, $seeds seeds" "$(dirname "$cairn")/cairn-sim" run "$workload" \
        --seeds "1000..$((1000 + seeds))"
done
# Debian's backport of 6.12, which knows atomic writes; downloaded by the guest's builder, on its first use.
kernel_sessions() { KERNEL_CLIENT_KERNEL=backports "$root/e2e/kernel-nvme.sh" > "$work/kernel.out"; }
kernel_sessions; status=$?
sed 's/^/      /' "$work/kernel.out"
if [ $status = 0 ]; then pass "the kernel's sessions on Linux 6.12, atomic writes too"; else
    fail "the kernel's sessions on Linux 6.12 (exit status $status)"
fi
finish
