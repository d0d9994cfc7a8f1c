#!/bin/bash
# One of three members is full long before the others: new blocks are refused, as no copy may be missing; what is there is read and
# written over, also by a member that was away, and a deletion makes room.
# Mostly waits.
# Time: 200 s.
. "$(dirname "$0")/lib.sh"

need member-full fio etcd python3 || finish

old=$work/d/node-3/device-1.img small=$work/d/node-3/device-2.img
admin_of() { echo "http://127.0.0.1:$(sed -n 's/^admin_port = //p' "$work/d/node-$1/node.toml")"; }
load() {
    fio --name=a --ioengine=nbd --uri="$(field a nbd_uri)" --rw=randwrite --bs=4k --iodepth=8 --size=64M \
        --verify=crc32c --verify_fatal=1 --eta=never "$@"
}
# Until it is refused; fio says so, and ends with an error.
fill() {
    fio --name=fill --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=write --bs=1M --iodepth=16 --size=1G --eta=never \
        --output="$work/fio.out" > /dev/null 2>&1
    grep -q 'No space left on device' "$work/fio.out" || { tail -n 5 "$work/fio.out"; return 1; }
}

start_demo --nodes 3 --replicas 3 --processes --device-size 1G --volume a:128M
check "a volume is written" load --do_verify=1
truncate -s 512M "$small"
check "a smaller device is formatted" "$cairn" device format "$small"
check "its node takes it" env CAIRN_ADMIN="$(admin_of 3)" "$cairn" device add "$small"
check "it takes the place of the larger one" "$cairn" device replace "$old" "$small"
check "until all is on it" until_it_is 60 'd = [d for d in s["devices"] if d["node"] == "node-3"]
assert [one["groups"] for one in d if one["path"].endswith("2.img")] == [100] and s["health"] == "healthy", s' status
check "and the larger one leaves" within 30 "$cairn" device rm "$old"
check "its node's file does not name it any more" sh -c '! grep -q device-1.img "$1" && grep -q device-2.img "$1"' - "$work/d/node-3/node.toml"

"$cairn" volume create big --size 2G > /dev/null
check "the member that is full is asked: there is no space left" fill big
check "status says which device is full, and what to do" until_it_is 20 'f = [f for f in s["findings"] if "full" in f["cause"]]
assert f and "device-2.img" in str(f) and "volume delete" in str(f), s' status
check "the others have room" is 'd = {d["path"][-5:]: d for d in s["devices"] if d["node"] != "node-3"}
assert all(one["live_bytes"] * 2 < one["capacity_bytes"] for one in d.values()), s' status
check "no group stands still" until_it_is 20 'assert s["groups_serving"] == s["groups"], s' status
# 90 % are for new blocks: however fast they are written, the rest is not used up before others know that there is no more.
check "what is kept for overwrites is there" is 'd = [d for d in s["devices"] if d["path"].endswith("2.img")][0]
assert d["live_bytes"] < d["capacity_bytes"] * 0.97, d' status
# Until others go on without it; then it is brought what it lacks, full as it is.
stands_still() {
    local worker
    worker=$("$cairn" node ls -o json |
        python3 -c 'import json, sys; print(*[node["pid"] for node in json.load(sys.stdin) if node["name"] == "node-3"])')
    for _ in 1 2; do
        kill -STOP "$worker"
        until_it_is 20 'assert any("node-3" in f["cause"] for f in s["findings"]), s' status || { kill -CONT "$worker"; return 1; }
        sleep 3
        kill -CONT "$worker"
        sleep 2
    done
}
stands_still & still=$!
check "what is there is written over, while the full member stands still and goes on" load --do_verify=1 --time_based --runtime=12
check "others went on without it" wait "$still"
check "what was written before is read" load --verify_only=1
# Who was slow, and is caught up with, is not read until it has all.
check "all copies are the same" within 60 "$cairn" check
check "a volume is deleted for good" "$cairn" volume delete big --now
check "which makes room" until_it_is 60 'd = [d for d in s if d["path"].endswith("2.img")][0]
assert d["live_bytes"] < 128 << 20, d' device ls
"$cairn" volume create next --size 128M > /dev/null
check "new blocks are taken again" fio --name=next --ioengine=nbd --uri="$(field next nbd_uri)" --rw=write --bs=256k --iodepth=4 \
    --size=96M --verify=crc32c --verify_fatal=1 --do_verify=1 --eta=never
check "the cluster is healthy" until_it_is 60 'assert s["health"] == "healthy", s' status
stop_demo
check "the small device has no fault" "$cairn" device check "$small"
finish
