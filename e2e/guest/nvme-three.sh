#!/bin/bash
# In the guest: three nodes of a cluster. The first connect goes to one that does not serve the volume, and gives a device all
# the same; the others give more paths; the volume goes from node to node while it is written. It overwrites the namespace.
#   nvme-three.sh ADDRESS NQN NSID VOLUME PORT1 PORT2 PORT3
# Hook of the host: cairn ARGS... (the command line).
set -u
[ $# = 7 ] || { sed -n 2,6p "$0"; exit 2; }
address=$1 nqn=$2 nsid=$3 volume=$4 ports=("${@:5}")
hostnqn=nqn.2014-08.org.nvmexpress:uuid:5b1ce7a0-5b1c-4e7a-8b1c-e7a05b1ce7a3
hostid=5b1ce7a0-5b1c-4e7a-8b1c-e7a05b1ce7a3
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
    if dmesg | grep -E 'I/O error|Buffer I/O|Oops|BUG:|WARNING:|hung|ANATT timeout|resetting controller' > /tmp/bad; then
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
connect() { # connect NODE
    nvme connect -t tcp -a "$address" -s "${ports[$1 - 1]}" -n "$nqn" -i 2 --hostnqn="$hostnqn" --hostid="$hostid" \
        --keep-alive-tmo=20 --reconnect-delay=1 --ctrl-loss-tmo=120
}
# Whether the path by this node is in this state.
path_is() { # path_is NODE STATE
    local controller path
    for controller in /sys/class/nvme/nvme*; do
        grep -q "trsvcid=${ports[$1 - 1]}\b" "$controller/address" 2> /dev/null || continue
        for path in "$controller"/nvme*c*n*; do
            [ "$(cat "$path/ana_state" 2> /dev/null)" = "$2" ] && return 0
        done
    done
    return 1
}
load() { # load NAME SECONDS
    fio --name="$1" --filename="$device" --size=16m --rw=randwrite --bs=4k --iodepth=8 --direct=1 --ioengine=libaio \
        --verify=crc32c --verify_fatal=1 --time_based --runtime="$2" --rate_iops=300 --eta=never
}

# Whether discovery at node 2 leads to all three.
discovered() {
    local port
    nvme discover -t tcp -a "$address" -s "${ports[1]}" --hostnqn="$hostnqn" --hostid="$hostid" > /tmp/discovery || return 1
    cat /tmp/discovery
    for port in "${ports[@]}"; do grep -qE "^trsvcid: +$port *$" /tmp/discovery || return 1; done
}

modprobe nvme-tcp || { fail "modprobe nvme-tcp"; finish; }
check "discovery at node 2 names all three nodes" discovered
check "connect to node 2, which does not serve the volume" connect 2 || finish
check "it has a device" within 30 device_of "$nsid" || finish
device=$(device_of "$nsid")
check "by an optimized path" path_is 2 optimized
check "it is written and verified" fio --name=first --filename="$device" --size=4m --rw=randwrite --bs=4k --iodepth=8 \
    --direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 --eta=never
check "connect to node 1" connect 1
check "connect to node 3" connect 3
check "that is one device more by no path" sh -c '[ "$(ls -d /sys/block/nvme*n* | grep -vc "c[0-9]*n")" = 1 ]'
check "the path by node 3 is inaccessible" within 10 path_is 3 inaccessible
check "the volume goes home, to node 1, as a host is there" within 30 path_is 1 optimized

load moved 14 > /tmp/fio.out 2>&1 &
fio=$!
sleep 2
check "move it to node 3 while it is written" kc-host hook cairn volume move "$volume" node-3
check "the path by node 3 is optimized" within 10 path_is 3 optimized
check "the one by node 1 is not" within 10 path_is 1 inaccessible
sleep 2
check "move it to node 2" kc-host hook cairn volume move "$volume" node-2
check "the path by node 2 is optimized" within 10 path_is 2 optimized
check "I/O is under way" kill -0 $fio
if wait $fio; then pass "fio ends without an error, and what it wrote is verified"; else
    fail "fio across two moves (exit status $?)"; tail -n 20 /tmp/fio.out | sed 's/^/    /'
fi
check "disconnect" nvme disconnect -n "$nqn"
finish
