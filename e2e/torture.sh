#!/bin/bash
# `cairn torture` on a cluster of three processes: nodes are killed, stand still, and are left alone with what they hold. What it refuses, what
# it says, and a history that is tampered with. `tools/mutants.sh` runs it with a bug, too.
# Mostly waits.
# Time: 180 s (80 s measured beside other work).
. "$(dirname "$0")/lib.sh"

need torture etcd python3 || finish
start_demo --nodes 3 --replicas 3 --processes --device-size 512M --volume idle:1M
for volume in proof small; do "$cairn" volume create $volume --size 128M --placement local:node-1 > /dev/null; done
check "the cluster is whole, and node-1 serves the volume" until_it_is 30 \
    'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
check "it does" until_it_is 30 'assert s["head"] == "node-1", s' volume info proof

torture() { "$cairn" torture "$@"; }
# hurt SIGNAL NODE...: of the processes that the nodes are; nodes are not asked while one of them stands still.
cat > "$work/pids" << EOF
"$cairn" node ls -o json | python3 -c 'import json, sys; [print(n["pid"]) for n in json.load(sys.stdin)]'
EOF
pid() { echo "\$(sed -n ${1}p '$work/now')"; }
now="sh '$work/pids' > '$work/now'"

check "a volume that is not there is refused" refused "there is no volume" torture --volume nobody
check "so are two targets" refused "cannot be used with" torture --volume small --target nvme-tcp://h:1/nqn?nsid=1
check "and none" refused "--volume" torture
check "and a target that is none" refused "nvme-tcp://HOST:PORT" torture --target h:1/nqn
check "and where nobody listens" refused "no path to namespace 1" torture --target nvme-tcp://127.0.0.1:1/nqn?nsid=1
check "and a heal for nothing" refused "one --heal for each" torture --volume small --kill a --kill b --heal a
check "and times that are none" refused "0" torture --volume small --seconds 0
check "a short one passes" torture --volume small --seconds 1 --span 1M
check "its volume is full now, and is refused" refused "which would be written over" torture --volume small --seconds 1
nqn=$(field small nqn) nsid=$(field small nsid)
check "by its address, too" refused "hold something" torture --target "nvme-tcp://127.0.0.1:$nvme_port/$nqn?nsid=$nsid" --seconds 1 --span 1M
check "any namespace passes by its address alone" torture --target "nvme-tcp://127.0.0.1:$nvme_port/$nqn?nsid=$nsid" --seconds 2 --span 1M --overwrite
check "what is there is read first, and overwritten if that was said" torture --volume small --seconds 1 --span 1M --overwrite
check "a kill that fails shows nothing" refused "without it nothing is shown" torture --volume small --overwrite --seconds 9 --every 1 --kill false
check "a command without an answer is found" refused "no answer for" torture --volume small --overwrite --seconds 9 --every 1 --hang-guard 2 \
    --kill "$now; kill -STOP $(pid 1) $(pid 2)" --heal "kill -CONT $(pid 1) $(pid 2)" --kill-for 9
# A device that stuttered for 2 s counts as slow for a minute.
check "all is well again" until_it_is 100 'assert s["health"] == "healthy", s' status

# The first is killed; it stands still; and it stands alone for a while, is killed, and kept away: what it took alone would be lost.
alone="$now; kill -STOP $(pid 2) $(pid 3); sleep 15; kill -STOP \$(ps -o ppid= -p $(pid 1)); ps -o ppid= -p $(pid 1) > '$work/away'; kill -KILL $(pid 1); kill -CONT $(pid 2) $(pid 3)"
if torture --volume proof --seconds 50 --every 12 --kill-for 8 --keep "$work/history" -o json \
    --kill "$now; kill -KILL $(pid 1)" --heal true \
    --kill "$now; kill -STOP $(pid 1)" --heal "kill -CONT $(pid 1)" \
    --kill "$alone" --heal "kill -CONT \$(cat '$work/away')" > "$work/report" 2> "$work/said"; then
    pass "torture: nothing that was acknowledged is lost"
else
    fail "torture: nothing that was acknowledged is lost"
    tail -n 1 "$work/said"
    # What else there is to say, the cluster does not get to.
    finish
fi
grep answered "$work/said" | tail -n 1 | sed 's/^/      /'
check "it says what was done, and how long the longest wait was of each fault" python3 -c "
import json
r = json.load(open('$work/report'))
assert r['passed'] and not r['findings'] and len(r['faults']) == 3, r
assert r['commands'] == r['reads'] + r['writes'] + r['flushes'] > 2000 and r['reads'] and r['flushes'], r
assert r['sent_again'] and r['ambiguous'] and r['read_again_blocks'] * r['block_bytes'] == r['span_bytes'] == 16 << 20, r
assert all(0 < f['longest_write_ms'] <= r['longest_wait_ms'] < 30000 and f['lasted_ms'] for f in r['faults']), r"
check "its history is judged again" torture --judge "$work/history"
# A read that showed a write shows zeroes.
python3 - "$work/history" > "$work/tampered" << 'EOF'
import json, sys
lines = open(sys.argv[1]).read().splitlines()
at = max(at for at, line in enumerate(lines) if '"op":"read"' in line and json.loads(line).get("saw", [0])[0])
line = json.loads(lines[at])
line["saw"][0] = 0
lines[at] = json.dumps(line, separators=(",", ":"))
print("\n".join(lines))
EOF
check "one that is tampered with is refused, with block, write and read" refused "shows zeroes" torture --judge "$work/tampered"
check "in these words" grep -qE '^lost: block [0-9]+ \(byte [0-9]+ of the volume\): write [0-9]+ was acknowledged, and read [0-9]+ shows zeroes' "$work/refused.out"
head -n 5 "$work/history" > "$work/cut"
check "one that is cut off is refused" refused "in the midst" torture --judge "$work/cut"
check "the cluster is whole" until_it_is 60 'assert s["health"] == "healthy", s' status
stop_demo
finish
