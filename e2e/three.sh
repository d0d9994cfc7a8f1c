#!/bin/bash
# Three nodes in one process, each block on all of them: anybody can start that, and use each node's volumes.
# Time: 120 s.
. "$(dirname "$0")/lib.sh"

need three fio nbdinfo nbdcopy qemu-io python3 || finish

status() { is "$1" status; }
of_node() { "$cairn" node ls -o json | python3 -c "import json, sys; print(json.load(sys.stdin)[$1]['$2'])"; }
load() {
    fio --name="$1" --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=randwrite --bs="$2" --iodepth=16 --size=48M \
        --verify=crc32c --verify_fatal=1 --eta=never "${@:3}"
}

# What two nodes pass on, at once.
through_two_nodes() {
    local n pids=()
    for n in 2 3; do
        (cd "$work" && exec fio --name="a$n" --ioengine=nbd --uri="nbd://$(of_node $((n - 1)) nbd_address)/a" --rw=randwrite --bs=8k --iodepth=16 --size=24M \
            --offset=$((n * 32))M --verify=crc32c --verify_fatal=1 --do_verify=1 --eta=never) & pids+=($!)
    done
    for n in "${pids[@]}"; do wait "$n" || return; done
}

check "more copies than nodes are refused" refused "say --nodes 3" "$cairn" demo --dir "$work/few" --nodes 2 --replicas 3
start_demo --nodes 3 --replicas 3 --device-size 1G --volume a:256M
check "three nodes are up, each with its addresses" is 'assert [n["name"] for n in s] == ["node-1", "node-2", "node-3"], s
assert all(n["state"] == "up" and n["pid"] > 0 for n in s), s
assert len({n[a] for n in s for a in ("nvme_address", "nbd_address")}) == 6, s' node ls
"$cairn" volume create b --size 256M > /dev/null
"$cairn" volume create c --size 256M > /dev/null
check "volumes are dealt to the nodes" is 'assert len({v["nbd_uri"].split("/")[2] for v in s}) == 3, s' volume ls
check "each can be reached through every node by NVMe" is 'assert all(len(v["nvme_addresses"]) == 3 for v in s), s' volume ls
check "the cluster is healthy and keeps three copies" until_it_is 10 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
for volume in a b c; do check "$volume is written, verified" load "$volume" 4k --do_verify=1; done
check "each block lies on each device" status 'live = [d["live_bytes"] for d in s["devices"]]
assert len(live) == 3 and min(live) > 100 << 20 and max(live) - min(live) < 8 << 20, live'
one=$(of_node 0 nbd_address) two=$(of_node 1 nbd_address) three=$(of_node 2 nbd_address)
is_at() { [ "$(field "$1" nbd_uri)" = "nbd://$2/$1" ]; }
check "every node lists all" sh -c 'for v in a b c; do nbdinfo --list "$1" | grep -q "export=\"$v\"" || exit; done' - "nbd://$two"
check "and moves none by that" is_at a "$one"
# Who has it open keeps it; others are passed on.
mkfifo "$work/keeps"
qemu-io -f raw "nbd://$one/a" < "$work/keeps" > /dev/null 2>&1 &
keeper=$!
exec 7> "$work/keeps"
echo "read 0 4k" >&7
sleep 1
check "a is written through two nodes that are not its head, verified" through_two_nodes
check "its head is the same" is_at a "$one"
check "what they wrote is read at the head" sh -c 'cd "$1" && fio --name=a2 --ioengine=nbd --uri="nbd://$2/a" --rw=randwrite \
    --bs=8k --size=24M --offset=64M --verify=crc32c --verify_only=1 --eta=never' - "$work" "$one"
check "a is copied through another node" nbdcopy "nbd://$two/a" "$work/a.img"
check "and back, by many connections" nbdcopy --connections=4 "$work/a.img" "nbd://$three/a"
check "it is the same everywhere" sh -c 'nbdcopy "$1" - | cmp - "$3" && nbdcopy "$2" - | cmp - "$3"' - "nbd://$one/a" "nbd://$three/a" "$work/a.img"
check "holes and all are told through another node" sh -c '[ "$(nbdinfo --map "$1")" = "$(nbdinfo --map "$2")" ]' - "nbd://$one/a" "nbd://$two/a"
exec 7>&-
wait "$keeper"
# Nobody has it open: it is served where it is opened.
check "a is read through node 2" qemu-io -r -f raw -c "read 0 1M" "nbd://$two/a"
check "which has become its head" is_at a "$two"
check "and is verified through node 3" load a 4k --verify_only=1 --uri="nbd://$three/a"
check "a snapshot is taken where the volume is served" "$cairn" snapshot create b@before
check "b is written again, verified" load b 16k --do_verify=1
check "and cloned there" "$cairn" clone b@before b2
check "the clone is read" qemu-io -r -f raw -c "read 0 1M" "$(field b2 nbd_uri)"
check "the snapshot is rolled back to" "$cairn" snapshot rollback b@before
check "snapshots of volumes of different nodes are one instant, under load" \
    python3 "$root/e2e/instant.py" "$cairn" "$(field b nbd_uri)" "$(field c nbd_uri)" 10
check "one of several that cannot be: none is taken" refused "b@i1" "$cairn" snapshot create c@new b@i1
check "and none is there" sh -c '! "$1" snapshot ls c | grep -q new' - "$cairn"
check "a volume goes into the trash, wherever it is served" "$cairn" volume delete b2
check "and is restored" "$cairn" trash restore b2
check "c is written before the power fails" load c 4k --do_verify=0
kill -KILL "$demo_pid"; wait "$demo_pid" 2> /dev/null
start_demo
check "all nodes are there again, without being told" is 'assert len(s) == 3, s' node ls
check "what was written is there" load c 4k --verify_only=1
check "and so is what others serve" load a 4k --verify_only=1
check "every group serves" status 'assert s["health"] == "healthy" and s["groups_serving"] == 100, s'
stop_demo
check "other numbers of nodes are refused" refused "3 nodes" "$cairn" demo --dir "$work/d" --nodes 2
for node in 1 2 3; do
    check "node $node's device has no fault" "$cairn" device check "$work/d/node-$node/device-1.img"
done
finish
