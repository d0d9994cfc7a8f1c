#!/bin/bash
# Devices and nodes are emptied, rest and go while a volume is written; what is told meanwhile is true, and nothing is lost.
# Mostly waits.
# Time: 200 s.
. "$(dirname "$0")/lib.sh"

need duties fio python3 || finish

load() {
    fio --name=a --ioengine=nbd --uri="$(field a nbd_uri)" --rw=randwrite --bs=4k --iodepth=8 --size=128M \
        --verify=crc32c --verify_fatal=1 --eta=never "$@"
}
device() { echo "$work/d/node-$1/device-1.img"; }
says() { local what=$1; shift; "$@" > "$work/says.out" 2>&1 && grep -q -- "$what" "$work/says.out"; }
# order_says NAME ASSERTION: of what an order said, o.
order_says() { python3 -c 'import json, sys; o = json.load(open(sys.argv[1])); exec(sys.argv[2])' "$work/$1.order" "$2"; }

start_demo --nodes 3 --replicas 2 --device-size 1G
"$cairn" volume create a --size 256M > /dev/null
check "the volume is written" load --do_verify=1
# Leads are spread over the nodes in the first seconds.
check "nothing is being done, and every device holds its share" until_it_is 30 'assert s["doing"] == [] and s["at_risk"] == [], s
assert all(d["groups"] >= 95 and d["duty"] == "in" for d in s["devices"]), s' status
check "a device that holds copies is not removed" refused "drain" "$cairn" device rm "$(device 1)"
check "what a drain would move is told, and not begun" is 'assert not s["begun"] and s["groups"] >= 95, s
assert {g["node"] for g in s["gets"]} <= {"node-2", "node-3"} and s["led_elsewhere"] > 0, s' device drain "$(device 1)" --dry-run
check "that was all" is 'assert not [d for d in s["doing"] if d["kind"] == "drain"], s' status

load --time_based --runtime=20 --rate_iops=1500 --do_verify=0 > "$work/fio.out" 2>&1 &
fio_pid=$!
check "the device is drained while the volume is written" order drain device drain "$(device 1)"
check "what it moves is told, and that it has begun" order_says drain 'assert o["begun"] and o["groups"] >= 95 and o["seconds"] > 0, o'
check "status says what is done, and when it ends" until_it_is 10 'd = [d for d in s["doing"] if d["kind"] == "drain"]
assert d and d[0]["groups_left"] > 0 and d[0]["ends_at"] and not s["at_risk"], s' status
check "people are told so, too" sh -c '"$1" status | grep -Eq "device .* is (being )?drained"' - "$cairn"
check "in the end nothing is on it" until_it_is 60 'd = [d for d in s if d["node"] == "node-1"]
assert d[0]["groups"] == 0 and d[0]["duty"] == "draining", s' device ls
check "so much, in so long" as_foretold drain
check "and its space is free: what was copied away is dropped" until_it_is 60 'd = [d for d in s if d["node"] == "node-1"]
assert d[0]["live_bytes"] == 0, s' device ls
check "each copy is on the others" is 'assert all(d["groups"] == 150 for d in s if d["node"] != "node-1"), s' device ls
check "fio goes on all the time" wait "$fio_pid"
check "what was written before is there" load --verify_only=1
check "status says what to do next" is 'd = [d for d in s["doing"] if d["kind"] == "drain"]
assert d[0]["command"].startswith("cairn device rm "), s' status

check "it is taken back" order undrain device undrain "$(device 1)"
check "and gets its share again" until_it_is 60 'assert all(d["groups"] >= 95 and d["groups_coming"] == 0 for d in s) and sum(d["groups"] for d in s) == 300, s' device ls
# What it had was dropped: all of it comes anew.
check "as was told" as_foretold undrain

# A device comes: what it gets is told before, and begun by that.
other=$work/d/node-1/device-2.img
truncate -s 1G "$other"
check "another device is formatted" "$cairn" device format "$other"
check "what it would get is told" is 'assert "path" not in s and not s["share"]["begun"] and 40 <= s["share"]["groups"] <= 100 and s["share"]["seconds"] > 0, s
assert max(s["share"]["gets"], key=lambda of: of["bytes"])["path"].endswith("device-2.img"), s' device add "$other" --dry-run
check "and nothing done" is 'assert len(s) == 3, s' device ls
check "people are told so, too" says "nothing was begun" "$cairn" device add "$other" --dry-run
check "what was copied away is dropped" until_it_is 60 'assert sum(d["live_bytes"] for d in s) < 264 << 20, s' device ls
check "it is added" order add device add "$other"
check "with what it gets" order_says add 'assert o["path"].endswith("device-2.img") and o["share"]["begun"] and 40 <= o["share"]["groups"] <= 100, o'
check "status says how far that is" until_it_is 10 'd = [d for d in s["devices"] if d["path"].endswith("device-2.img")]
assert d[0]["groups"] + d[0]["groups_coming"] > 0 and s["doing"], s' status
check "it gets its share" until_it_is 60 'd = [d for d in s if d["path"].endswith("device-2.img")]
assert 40 <= d[0]["groups"] and sum(d["groups"] for d in s) == 300 and not any(d["groups_coming"] for d in s), s' device ls
check "so much, in so long" as_foretold add

# It takes the first one's place, with all that is there.
check "a device does not take its own place" refused "its own place" "$cairn" device replace "$other" "$other"
check "what a replacement moves is told, and not begun" is 'assert not s["begun"] and s["groups"] > 0 and s["seconds"] > 0, s' device replace "$(device 1)" "$other" --dry-run
check "what was copied away is dropped" until_it_is 60 'assert sum(d["live_bytes"] for d in s) < 264 << 20, s' device ls
check "it is begun" order replace device replace "$(device 1)" "$other"
check "status says how far that is" until_it_is 10 'd = [d for d in s["doing"] if d["kind"] == "drain"]
assert d and (d[0]["groups_left"] == 0 or d[0]["ends_at"]), s' status
check "in the end nothing is on the first one" until_it_is 60 'd = [d for d in s if d["path"].endswith("node-1/device-1.img")]
assert d[0]["groups"] == 0 and sum(d["groups"] for d in s) == 300, s' device ls
check "so much, in so long" as_foretold replace
check "it leaves the cluster" "$cairn" device rm "$(device 1)"

check "that nothing is copied while a node rests is told, and what is led elsewhere" is 'assert not s["begun"] and s["groups"] == s["bytes"] == s["seconds"] == 0 and s["led_elsewhere"] > 0, s' \
    node maintenance node-2 --minutes 5 --dry-run
check "a node rests" "$cairn" node maintenance node-2 --minutes 5
check "not two at once that have both copies of something" refused "fewer members in sync" "$cairn" node maintenance node-3 --minutes 5
check "status says so" is 'assert [d["subject"] for d in s["doing"] if d["kind"] == "maintenance"] == ["node-2"], s' status
check "and it works again" "$cairn" node undrain node-2

check "what was copied away is dropped" until_it_is 60 'assert sum(d["live_bytes"] for d in s) < 264 << 20, s' device ls
check "a node is drained" order node node drain node-3
check "with what that moves" order_says node 'assert o["begun"] and o["groups"] > 50 and o["seconds"] > 0, o'
check "a node that holds copies is not removed" refused "drain" "$cairn" node rm node-3
check "in the end nothing is on it, either" until_it_is 60 'n = [n for n in s if n["name"] == "node-3"]
assert n[0]["groups"] == 0 and n[0]["duty"] == "draining", s' node ls
check "so much, in so long" as_foretold node
check "what was written is there" load --verify_only=1
check "it leaves the cluster" "$cairn" node rm node-3
check "no last node can be drained" refused "copies need" "$cairn" node drain node-2
check "everything is as it should be" until_it_is 30 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"], s' status
stop_demo
for path in "$other" "$(device 2)" "$(device 3)"; do
    check "$path has no fault" "$cairn" device check "$path"
done
finish
