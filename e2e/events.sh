#!/bin/bash
# What happened is told afterwards by any node, through crashes and restarts; and a bundle for a report is whole but for who is away, and
# has no secret.
# Mostly waits.
# Time: 240 s (one minute measured alone).
. "$(dirname "$0")/lib.sh"

need events etcd python3 tar || finish

# Of node N: its admin API, the process that is the node, and that one's supervisor.
api() { echo "http://127.0.0.1:$(sed -n 's/^admin_port = //p' "$work/d/node-$1/node.toml")"; }
worker() { "$cairn" node ls -o json | python3 -c "import json, sys; print(json.load(sys.stdin)[$1 - 1]['pid'])"; }
parent() { ps -o ppid= -p "$1" | tr -d ' '; }
# told NODE SECONDS ASSERTION: of what NODE answers, within so many seconds; e: the events, k: their kinds.
told() {
    CAIRN_ADMIN=$(api "$1") until_it_is "$2" 'e = s["events"]; k = [x["kind"] for x in e]
'"$3" events -n 1000
}
# Each line of JSON that was followed is an event; so many of this kind about this.
followed() {
    python3 - "$work/follow.out" "$@" <<'EOF'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
found = [e for e in events if e["kind"] == sys.argv[2] and sys.argv[3] in e["subjects"]]
assert len(found) == int(sys.argv[4]), (found, [e["kind"] for e in events])
EOF
}
# Nothing of what is in the file of secrets, one a line, is anywhere in the directory; and it is looked for rightly.
has_no_secret() {
    python3 - "$1" "$2" <<'EOF'
import os, sys
secrets = [line.strip().encode() for line in open(sys.argv[1]) if line.strip()]
assert len(secrets) >= 4 and all(len(secret) >= 8 for secret in secrets), secrets
files = [os.path.join(at, name) for at, _, names in os.walk(sys.argv[2]) for name in names]
assert len(files) > 10, files
for path in files:
    content = open(path, "rb").read()
    for secret in secrets:
        assert secret not in content, (path, secret)
EOF
}
unpacked() { rm -rf "$work/bundle" && mkdir "$work/bundle" && tar -xzf "$1" -C "$work/bundle" --strip-components=1; }

start_demo --nodes 3 --replicas 3 --processes --device-size 512M --volume a:64M
check "every node says that it serves" told 1 20 'assert k.count("node-started") == 3 and s["missing"] == [], s'
check "the cluster is whole" until_it_is 30 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"], s' status

# ---- commands, asked of different nodes --------------------------------------------------------------------------------
printf 'MARKED-KEY-FILE-%s' "$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')" > "$work/disk.key"
CAIRN_ADMIN=$(api 2) "$cairn" volume create b --size 64M > /dev/null
CAIRN_ADMIN=$(api 3) "$cairn" volume create secret --size 64M --encrypt --key-file "$work/disk.key" > /dev/null
"$cairn" volume create c --size 64M > /dev/null
CAIRN_ADMIN=$(api 2) "$cairn" snapshot create b@monday > /dev/null
"$cairn" volume resize b --size 128M > /dev/null
CAIRN_ADMIN=$(api 3) "$cairn" host allow b nqn.2026-01.io.example:host > /dev/null
"$cairn" host deny b nqn.2026-01.io.example:host > /dev/null
check "a volume is locked on all nodes" "$cairn" volume lock secret
check "and unlocked" "$cairn" volume unlock secret --key-file "$work/disk.key"
check "and locked, asked of another node" sh -c 'CAIRN_ADMIN=$2 "$1" volume lock secret' - "$cairn" "$(api 2)"
"$cairn" volume delete c > /dev/null
check "a volume that is there already is refused" refused "already" "$cairn" volume create b --size 64M
for node in 1 2 3; do
    check "node $node tells what was done, whichever node did it, once each" told "$node" 10 '
for kind, about in [("volume-created", "b"), ("volume-created", "secret"), ("snapshot-created", "b@monday"), ("volume-resized", "b"),
        ("host-allowed", "b"), ("host-denied", "b"), ("volume-trashed", "c")]:
    assert len([x for x in e if x["kind"] == kind and about in x["subjects"]]) == 1, (kind, about, e)
locked = [x for x in e if x["kind"] == "volume-locked"]
assert len(locked) == 2 and all(len(x["seen_by"]) == 3 and x["subjects"] == ["secret"] for x in locked), locked
assert e == sorted(e, key=lambda x: x["time"]), e'
done
# That the cluster has become healthy may be told late, and in between.
newest_two() {
    "$cairn" events -n 2 -o json > "$work/two.json" && "$cairn" events -o json | python3 -c '
import json, sys
two, all = json.load(open(sys.argv[1]))["events"], json.load(sys.stdin)["events"]
assert len(two) == 2 and two[0]["time"] <= two[1]["time"] and two == all[-2:], (two, all[-2:])' "$work/two.json"
}
check "the newest two are two, the newest last" within 10 newest_two
check "of the future there is nothing" is 'assert s["events"] == [], s' events --since 2200-01-01T00:00:00Z
check "of the last hour there is all" is 'assert "node-started" in [x["kind"] for x in s["events"]], s' events --since 1h
check "people are told when, how bad, who and what" sh -c '"$1" events | grep -Eq "^20[0-9-]+T[0-9:.]+Z  info     node-[123]   volume-trashed      volume c is in the trash until "' - "$cairn"
check "what is no time is refused with what to write" refused "15m" "$cairn" events --since yesterday

# ---- a process that is killed and comes back by itself -----------------------------------------------------------------
"$cairn" events --follow -n 1 -o json > "$work/follow.out" 2> "$work/follow.err" &
follow_pid=$!
begins_with_what_is_there() {
    "$cairn" events -o json | python3 -c '
import json, sys
first = json.loads(open(sys.argv[1]).readline())
assert first in json.load(sys.stdin)["events"], first' "$work/follow.out"
}
check "who follows begins with what is there" within 10 begins_with_what_is_there
killed=$(worker 3)
# Before, one that started later than another may have been told to be back.
SINCE=$(date -u +%Y-%m-%dT%H:%M:%S)
export SINCE
kill -KILL "$killed"
check "a process that was killed is told by the others, and that it is back" told 1 30 'import os
e = [x for x in e if x["time"] >= os.environ["SINCE"]]
ended = [x for x in e if x["kind"] == "node-ended" and x["subjects"] == ["node-3"]]
back = [x for x in e if x["kind"] == "node-back" and x["subjects"] == ["node-3"]]
assert len(ended) == 1 and len(back) == 1 and ended[0]["time"] < back[0]["time"], e
assert ended[0]["severity"] == "warning" and ended[0]["node"] in ("node-1", "node-2"), ended
assert set(ended[0]["seen_by"]) == {"node-1", "node-2"}, ended'
check "it says itself that it did not stop by order" told 2 20 'assert [x for x in e if x["kind"] == "node-started" and "without a stop" in x["text"] and x["node"] == "node-3"], e'
check "who follows is told so, once" within 10 followed node-back node-3 1

# ---- a node that stays away --------------------------------------------------------------------------------------------
check "the cluster is whole again" until_it_is 60 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"], s' status
sleep 3 # What is seen twice counts: nothing of this is left to be told.
killed=$(worker 2)
SINCE=$(date -u +%Y-%m-%dT%H:%M:%S)
supervisor=$(parent "$killed")
# A supervisor that stands still starts nothing and tells nobody.
kill -STOP "$supervisor"
kill -KILL "$killed"
for node in 1 3; do
    check "node $node tells that it is away, and what that means" told "$node" 40 'import os
e = [x for x in e if x["time"] >= os.environ["SINCE"]]
away = [x for x in e if x["kind"] == "node-away"]
assert [x["subjects"] for x in away] == [["node-2"]] and set(away[0]["seen_by"]) == {"node-1", "node-3"}, e
lack = [x for x in e if x["kind"] == "groups-lack-copies"]
assert len(lack) in (1, 2) and all(x["subjects"] == ["node-2"] for x in lack), e
assert lack[-1]["text"] == "100 placement groups have fewer copies than they should because of who is away: node-2", lack
assert set(lack[-1]["seen_by"]) == {"node-1", "node-3"}, lack
health = [x for x in e if x["kind"] == "health"]
# Where a machine is busy, what is so until the groups have other primaries is seen twice, and told: they do not serve.
assert all(x["subjects"] in (["unavailable"], ["degraded"]) for x in health) and len(health) <= 3, e
assert health[-1]["subjects"] == ["degraded"] and "node-2" in health[-1]["text"], e
assert s["missing"] == ["node-2"], s["missing"]'
done
check "people are told who is missing" sh -c '"$1" --admin "$2" events 2>&1 > /dev/null | grep -q "node-2 does not answer"' - "$cairn" "$(api 1)"
check "who follows is told that it is away" within 10 followed node-away node-2 1

# ---- a bundle while it is away -----------------------------------------------------------------------------------------
export CAIRN_ADMIN; CAIRN_ADMIN=$(api 1)
sed -i '1i # the password of this machine is MARKED-IN-A-COMMENT' "$work/d/node-1/node.toml"
cat "$work/disk.key" > "$work/secrets"
printf '\nMARKED-IN-A-COMMENT\n' >> "$work/secrets"
# The key of the cluster, and the data key of the encrypted volume as it lies in the map: every string in them that is long.
cat > "$work/secrets.py" <<'EOF'
import glob, json, sys
def strings(value):
    if isinstance(value, dict):
        for part in value.values(): yield from strings(part)
    elif isinstance(value, list):
        for part in value: yield from strings(part)
    elif isinstance(value, str) and len(value) >= 16:
        yield value
entries = json.load(open(sys.argv[1] + "/map-copy.json"))["entries"]
for journal in sorted(glob.glob(sys.argv[1] + "/map-copy.journal-*")):
    for line in open(journal):
        entries.update(json.loads(line.split(" ", 1)[1]).get("put", {}))
secret = {key: list(strings(value)) for key, value in entries.items() if key == "cluster-key" or key.startswith("data-keys/")}
assert len(secret) == 2 and all(secret.values()), secret
open(sys.argv[2], "a").write("\n".join(sum(secret.values(), [])) + "\n")
EOF
check "the secrets of the map are known" python3 "$work/secrets.py" "$work/d/node-1" "$work/secrets"
check "a bundle is made all the same, and says who is missing" sh -c '"$1" debug bundle "$2" > "$3" && grep -q "^missing: node-2" "$3"' - "$cairn" "$work/b.tar.gz" "$work/bundle.out"
check "it can be unpacked" unpacked "$work/b.tar.gz"
for file in README.txt version.json status.json status.txt nodes.json devices.json pools.json volumes.json trash.json events.json map.json \
    node-1/node.toml node-1/machine.json node-1/metrics.txt node-1/log.txt node-3/node.toml node-3/machine.json node-3/metrics.txt node-3/log.txt; do
    check "$file is in it" test -s "$work/bundle/$file"
done
check "nothing of the node that is away is" test ! -e "$work/bundle/node-2"
check "and that is said" grep -q '^node-2: .*does not answer' "$work/bundle/missing.txt"
check "of the others nothing is missing" sh -c 'test "$(wc -l < "$1/missing.txt")" = 2' - "$work/bundle"
check "it has the events" python3 -c 'import json, sys; assert "node-away" in [e["kind"] for e in json.load(open(sys.argv[1]))["events"]]' "$work/bundle/events.json"
check "and the map but for its keys" python3 -c 'import json, sys
m = json.load(open(sys.argv[1]))
assert "cluster-key" in m["taken_out"] and [k for k in m["taken_out"] if k.startswith("data-keys/")], m["taken_out"]
assert len([k for k in m["entries"] if k.startswith("groups/")]) == 100' "$work/bundle/map.json"
check "the log of a node is what it logged" grep -q "volume secret created" "$work/bundle/node-1/log.txt"
check "no secret is in it" has_no_secret "$work/secrets" "$work/bundle"
# Else it would also be found to have none if it were looked for wrongly.
cp "$work/disk.key" "$work/bundle/node-1/planted"
check "a secret would have been found" refused "planted" has_no_secret "$work/secrets" "$work/bundle"
check "nobody else may read it" sh -c 'test "$(stat -c %a "$1")" = 600' - "$work/b.tar.gz"
check "a file that is there is not replaced" refused "already" "$cairn" debug bundle "$work/b.tar.gz"
check "where nobody answers that is said" refused "no answer" "$cairn" --admin http://127.0.0.1:9 debug bundle "$work/c.tar.gz"

# ---- it comes back, and all of them are started again ------------------------------------------------------------------
kill -KILL "$supervisor"
check "it is back, and that is told" told 3 60 'import os
e = [x for x in e if x["time"] >= os.environ["SINCE"]]
away = [x for x in e if x["kind"] == "node-away" and x["subjects"] == ["node-2"]]
back = [x for x in e if x["kind"] == "node-back" and x["subjects"] == ["node-2"]]
assert len(away) == 1 and len(back) == 1 and back[0]["time"] > away[0]["time"] and s["missing"] == [], s'
check "groups are whole, and that is told" told 3 120 'assert "groups-whole" in k[k.index("node-away"):], e'
check "who follows is told so, too" within 10 followed node-back node-2 1
check "no event twice" python3 -c 'import json, sys
keys = [(e["time"], e["kind"], str(e["subjects"])) for e in map(json.loads, open(sys.argv[1]))]
assert len(keys) > 5 and len(set(keys)) == len(keys), keys' "$work/follow.out"
kill "$follow_pid" && wait "$follow_pid" 2> /dev/null
"$cairn" events -n 1000 -o json > "$work/before.json"
# A line that a crash cut short is no event, and spoils none.
printf '{"time":"2026-05-04T12:00:00.000Z","severity":"info","node":"node-1","kind":"torn' >> "$work/d/node-1/events.jsonl"
kill -KILL "$(parent "$(worker 1)")" "$(parent "$(worker 2)")" "$(parent "$(worker 3)")" "$demo_pid"
wait "$demo_pid" 2> /dev/null
sleep 1
start_demo
export BEFORE=$work/before.json
check "after a crash of all of them every event is there as it was" told 2 30 'import os
before = json.load(open(os.environ["BEFORE"]))["events"]
key = lambda x: (x["time"], x["kind"], x["text"])
assert len(before) > 20 and not {key(x) for x in before} - {key(x) for x in e}, {key(x) for x in before} - {key(x) for x in e}
assert "torn" not in k'
stop_demo
start_demo
check "after a stop by order, too" told 1 30 'assert k.count("node-stopped") == 3 and k.count("volume-trashed") == 1, e'
check "a stop by order is none without one" told 1 30 '
last = [x for x in e if x["kind"] == "node-started"][-3:]
assert {x["node"] for x in last} == {"node-1", "node-2", "node-3"} and not [x for x in last if "without a stop" in x["text"]], last'
stop_demo

# ---- a directory that takes no file ------------------------------------------------------------------------------------
rm "$work/d/node-1/events.jsonl"
mkdir "$work/d/node-1/events.jsonl"
start_demo
check "a node whose events cannot be written serves all the same" until_it_is 30 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"], s' status
"$cairn" volume create d --size 64M > /dev/null && "$cairn" volume delete d --now > /dev/null
check "tells them from memory" told 1 10 'assert [x for x in e if x["kind"] == "node-started" and x["node"] == "node-1"], e'
check "and says once why they are not written" sh -c 'test "$(grep -c "events are not written to" "$1")" = 1' - "$work/demo.log"
stop_demo
finish
