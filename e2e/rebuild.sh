#!/bin/bash
# etcd is lost, with all that is in it, right behind the answer to the last change, while volumes are written; writes go on without it. The
# map is made anew of what nodes kept and their devices know, and nothing that was acknowledged is lost: neither what was written, nor the
# volume and the snapshots that were made in the last moment. Of copies that do not name all that devices hold nothing is made.
# Mostly waits.
# Time: 180 s.
. "$(dirname "$0")/lib.sh"

need rebuild etcd fio python3 nbdsh || finish
. "$(dirname "$0")/machines.bash"

gather() { "$cairn" map gather --config "$work/m$1/node.toml" "$work/gathered$1.json"; }
acked() { /usr/bin/python3 "$root/e2e/acked.py" "$@"; }
lines() { wc -l < "$work/$1.log"; }
goes_on() { local before; before=$(lines "$1"); sleep 1; [ "$(lines "$1")" -gt "$before" ]; }
writers=()
writes() {
    acked write "$(field "$1" nbd_uri)" "$work/$1.log" >> "$work/writers.out" 2>&1 &
    writers+=($!)
}
copies_away() { mkdir -p "$work/away$1" && mv "$work/m$1"/map-copy.* "$work/away$1/"; }
copies_back() { mv "$work/away$1"/map-copy.* "$work/m$1/"; }

begin_with_three
"$cairn" volume create a --size 256M > /dev/null
check "a volume is written" load --do_verify=1 --size=16M
check "a snapshot is made" "$cairn" snapshot create a@early
for number in 1 2 3; do
    check "others cannot read node $number's copy of the map" sh -c 'for file; do test "$(stat -c %a "$file")" = 600 || exit 1; done' - \
        "$work/m$number/map-copy.json" "$work/m$number"/map-copy.journal-*
done
check "a node that runs is not looked at" refused "stop the node" gather 3

# Of three copies one is behind from here on: who took it for one that counts would serve what was there before.
kill -KILL "${node_pid[3]}"; wait "${node_pid[3]}" 2> /dev/null
check "its copies are taken out" until_it_is 30 'assert s["groups_serving"] == 100 and any("node-3" in f["cause"] for f in s["findings"]), s' status

make() { "$cairn" volume create "$1" --size 64M --placement "local:node-$2"; }
# It may have a session still, and serves fewest.
check "another makes a volume in its place" make c 1
writes c
check "a volume is written from here on" within 10 goes_on c
check "one is made" make b 2
writes b
check "and written" within 10 goes_on b
make gone 1 > /dev/null
lines_b=$(lines b) lines_c=$(lines c)
# Nobody waits for anything between an answer and the loss.
"$cairn" volume delete gone --now > "$work/last.out" 2>&1 && "$cairn" snapshot create b@late c@late >> "$work/last.out" 2>&1 &&
    "$cairn" snapshot create c@last >> "$work/last.out" 2>&1 && make last 2 >> "$work/last.out" 2>&1
answered=$?
lose_etcd
check "the last changes were answered" sh -c 'test "$1" = 0 || { cat "$2"; exit 1; }' - "$answered" "$work/last.out"
for volume in b c; do check "$volume is written without a map" goes_on "$volume"; done
check "a change that needs a map is not told as done" refused "" timeout 60 "$cairn" volume create never --size 64M
sleep 5
for volume in b c; do check "$volume is written still" goes_on "$volume"; done
for number in 1 2; do kill_node "$number"; done
for writer in "${writers[@]}"; do wait "$writer"; done
start_etcd
check "a map with nothing in it serves nobody" refused "cairn map" timeout 60 "$cairn" node run --config "$work/m1/node.toml"

# The copies of those that went on are lost, too: the one that is left knows nothing of the last volumes and tops.
for number in 1 2; do copies_away "$number"; done
for number in 1 2 3; do check "what node $number knows is gathered" gather "$number"; done
check "without what devices hold data of no map is made" refused "that no copy of the map names" \
    "$cairn" map rebuild --config "$work/m1/node.toml" "$work"/gathered{1,2,3}.json
check "and it is said how to do without" grep -q -- "--without-unnamed" "$work/refused.out"
for number in 1 2; do copies_back "$number"; done

for number in 1 2; do check "what node $number knows is gathered" gather "$number"; done
check "others cannot read that, either" test "$(stat -c %a "$work/gathered1.json")" = 600
check "as long as somebody may know better nothing is made" refused "nothing, or not all, was gathered of" \
    "$cairn" map rebuild --config "$work/m1/node.toml" "$work/gathered3.json"
check "and it is said what to do" grep -q "cairn map gather" "$work/refused.out"
check "what is no such file is not taken" refused "cairn map gather" "$cairn" map rebuild --config "$work/m1/node.toml" "$work/m1/node.toml"
check "the map is made anew" "$cairn" map rebuild --config "$work/m1/node.toml" "$work"/gathered{1,2,3}.json
check "once" refused "is in that map already" "$cairn" map rebuild --config "$work/m1/node.toml" "$work"/gathered{1,2,3}.json

# The one that is behind is there first.
start 3
sleep 3
for number in 1 2; do start $number; done
for number in 1 2 3; do check "machine $number serves" serves $number; done
export CAIRN_ADMIN=$(admin_of 1)
check "the cluster is whole" until_it_is 60 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
check "what was written is there" load --verify_only=1 --size=16M
check "so are volumes" is 'assert [v["name"] for v in s] == ["a", "b", "c", "last"], s' volume ls
check "and snapshots by their names" is 'assert [one["name"] for one in s] == ["late", "last"] or [one["name"] for one in s] == ["last", "late"], s' snapshot ls c
check "those of before, too" is 'assert [one["name"] for one in s] == ["early"], s' snapshot ls a
for volume in b c; do
    check "all that was acknowledged of $volume is there" acked check "$(field "$volume" nbd_uri)" "$work/$volume.log"
done
check "b@late holds what was written before it" acked check "$(field b nbd_uri)@late" "$work/b.log" "$lines_b"
check "so does c@late" acked check "$(field c nbd_uri)@late" "$work/c.log" "$lines_c"
check "so does c@last" acked check "$(field c nbd_uri)@last" "$work/c.log" "$lines_c"
check "all copies are the same" "$cairn" check
check "what is made now has a number of its own" "$cairn" volume create d --size 64M
check "and what is written is read" load --do_verify=1

# A node that cannot keep a copy, as its disk is full, is no hindrance: the others do.
check "a node stops" stop 3
mkdir "$work/m3/map-copy.new"
start 3
check "it serves though it can keep no copy of the map" serves 3
check "and says so" within 10 grep -q "keeps no copy of the map, should etcd be lost" "$work/demo.log"
check "so does status, and what that puts at risk" until_it_is 30 'f = [f for f in s["findings"] if f["cause"].startswith("node-3 keeps no copy of the cluster map: ")]
assert s["health"] == "degraded" and len(f) == 1 and "if etcd is lost" in f[0]["at_risk"][0]["text"] and f[0]["doing"]["ends"] == "when it can be written" and f[0]["command"], s' status
check "changes are answered by the copies of the others" "$cairn" snapshot create a@then
rmdir "$work/m3/map-copy.new"
check "when it can again, all is well" until_it_is 60 'assert s["health"] == "healthy", s' status
finish
