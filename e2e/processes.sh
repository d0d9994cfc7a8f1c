#!/bin/bash
# Nodes that are processes, over etcd: kill -9 of each kind of process under verified load, and all of them at once.
# Mostly waits.
# Time: 200 s.
. "$(dirname "$0")/lib.sh"

need processes etcd fio nbdinfo python3 || finish

status() { is "$1" status; }
of_node() { "$cairn" node ls -o json | python3 -c "import json, sys; print(json.load(sys.stdin)[$1 - 1]['$2'])"; }
# worker N: the process that is the node; its parent is the supervisor.
worker() { of_node "$1" pid; }
parent() { ps -o ppid= -p "$1" | tr -d ' '; }
# server VOLUME: the node that a client of the volume is told to go to. Which that is depends on who was up first.
server() {
    local port
    port=$(field "$1" nbd_uri | sed 's/.*:\([0-9]*\)\/.*/\1/')
    "$cairn" node ls -o json |
        python3 -c 'import json, sys; [print(n["name"][5:]) for n in json.load(sys.stdin) if n["nbd_address"].endswith(":" + sys.argv[1])]' "$port"
}
etcd_pid() { pgrep -P "$demo_pid" -x etcd; }
# Whatever is killed, this finds its successor.
until_is() {
    local what=$1 tries; shift
    for tries in $(seq 120); do
        "$@" > /dev/null 2>&1 && { pass "$what"; return; }
        sleep 0.5
    done
    fail "$what: not within 60 s"
}
is_whole() { status 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s'; }
is_up() { is "assert s[$1 - 1]['state'] == 'up' and s[$1 - 1]['pid'] not in (0, $2), s" node ls; }
# load NAME SECONDS: written over and over to where the volume is served, then read back and compared.
load() {
    fio --name="$1" --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=randwrite --bs=4k --iodepth=8 --size=32M \
        --time_based --runtime="$2" --verify=crc32c --verify_fatal=1 --do_verify=1 --eta=never
}
written() {
    fio --name="$1" --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=write --bs=64k --iodepth=4 --size=32M \
        --verify=crc32c --verify_fatal=1 --eta=never "${@:2}"
}

start_demo --nodes 3 --replicas 3 --processes --device-size 1G --volume a:128M
check "three nodes are up, each a process of its own" is \
    'assert [n["name"] for n in s] == ["node-1", "node-2", "node-3"] and len({n["pid"] for n in s}) == 3, s' node ls
"$cairn" volume create b --size 128M > /dev/null
"$cairn" volume create c --size 128M > /dev/null
check "volumes are dealt to the nodes" is 'assert len({v["nbd_uri"].split("/")[2] for v in s}) == 3, s' volume ls
# Groups of what was made just now may be on their way to their first primary.
until_is "the cluster is whole" is_whole
for volume in b c; do check "$volume is written" written "$volume" --do_verify=1; done
check "any node does what is another's to do" "$cairn" --admin "$admin" snapshot create c@one
check "and several at one instant" "$cairn" snapshot create a@all b@all c@all
for node in 1 2 3; do
    check "a volume that is open to all is made at node $node, whoever is asked" \
        is "assert s['any_host'] and s['head'] == 'node-$node', s" volume create "l$node" --size 64M --any-host --placement "local:node-$node"
    check "and goes" "$cairn" volume delete "l$node" --now
done
check "the clone is where its volume is" "$cairn" clone c@one c2
check "it goes into the trash" "$cairn" volume delete c2
check "and comes back" "$cairn" trash restore c2

head -c 32 /dev/urandom | base64 > "$work/key"
"$cairn" volume create secret --size 64M --encrypt --key-file "$work/key" --placement local:node-1 > /dev/null 2>&1
# That it has the key others hear in a moment.
check "an encrypted volume goes to another node, which got its key when it was made" within 10 "$cairn" volume move secret node-2
check "and is written there" written secret --do_verify=1 --size=8M
check "it is deleted" "$cairn" volume delete secret --now

# A node that serves nothing that is used: its copies are missed, and made good.
used=$(server a)
idle=$((used % 3 + 1))
load a 15 > "$work/load" 2>&1 & running=$!
sleep 3
before=$(worker $idle)
kill -KILL "$before"
until_is "a node that was killed is started again" is_up $idle "$before"
wait $running && pass "meanwhile a was written and read back" || { fail "a under load (node $used; killed: $idle)"; tail -n 5 "$work/load"; }
until_is "and is whole again" is_whole
check "what was written to another volume is there" written c --verify_only=1

# The node that a client is connected to: its head moves, and what was acknowledged is there.
used=$(server b)
before=$(worker "$used")
written b --do_verify=0 > "$work/load" 2>&1 & running=$!
sleep 1
kill -KILL "$(parent "$before")"
wait $running
until_is "with its supervisor a node ends, and both come again" is_up "$used" "$before"
until_is "the cluster is whole once more" is_whole
check "what was written before is there" written b --do_verify=1

idle=$(($(server a) % 3 + 1))
load a 25 > "$work/load" 2>&1 & running=$!
sleep 2
before=$(worker $idle)
kill -STOP "$before"
sleep 3
check "a node that stands still is not dead: it goes on" kill -CONT "$before"
etcd=$(etcd_pid)
kill -KILL "$etcd"
sleep 1
kill -0 "$etcd" 2> /dev/null && fail "etcd was killed"
wait $running && pass "without the map I/O goes on" || { fail "a without etcd"; tail -n 5 "$work/load"; }
until_is "etcd comes again, and the cluster is whole" is_whole

check "c is written before the power fails" written c --do_verify=0
nodes=$(for node in 1 2 3; do worker $node; done)
nodes="$nodes $(for node in $nodes; do parent "$node"; done) $(etcd_pid)"
check "etcd, three supervisors and three workers run, and etcd's data is beside the nodes'" test "$(wc -w <<< "$nodes")" = 7 -a -d "$work/d/etcd"
kill -KILL $demo_pid
wait $demo_pid 2> /dev/null
demo_pid=
gone() { for pid in $nodes; do kill -0 "$pid" 2> /dev/null && return 1; done; return 0; }
until_is "with the demo all of its processes end" gone
start_demo
until_is "the same directory opens again" is_whole
for volume in b c; do check "$volume has what was written" written "$volume" --verify_only=1; done
check "and a is read and written" load a 3
stop_demo
for node in 1 2 3; do
    check "node $node's device has no fault" "$cairn" device check "$work/d/node-$node/device-1.img"
done
finish
