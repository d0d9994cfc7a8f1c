#!/bin/bash
# `cairn check`: copies that agree, also while they are written to; one that is damaged on its device; ones that differ, and whose sums are all
# right; one that is away.
# Mostly waits.
# Time: 200 s.
. "$(dirname "$0")/lib.sh"

need check fio python3 || finish

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
"$cairn" volume create b --size 64M > /dev/null
check "another one is" written b --do_verify=1 --size=16M
check "a snapshot of it is taken, and what is written behind it" bash -c '"$1" snapshot create a@s' - "$cairn"
check "is written" written a --do_verify=0 --size=16M
check "all copies agree" until_agrees
check "it says what it read: three copies of 80 MiB" is \
    'assert s["agree"] and s["over"] and s["copies"] == 3 * s["groups"] == 300 and s["bytes_read"] == 3 * 80 << 20, s' check
check "of one pool alone" is 'assert s["agree"] and s["pool"] == "default" and s["groups"] == 100, s' check --pool default
check "of none that there is not" refused "there is no pool 'other'" "$cairn" check --pool other

fio --name=a --ioengine=nbd --uri="$(field a nbd_uri)" --rw=randwrite --bs=4k --iodepth=4 --size=32M --time_based \
    --runtime=8 --eta=never > "$work/load" 2>&1 & running=$!
sleep 1
check "also while it is written to" until_agrees
wait $running || fail "the load"
stop_demo

# One bit of one block in each chunk of one copy, where nothing is in the log behind it that would mend it at the start.
cat > "$work/damage.py" << 'EOF'
import json, subprocess, sys
tool, device = sys.argv[1:]
def told(*words):
    said = subprocess.run([sys.executable, tool, words[0], device, "--json", *words[1:]], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)
damaged = set()
with open(device, "r+b") as bytes_of:
    for layer in told("list")["layers"]:
        for block in told("blocks", "--layer", str(layer["layer"]))["blocks"]:
            chunk = (layer["layer"], block["byte"] >> 20)
            if chunk not in damaged:
                damaged.add(chunk)
                bytes_of.seek(block["device_offset"])
                bit = bytes_of.read(1)[0] ^ 1
                bytes_of.seek(block["device_offset"])
                bytes_of.write(bytes([bit]))
print(len(damaged))
EOF
damaged=$(python3 "$work/damage.py" "$root/tools/read-device.py" "$work/d/node-2/device-1.img")
[ "${damaged:-0}" -ge 80 ] && pass "a bit turns over in $damaged chunks of one copy" || fail "damaged: '$damaged'"
start_demo
# At once: scrub reads the same, a little at a time, and has what it finds mended.
finds_damage() {
    local tries
    for tries in $(seq 20); do
        "$cairn" check -o json > "$work/check.json" 2> "$work/err" && return 1
        grep -q unreadable "$work/check.json" && return 0
    done
    cat "$work/check.json" "$work/err"
    return 1
}
check "the check finds it" finds_damage
check "and says where, and what becomes of it" python3 - "$work" << 'EOF'
import json, sys
found = [f for f in json.load(open(sys.argv[1] + "/check.json"))["findings"] if f["kind"] == "unreadable"]
assert found and all("a" in f["volumes"] and f["store"] and f["offset_bytes"] is not None for f in found), found
assert "being mended" in open(sys.argv[1] + "/err").read()
EOF
check "it is mended: all copies agree" until_agrees
check "and what is read is what was written" written b --verify_only=1 --size=16M

# Blocks that their own sums say are right, and that are others: no device and no start of a node sees that, only who compares. What its
# group's primary has is taken for right: so another node's are made others.
led=$(field b led_from)
case $led in node-1) forged=3 ;; *) forged=1 ;; esac
layer=$("$cairn" volume info b -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["layers"][0])')
stop_demo
device=$work/d/node-$forged/device-1.img
# A block in the middle of each chunk but the first.
bytes=$(seq $(((1 << 20) + (77 << 12))) $((1 << 20)) $(((16 << 20) - 1)))
check "blocks of a copy are made others" python3 "$root/e2e/forge.py" "$device" "$layer" $bytes
check "its device has no fault" "$cairn" device check "$device"
check "nor for who reads it without Cairn" python3 "$root/tools/read-device.py" verify "$device"
start_demo
# Who leads may have changed hands meanwhile, if one of the nodes came late.
leads_as_before() {
    is 'assert s["led_from"] == "'"$led"'", s' volume info b && return 0
    "$cairn" volume move b "$led"
    return 1
}
check "who led before leads again" within 30 leads_as_before
finds_differences() {
    local tries
    for tries in $(seq 20); do
        "$cairn" check > "$work/check.txt" 2> "$work/err"
        echo $? > "$work/status"
        "$cairn" check -o json > "$work/check.json" 2> "$work/err"
        echo $? >> "$work/status"
        grep -q '"differs"' "$work/check.json" && grep -q "the copies are not the same" "$work/check.txt" && return 0
    done
    cat "$work/check.json" "$work/err"
    return 1
}
check "the check finds that copies differ" finds_differences
check "its exit status is 1, with or without JSON" sh -c '[ "$(echo $(cat "$1/status"))" = "1 1" ] && grep -q "copies differ" "$1/err"' - "$work"
check "it says of which volume, where, and what which node has" python3 - "$work" "$forged" << 'EOF'
import json, sys
found = [f for f in json.load(open(sys.argv[1] + "/check.json"))["findings"] if f["kind"] == "differs"]
assert found
for one in found:
    assert one["volumes"] == ["b"] and one["offset_bytes"] in range(1 << 20, 16 << 20, 1 << 20), one
    digests = {copy["node"]: copy["digest"] for copy in one["copies"]}
    alone = [node for node, digest in digests.items() if list(digests.values()).count(digest) == 1]
    assert sorted(digests) == ["node-1", "node-2", "node-3"] and alone == ["node-" + sys.argv[2]], one
    assert len({copy["last_entry"] for copy in one["copies"]}) == 1, one
told = open(sys.argv[1] + "/check.txt").read()
assert ", b at byte " in told and "of node-" + sys.argv[2] + ": entry " in told, told
EOF
check "scrub has them mended from the primary: all copies agree" until_agrees
check "what is read is what was written" written b --verify_only=1 --size=16M
check "so it is where others were" sh -c '"$1" volume move b "$2" && "$1" volume info b | grep -q "$2"' - "$cairn" "node-$forged"
check "it is read there" written b --verify_only=1 --size=16M

kill -STOP "$("$cairn" node ls -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[2]["pid"])')"
check "a copy that is away is no copy that agrees" refused "not all copies could be compared" timeout 100 "$cairn" check
finish
