#!/bin/bash
# Two machines with data, and a witness: a third that runs nothing but an etcd member. Each of the three is lost while a volume is used,
# and comes back; then two at once; then one after the other, so that the one which comes back first is the one that is behind. What
# clients saw is judged (crates/torture).
# Mostly waits.
# Time: 420 s (280 s measured beside other work).
. "$(dirname "$0")/lib.sh"

need witness etcd pgrep python3 || finish
faults=$tools/cairn-faults
[ -x "$faults" ] || { fail "no $faults: build it with 'cargo build --workspace'"; finish; }
etcd_members=3
. "$(dirname "$0")/machines.bash"
# Clients come back to where they were.
for number in 1 2; do nvme_ports[$number]=$(free_port) nbd_ports[$number]=$(free_port); done

# Everything on a machine ends at once. The third has no node.
lose() {
    kill_member "$1"
    [ "$1" = 3 ] || kill_node "$1"
}
comes_back() {
    start_member "$1"
    [ "$1" = 3 ] || { start "$1"; serves "$1"; }
}

# begin_load VOLUME SECONDS: it ends by itself, and has failed, when a command waits for so long. end_load: what it says is judged.
mkfifo "$work/load.in"
begin_load() {
    "$faults" --load "$CAIRN_ADMIN" "$@" < "$work/load.in" > "$work/load.out" 2> "$work/load.err" & load_pid=$!
    node_pid[load]=$load_pid
    exec 7> "$work/load.in"
}
end_load() {
    # Others have it open, too: its end would not be one.
    echo >&7; exec 7>&-
    unset "node_pid[load]"
    wait "$load_pid" && grep '^judged' "$work/load.out" && return 0
    tail -n 20 "$work/load.err"
    return 1
}
said() { sed -n "s/.*$1 \([0-9]*\).*/\1/p" "$work/load.out" | tail -n 1; }
# So many commands more than now are answered, within so many seconds.
answers() {
    local before tries
    before=$(said answered)
    for tries in $(seq $(($1 * 5))); do
        kill -0 "$load_pid" 2> /dev/null || { tail -n 20 "$work/load.err"; return 1; }
        [ "$(said answered)" -ge $((${before:-0} + 500)) ] && return 0
        sleep 0.2
    done
    tail -n 1 "$work/load.out"
    return 1
}
# For so many seconds, after a moment, nothing is.
no_answers() {
    local before
    sleep 2
    before=$(said answered)
    sleep "$1"
    echo "answered $before, then $(said answered)"
    kill -0 "$load_pid" && [ -n "$before" ] && [ "$before" = "$(said answered)" ]
}
no_hang() { [ "$(said longest_wait_ms)" -lt "$1" ] || { tail -n 1 "$work/load.out"; return 1; }; }
# What is not green says why, what is at risk, what is done about it, when that ends, and what to run.
explained="f = [f for f in s['findings'] if f['severity'] != 'ok']
assert s['health'] != 'healthy' and f and all(g['cause'] and g['at_risk'] and g.get('doing') and g['doing']['text'] and g['doing']['ends'] and g['advice'] and g['command'] for g in f), s"
is_whole() { until_it_is 90 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status; }
# Status says all of this of a machine that is away; printed, for docs/failures.md.
tell() { "$cairn" status > "$work/said" 2>&1; sed -n '/^cluster /q; s/^/      status: /p' "$work/said"; }

# Nothing is served: that is more than a map that does not answer, and status says what it is, and what to do.
nothing_serves="assert s['health'] == 'unavailable' and s['groups_serving'] == 0 < s['groups'], s
assert any('map does not answer' in g['cause'] and 'the rest waits' in g['cause'] and g['advice'] for g in f), s
waits = [g for g in f if 'placement groups do not serve' in g['cause']]
assert waits and waits[0]['severity'] == 'stopped' and waits[0]['doing']['ends'] and waits[0]['advice'], s"

check "a cluster of two copies begins" machine 1 init --replicas 2
check "the other machine with data joins" machine 2 join
for number in 1 2; do start $number; done
for number in 1 2; do check "machine $number serves" serves $number; done
export CAIRN_ADMIN=$(admin_of 1)
check "the cluster is whole" is_whole
check "each write waits for both copies, and for one where the other is lost" is 'assert s["replicas"] == 2 and s["min_in_sync"] == 1 and s["failure_domain"] == "node", s' pool info default
for volume in a b; do
    "$cairn" volume create $volume --size 128M --placement local:node-1 > /dev/null
    "$cairn" host allow $volume any > /dev/null
done
check "the volumes are at home" until_it_is 30 'assert [v["head"] for v in s] == ["node-1"] * 2, s' volume ls

begin_load a 30
check "a volume is used" answers 30
lose 3
check "the witness is lost: clients go on" answers 30
sleep 12 # longer than sessions last
check "and on" answers 30
check "they see nothing of it" no_hang 1500
check "no copy is missing, and status says that the map bears no other loss" until_it_is 30 "$explained
assert s['groups_serving'] == s['groups'] == 100 and not any('copies' in g['cause'] for g in f), s
lost = [g for g in f if 'the cluster map has lost a member: etcd at ${client_url[3]} does not answer, 2 of 3 do' in g['cause']]
assert lost and lost[0]['at_risk'] and lost[0]['command'], f" status
tell
comes_back 3
check "it comes back" answers 30
check "and status says no more of it" is_whole

lose 2
check "a node is lost: clients go on with the other copy" answers 30
check "status says what is at risk, why, and what to do" until_it_is 30 "$explained
assert any('node-2 has not been heard of' in g['cause'] and '1 of 2 copies' in g['cause'] and g['advice'] for g in f), f
assert any('node-1' in r['text'] and r['loses_data'] for g in f for r in g['at_risk']), f" status
tell
check "and it comes back" comes_back 2
check "and is made whole" is_whole

lose 1
export CAIRN_ADMIN=$(admin_of 2)
check "the node with the head is lost: clients go on with the other copy" answers 30
check "status says what is at risk, why, and what to do" until_it_is 30 "$explained
assert any('node-1 has not been heard of' in g['cause'] and '1 of 2 copies' in g['cause'] and g['advice'] for g in f), f
assert any('node-2' in r['text'] and r['loses_data'] for g in f for r in g['at_risk']), f" status
tell
check "and it comes back" comes_back 1
check "and is made whole" is_whole
check "clients have gone on" answers 30
check "nothing that was acknowledged is lost, no read was stale, nothing waited for 30 s" end_load
sed -n 's/^judged: /      /p' "$work/load.out"
check "both copies agree" "$cairn" check

# Two of three: whoever is left has no majority of etcd, and cannot know whether the other node serves.
export CAIRN_ADMIN=$(admin_of 1)
check "the volume is at home" until_it_is 90 'assert [v["head"] for v in s] == ["node-1"] * 2, s' volume ls
begin_load b 240
check "another volume is used" answers 30
kill_member 3; lose 1
export CAIRN_ADMIN=$(admin_of 2)
check "the witness and the node with the head are lost: the other does not go on alone" no_answers 20
# That it does not answer is known after some seconds.
check "and says so" until_it_is 20 "$explained
$nothing_serves" status
tell
comes_back 3
check "the witness is back: the other node goes on" answers 60
check "and says that it is alone" until_it_is 30 "$explained
assert any('node-1' in g['cause'] and '1 of 2 copies' in g['cause'] for g in f), f" status
check "the node is back" comes_back 1
check "and made whole" is_whole
check "and used" answers 30

export CAIRN_ADMIN=$(admin_of 1)
check "the volume is at home" until_it_is 90 'assert [v["head"] for v in s] == ["node-1"] * 2, s' volume ls
kill_member 3; lose 2
check "the witness and the other node are lost: the one with the head does not go on alone, either" no_answers 20
check "and says so" until_it_is 20 "$explained
$nothing_serves" status
tell
check "both come back, the node first" comes_back 2
comes_back 3
check "all is whole" is_whole
check "and used" answers 30

# One after the other: the first that comes back lacks what the second wrote alone.
lose 1
export CAIRN_ADMIN=$(admin_of 2)
check "a node is lost, the other goes on" answers 30
check "and says that it is alone" until_it_is 30 "$explained
assert any('node-1 has not been heard of' in g['cause'] and '1 of 2 copies' in g['cause'] for g in f), f" status
kill_member 3
sleep 3
check "the witness is lost later: the map has said that it may" answers 30
sleep 12 # longer than sessions last
check "and for longer" answers 30
start_member 3
check "the witness is back" until_it_is 30 'assert not any("map does not answer" in f["cause"] for f in s["findings"]), s' status
lose 2
comes_back 1
export CAIRN_ADMIN=$(admin_of 1)
check "that one is lost, too, and the first is back, with a majority: it does not serve what is old" no_answers 15
check "and says who has what it lacks" until_it_is 20 "$explained
assert s['health'] == 'unavailable' and any('node-2' in g['cause'] and 'too few' in g['cause'] for g in f), s" status
tell
check "the other is back" comes_back 2
check "all is whole" is_whole
check "and used" answers 30
check "nothing that was acknowledged is lost, no read was stale" end_load
sed -n 's/^judged: /      /p' "$work/load.out"
check "both copies agree" "$cairn" check
for number in 1 2; do check "machine $number is stopped" stop $number; done
for number in 1 2; do check "its device has no fault" "$cairn" device check "$work/m$number.img"; done
finish
