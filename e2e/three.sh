#!/bin/bash
# Three nodes in one process, each block on all of them: anybody can start that, and use each node's volumes.
# Time: 120 s.
. "$(dirname "$0")/lib.sh"

need three fio nbdinfo qemu-io python3 || finish

refused() { local what=$1; shift; ! "$@" > "$work/refused.out" 2>&1 && grep -q -- "$what" "$work/refused.out"; }
is() { "$cairn" "${@:2}" -o json | python3 -c "import json, sys; s = json.load(sys.stdin); $1"; }
status() { is "$1" status; }
of_node() { "$cairn" node ls -o json | python3 -c "import json, sys; print(json.load(sys.stdin)[$1]['$2'])"; }
load() {
    fio --name="$1" --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=randwrite --bs="$2" --iodepth=16 --size=48M \
        --verify=crc32c --verify_fatal=1 --eta=never "${@:3}"
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
check "the cluster is healthy and keeps three copies" status 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s'
for volume in a b c; do check "$volume is written, verified" load "$volume" 4k --do_verify=1; done
check "each block lies on each device" status 'live = [d["live_bytes"] for d in s["devices"]]
assert len(live) == 3 and min(live) > 100 << 20 and max(live) - min(live) < 8 << 20, live'
check "another node says which one to ask" refused "node 1 is the head of volume a" \
    qemu-io -r -f raw -c "read 0 4k" "nbd://$(of_node 1 nbd_address)/a"
check "it lists its own" sh -c 'nbdinfo --list "$1" | grep -q "export=\"b\""' - "nbd://$(of_node 1 nbd_address)"
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
