#!/bin/bash
# Pools and placement as an operator meets them: pools come while nodes run and are used at once; volumes are led from where they
# are to be; what cannot be is said before anything is done.
# Time: 120 s.
. "$(dirname "$0")/lib.sh"

need placement fio python3 || finish

says() { local what=$1; shift; "$@" > "$work/says.out" 2>&1 && grep -q -- "$what" "$work/says.out"; }
load() {
    fio --name="$1" --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=randwrite --bs=4k --iodepth=16 --size=32M \
        --verify=crc32c --verify_fatal=1 --eta=never "${@:2}"
}

start_demo --nodes 3 --replicas 3 --device-size 1G --volume a:256M
check "a volume is gathered where nothing else is said" is 'assert s["placement"] == "gathered" and s["home"] == s["head"] == s["led_from"], s' volume info a
check "the pool says so" says "^placement *gathered" "$cairn" pool info default
check "more copies than nodes are refused, with the reason" refused "4 copies need 4 nodes, and devices are in 3" \
    "$cairn" pool create more --replicas 4
check "racks that nobody has named are one" refused "the 3 nodes that name no rack count as one" \
    "$cairn" pool create more --replicas 2 --failure-domain rack
check "a pool of two copies is made" is 'assert (s["replicas"], s["min_in_sync"], s["failure_domain"], s["groups"], s["devices"]) == (2, 1, "node", 150, 3), s' \
    pool create fast --replicas 2
check "what two copies mean is said" says "^warning" "$cairn" pool info fast
check "its name is taken" refused "exists already" "$cairn" pool create fast --replicas 2
check "pools are listed" is 'assert [(p["name"], p["replicas"]) for p in s] == [("default", 3), ("fast", 2)], s' pool ls
check "every group of both serves" until_it_is 20 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 250, s' status

check "a volume of two copies goes to the pool that keeps them" is 'assert s["pool"] == "fast", s' \
    volume create two --size 64M --replicas 2
check "copies that the pool does not keep are refused" refused "keeps 3 copies of a block, and not 2" \
    "$cairn" volume create x --size 64M --pool default --replicas 2
check "copies that no pool keeps are refused" refused "cairn pool create NAME --replicas 4" \
    "$cairn" volume create x --size 64M --replicas 4
check "a volume is local to a node" is 'assert s["head"] == s["home"] == s["led_from"] == "node-3", s' \
    volume create l --size 64M --placement local:node-3
check "a node that there is not is refused" refused "node-7 has no device of the pool default" \
    "$cairn" volume create x --size 64M --placement local:node-7
check "a volume is spread" is 'assert s["placement"] == "spread" and "led_from" not in s, s' \
    volume create s --size 64M --placement spread
check "and one of the other pool" is 'assert (s["pool"], s["placement"]) == ("fast", "spread"), s' \
    volume create fs --size 64M --pool fast --placement spread
for volume in a two l s fs; do check "$volume is written, verified" load "$volume" --do_verify=1; done
check "the pool's volumes are spread from now on" is 'assert s["placement"] == "spread", s' pool set fast --placement spread
check "so is the next" is 'assert s["placement"] == "spread", s' volume create next --size 64M --pool fast
check "the last was not moved" is 'assert s["placement"] == "gathered", s' volume info two

check "a volume is moved away from its home" "$cairn" volume move l node-1
check "and what that costs is said" says "by node-1, home node-3: each I/O costs a hop" "$cairn" volume info l
check "it serves on" load l --do_verify=1

# What a volume holds comes to lie elsewhere while it is written; a copy of it stays as it is, in groups of its own.
check "a volume of a snapshot" sh -c '"$1" snapshot create s@before && "$1" clone s@before c' - "$cairn"
load s --time_based --runtime=8 --rate_iops=400 --do_verify=1 > "$work/moved.out" 2>&1 &
fio_pid=$!
sleep 1
check "spread, it comes to be gathered where it is used" is "assert s['placement'] == 'gathered' and s['home'] == s['led_from'] == s['head'], s" \
    volume move s --placement "local:$(field s head)"
check "it lies there already" refused "it lies there already" "$cairn" volume move s --placement "local:$(field s head)"
check "nothing failed meanwhile, and it is what was written" wait "$fio_pid"
check "its snapshot is there" sh -c '"$1" snapshot ls s | grep -q before' - "$cairn"
check "no client sees what it was copied to" is 'assert sorted(v["name"] for v in s) == sorted("a two l s fs next c".split()), s' volume ls
check "what nobody uses comes to lie at another node" is 'assert s["placement"] == "gathered" and s["home"] == s["led_from"] == "node-2", s' \
    volume move next --placement local:node-2
check "from one pool to another" is 'assert (s["pool"], s["placement"]) == ("default", "gathered"), s' \
    volume move fs --placement gathered --pool default
check "one that moves can be told to stay" sh -c '"$1" volume move a --placement spread --no-wait &&
    { "$1" volume move a --give-up || [ "$("$1" volume info a -o json | grep -c "\"spread\"")" = 1 ]; }' - "$cairn"
until_it_is 30 'assert s["volumes_deleting"] == 0 and not s["doing"], s' status || fail "what was left is given back"
kill -KILL "$demo_pid"; wait "$demo_pid" 2> /dev/null
start_demo
check "pools and placements outlive the process" is 'assert [(p["name"], p["placement"]) for p in s] == [("default", "gathered"), ("fast", "spread")], s' pool ls
check "every group serves again" until_it_is 20 'assert s["health"] == "healthy" and s["groups_serving"] == 250, s' status
check "the copy holds what the volume held before" load c --verify_only=1
for volume in a two l s fs; do check "what $volume held is there" load "$volume" --verify_only=1; done
stop_demo
for node in 1 2 3; do
    check "node $node's device has no fault" "$cairn" device check "$work/d/node-$node/device-1.img"
done
finish
