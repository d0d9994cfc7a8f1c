#!/bin/bash
# In the guest: native multipath over two of three nodes. The one that serves is killed, stands still, is cut off and falls
# silent, while a file system and a raw namespace are written; and a third volume, whose groups need all three nodes, stands
# still for a minute and a half beside them. It overwrites all three namespaces.
#   nvme-failover.sh NQN NSID_FILES NSID_RAW NSID_STRICT
# Links of the host: one and two, to the doors of nodes 1 and 2. Hooks: cairn ARGS... (the command line), send SIGNAL NODE.
set -u
[ $# = 4 ] || { sed -n 2,7p "$0"; exit 2; }
nqn=$1 files=$2 raw=$3 strict=$4
hostnqn=nqn.2014-08.org.nvmexpress:uuid:5b1ce7a0-5b1c-4e7a-8b1c-e7a05b1ce7a4
hostid=5b1ce7a0-5b1c-4e7a-8b1c-e7a05b1ce7a4
# A host is not to wait for longer, by its own clock.
stall_seconds=15
failures=0

pass() { echo "PASS: $*"; }
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
check() {
    local what=$1; shift
    if "$@" > /tmp/check.out 2>&1; then pass "$what"; else
        fail "$what (exit status $?)"; head -n 20 /tmp/check.out | sed 's/^/    /'; return 1
    fi
}
# A path that goes away is said, and tried again: what was lost, or failed, is not.
finish() {
    if dmesg | grep -E 'I/O error, dev|Buffer I/O|EXT4-fs error|Oops|BUG:|WARNING:|hung|blocked for more|ANATT timeout' > /tmp/bad; then
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
# Linux 6.1.192 waits for a keep alive that has timed out until it times out once more, each a second later than asked: with the
# 5 s that it takes if nothing is said, half of that, 6 s and 6 s are 14.5 s; with 4 s it is 12.
connect() { # connect one|two
    local link=KC_LINK_$1
    nvme connect -t tcp -a "${!link%:*}" -s "${!link##*:}" -n "$nqn" -i 2 --hostnqn="$hostnqn" --hostid="$hostid" \
        --keep-alive-tmo=4 --reconnect-delay=1 --ctrl-loss-tmo=600
}
controller_of() { # controller_of one|two
    local link=KC_LINK_$1 controller
    for controller in /sys/class/nvme/nvme*; do
        grep -q "trsvcid=${!link##*:}\b" "$controller/address" 2> /dev/null && { echo "$controller"; return; }
    done
    return 1
}
is_live() { [ "$(cat "$(controller_of "$1")/state")" = live ]; }
# Whether the path to a namespace by this link is in this state.
path_is() { # path_is one|two NSID STATE
    local path
    for path in "$(controller_of "$1")"/nvme*c*n*; do
        [ "$(cat "$path/nsid" 2> /dev/null)" = "$2" ] && [ "$(cat "$path/ana_state" 2> /dev/null)" = "$3" ] && return 0
    done
    return 1
}
# load NAME SECONDS WHERE...: written over and over, read back and compared at the end.
load() {
    fio --name="$1" --size=12m --rw=randwrite --bs=4k --iodepth=4 --direct=1 --ioengine=libaio --verify=crc32c \
        --verify_fatal=1 --time_based --runtime="$2" --rate_iops=150 --eta=never --output-format=json \
        --output="/tmp/$1.json" "${@:3}"
}
begin() { # begin SECONDS: both kinds of load
    load files "$1" --directory=/mnt/x --overwrite=1 > /tmp/files.out 2>&1 & files_load=$!
    load raw "$1" --filename="$raw_device" > /tmp/raw.out 2>&1 & raw_load=$!
    sleep 3
}
judge() { # judge WHAT: both have ended, without an error, and without a long stall
    local kind longest
    for kind in files raw; do
        local load=${kind}_load
        if wait "${!load}"; then pass "$1: $kind: no error, and what was written is read back"; else
            fail "$1: $kind (exit status $?)"; tail -n 20 "/tmp/$kind.out" | sed 's/^/    /'
        fi
        # fio notes what it does not like before its report.
        longest=$(sed -n '/^{/,$p' "/tmp/$kind.json" | jq '.jobs[0] | [.write, .read] | map(.clat_ns.max) | max / 1e9')
        if jq -en --argjson longest "${longest:-1e9}" --argjson most $stall_seconds '$longest <= $most' > /dev/null; then
            pass "$1: $kind: the longest wait is $longest s"
        else
            fail "$1: $kind: the longest wait is $longest s, more than $stall_seconds"
        fi
    done
}
home() { # both volumes at node 1 again, and both paths
    check "$1: the path by node 1 is there" within 60 is_live one
    check "$1: the path by node 2 is there" within 60 is_live two
    local volume
    for volume in files raw; do
        check "$1: $volume goes back to node 1" within 60 kc-host hook cairn volume move $volume node-1
    done
    check "$1: and is served there" within 20 path_is one "$raw" optimized
    check "$1: all is whole again" within 60 is_whole
}
is_whole() { kc-host hook cairn status -o json | jq -e '.health == "healthy"'; }

modprobe nvme-tcp || { fail "modprobe nvme-tcp"; finish; }
check "connect to node 2 alone, which serves neither" connect two || finish
check "the volume has a device" within 30 device_of "$files" || finish
check "by an optimized path" within 30 path_is two "$files" optimized
check "connect to node 1" connect one || finish
for nsid in "$files" "$raw" "$strict"; do check "namespace $nsid has a device" within 30 device_of "$nsid" || finish; done
files_device=$(device_of "$files") raw_device=$(device_of "$raw") strict_device=$(device_of "$strict")
home "at first"
check "mkfs.ext4" mkfs.ext4 -q -F "$files_device" || finish
mkdir -p /mnt/x
check "mount" mount "$files_device" /mnt/x || finish
check "files are unpacked" sh -c 'cp -a /etc /mnt/x/etc && sync'
(cd /mnt/x && find etc -xdev -type f -exec sha256sum {} +) > /tmp/sums

begin 20
check "kill -9 the head" kc-host hook send KILL 1
judge "killed"
home "killed"

begin 40
check "the head stands still" kc-host hook send STOP 1
sleep 20
check "and goes on" kc-host hook send CONT 1
judge "stood still"
home "stood still"

begin 25
check "the head is cut off from this host" kc-host link one down
sleep 12
check "and is there again" kc-host link one up
judge "cut off"
home "cut off"

begin 35
check "the head falls silent" kc-host link one freeze
sleep 20
check "and speaks again" kc-host link one up
judge "silent"
home "silent"

# Two copies of three are not enough for one volume: it waits, and the others of its controller do not notice.
resets() { dmesg | grep -cE 'resetting controller|rror recovery|timeout' ; }
before=$(resets)
begin 100
check "node 3 stands still" kc-host hook send STOP 3
sleep 4
dd if=/dev/zero of="$strict_device" bs=4k count=64 oflag=direct conv=notrunc > /tmp/strict.out 2>&1 & strict_load=$!
sleep 90
check "what needs all three nodes waits" kill -0 $strict_load
check "no controller was reset" [ "$(resets)" = "$before" ]
check "both are live" sh -c '[ "$(cat "$1/state" "$2/state" | uniq)" = live ]' - "$(controller_of one)" "$(controller_of two)"
check "node 3 goes on" kc-host hook send CONT 3
judge "beside a volume that waits"
if wait $strict_load; then pass "what waited was done"; else fail "what waited: $(cat /tmp/strict.out)"; fi

check "all $(wc -l < /tmp/sums) files are the same" sh -c 'echo 3 > /proc/sys/vm/drop_caches; cd /mnt/x && sha256sum --quiet -c /tmp/sums'
check "unmount" umount /mnt/x
check "e2fsck finds nothing" e2fsck -fn "$files_device"
check "disconnect" nvme disconnect -n "$nqn"
finish
