#!/bin/bash
# `cairn check`: copies that agree, also while they are written to; one that is damaged on its device; one that is away.
# Time: 120 s.
. "$(dirname "$0")/lib.sh"

need check fio python3 || finish

is() { "$cairn" "${@:2}" -o json | python3 -c "import json, sys; s = json.load(sys.stdin); $1"; }
written() {
    fio --name="$1" --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=write --bs=64k --iodepth=4 --size=48M \
        --verify=crc32c --verify_fatal=1 --eta=never "${@:2}"
}
# refused WHAT COMMAND...: exit status 1, and the one line on stderr has WHAT.
refused() {
    local what=$1 status; shift
    "$@" > "$work/out" 2> "$work/err"
    status=$?
    cat "$work/out" "$work/err"
    [ $status = 1 ] && grep -q "$what" "$work/err" && [ "$(wc -l < "$work/err")" = 1 ]
}
# Groups must be whole: copies that are being made are told as not compared.
until_agrees() {
    local tries
    for tries in $(seq 60); do "$cairn" check > "$work/out" 2>&1 && return 0; sleep 1; done
    cat "$work/out"
    return 1
}

start_demo --nodes 3 --replicas 3 --processes --device-size 1G --volume a:128M
check "a volume is written" written a --do_verify=1
check "a snapshot of it is taken, and what is written behind it" bash -c '"$1" snapshot create a@s' - "$cairn"
check "is written" written a --do_verify=0 --size=16M
check "all copies agree" until_agrees
check "it says what it read: three copies of 64 MiB" is \
    'assert s["agree"] and s["over"] and s["copies"] == 3 * s["groups"] == 300 and s["bytes_read"] == 3 * 64 << 20, s' check
check "of one pool alone" is 'assert s["agree"] and s["pool"] == "default" and s["groups"] == 100, s' check --pool default
check "of none that there is not" refused "there is no pool 'other'" "$cairn" check --pool other

fio --name=a --ioengine=nbd --uri="$(field a nbd_uri)" --rw=randwrite --bs=4k --iodepth=4 --size=32M --time_based \
    --runtime=8 --eta=never > "$work/load" 2>&1 & running=$!
sleep 1
check "also while it is written to" until_agrees
wait $running || fail "the load"
stop_demo

# One bit of one block in each chunk of one copy.
damaged=$(python3 - "$root" "$work/d/node-2/device-1.img" << 'EOF'
import subprocess, sys
tool, device = sys.argv[1] + "/tools/read-device.py", sys.argv[2]
listed = subprocess.run([sys.executable, tool, "damage", device], capture_output=True, text=True)
print(listed.stdout.strip() or listed.stderr.strip())
EOF
)
echo "$damaged"
finish
