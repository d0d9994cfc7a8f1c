#!/bin/bash
# All copies that had everything are away, one of them for good, and what is left is older: nothing is served until somebody says
# which copy counts. Then that is what there is, also for the one that had more and comes back.
# Mostly waits.
# Time: 180 s.
. "$(dirname "$0")/lib.sh"

need force etcd fio python3 || finish
. "$(dirname "$0")/machines.bash"

older() { load --rw=write --bs=64k --size=16M "$@"; }
lost() { kill -KILL "${node_pid[$1]}"; wait "${node_pid[$1]}" 2> /dev/null; unset "node_pid[$1]"; }

begin_with_three
"$cairn" volume create a --size 256M > /dev/null
check "a volume is written" older --do_verify=1
check "no group needs anybody" is 'assert s == [], s' group ls
check "where nothing is to be decided nothing is" refused "needs no decision" "$cairn" group force --copy node-3 1 --yes
check "nor by chance" is 'assert s["groups"] == [], s' group force --copy node-3 --all --yes

lost 3
check "a copy is taken out of every group" until_it_is 30 'assert s["groups_serving"] == 100 and any("100 placement groups have 2 of 3 copies" in f["cause"] for f in s["findings"]), s' status
check "the volume is written over without it" load --rw=write --bs=64k --size=16M --offset=4M --do_verify=1
lost 1; lost 2
rm "$work/m2.img"
start 3
check "the older copy is there" serves 3
export CAIRN_ADMIN=$(admin_of 3)
check "nobody serves what is older" until_it_is 30 'assert s["groups_serving"] == 0 and s["health"] != "healthy", s' status
check "it is said which groups, and what is left of them" until_it_is 20 'assert len(s) == 100 and all(g["needs_decision"] and not g["serves"] for g in s), s
here = {c["node"]: c["here"] for c in s[0]["copies"]}
assert here["node-1"] is None and here["node-2"] is None and here["node-3"]["last"] > 0, s[0]' group ls
check "nobody has begun to serve it meanwhile" is 'assert s["groups_serving"] == 0, s' status
check "somebody who is not there cannot count" refused "does not serve its copy" "$cairn" group force --copy node-1 1 --yes
check "nor somebody who is nobody" refused "no node and no device" "$cairn" group force --copy node-9 1 --yes
check "no group is no group" refused "--all" "$cairn" group force --copy node-3
check "what would be lost is said" is 'assert s["dry_run"] and len(s["groups"]) == 100, s
assert all(sum("is not there" in risk for risk in g["at_risk"]) == 2 for g in s["groups"]), s["groups"][0]' group force --copy node-3 --all
check "and nothing done" is 'assert s["groups_serving"] == 0, s' status
check "it is said whose copy counts" is 'assert not s["dry_run"] and len(s["groups"]) == 100, s' group force --copy node-3 --all --yes
check "which is told afterwards, too" is 'assert any(e["kind"] == "groups-forced" and "100" in e["text"] for e in s["events"]), s' events
check "it leads them all, and waits for one more copy" until_it_is 60 'assert all(not g["needs_decision"] for g in s), s' group ls
check "as is said" until_it_is 10 'assert any("1 of 3 copies" in f["cause"] and "too few to serve" in f["cause"] for f in s["findings"]), s' status

# Two are needed to go on: one that had more comes back, and is a copy of this now.
start 1
check "machine 1 is back" serves 1
check "it is a copy" until_it_is 90 'assert s["groups_serving"] == 100 and any("100 placement groups have 2 of 3 copies" in f["cause"] for f in s["findings"]), s' status
check "what was written before is what there is" older --verify_only=1
check "it is written over" load --do_verify=1
check "machine 4 joins" machine 4 join
start 4
check "machine 4 serves" serves 4
given_up() { "$cairn" node rm --lost node-2; }
check "the lost node is given up" within 30 given_up
check "three copies again" until_it_is 120 'assert not [f for f in s["findings"] if "copies" in f["cause"]], s' status
check "the lost node is out" within 30 "$cairn" node rm node-2
check "the cluster is whole" until_it_is 60 'assert s["health"] == "healthy" and s["groups_serving"] == 100, s' status
check "all copies are the same" within 30 "$cairn" check
check "what was written is there" load --verify_only=1
for number in 1 3 4; do check "node $number stops" stop $number; done
for number in 1 3 4; do check "device $number has no fault" "$cairn" device check "$work/m$number.img"; done
finish
