#!/bin/bash
# Three nodes go on to a later release, one after the other, under load; back, and on again; then the upgrade is finished, and an older
# release takes part no more. The later release is the same binary with CAIRN_TEST_PROTOCOL=+1: it speaks a version of the node
# protocol and a cluster version more, appends a field to beats, and sends a kind of frame more to those that have the feature.
# Mostly waits.
# Time: 150 s.
. "$(dirname "$0")/lib.sh"

need upgrade etcd fio nbdinfo pgrep python3 || finish
. "$(dirname "$0")/machines.bash"
for number in 1 2 3; do nbd_ports[$number]=$(free_port); done

begin_with_three
"$cairn" volume create a --size 256M --placement local:node-1 > /dev/null
check "a volume is written" load --do_verify=1

# again N [VARIABLE=VALUE]: the node is stopped, and comes back as another release.
again() {
    local number=$1; shift
    stop "$number" || return 1
    export CAIRN_TEST_PROTOCOL=${1:-}
    start "$number"
    export CAIRN_TEST_PROTOCOL=
    serves "$number" || return 1
    export CAIRN_ADMIN=$(admin_of "$number")
    until_it_is 30 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
}
# runs RELEASES...: the nodes' releases, by number; "-" is one that is away.
runs() {
    local wanted="$*"
    until_it_is 15 "assert [n['release'] if n['runs'] else '-' for n in s['nodes']] == '$wanted'.split(), s" upgrade
}
metric() { python3 -c 'import sys, urllib.request; print(sum(float(l.split()[-1]) for l in urllib.request.urlopen(sys.argv[1] + "/metrics").read().decode().splitlines() if l.startswith(sys.argv[2])))' "$(admin_of "$1")" "$2"; }
heard() { metric "$1" "cairn_rehearsed_total{what=\"$2"; }
refused_frames() { metric "$1" cairn_peer_frames_refused_total; }
this=$("$cairn" --version | awk '{ print $2 }')
next=$(awk -F. '{ print $1 "." $2 + 1 "." $3 }' <<< "$this")

check "all nodes run this release, and speak what it does" is "assert s['cluster_version'] == s['next_version'] == 1 and not s['hindrances'], s
assert [(n['release'], n['protocol_oldest'], n['protocol_newest'], n['features']) for n in s['nodes']] == [('$this', 3, 3, [])] * 3, s" upgrade
check "there is nothing to finish" is 'assert not s["changed"] and s["cluster_version"] == 1, s' upgrade finish --yes

# One of three, while the volume is written through another. Its clients stay where they are: it moves no volume.
load --time_based --runtime=16 --rate_iops=400 --do_verify=0 > "$work/fio.out" 2>&1 &
fio_pid=$!
check "one node goes on to the next release" again 3 +1
check "that is told" runs "$this" "$this" "$next"
check "a node that is older is named" refused "node-1 (release $this) speaks cluster version 1, others up to 2: upgrade it first" "$cairn" upgrade finish
check "status says that nodes are of two releases" is "assert s['health'] == 'healthy' and any('$next' in f['cause'] for f in s['findings']), s" status
check "a second one does" again 2 +1
check "that is told, too" runs "$this" "$next" "$next"
check "fio goes on all the time" wait "$fio_pid"
within_sight() {
    local number
    for number in 2 3; do
        python3 -c 'import sys; sent, frames, fields = map(float, sys.argv[1:]); sys.exit(not (sent > 4 and frames > 4 and fields > 4))' \
            "$(heard $number frames-sent)" "$(heard $number frames-received)" "$(heard $number fields-received)" || return 1
    done
}
check "those two say to each other what only they know" within 10 within_sight
check "and nothing of it to the one that does not" test "$(heard 1 frames-received)/$(heard 1 fields-received)/$(refused_frames 1)" = 0.0/0.0/0.0
check "nor is a connection lost over it" test "$(refused_frames 2)/$(refused_frames 3)" = 0.0/0.0
check "what was written is there" load --verify_only=1

check "one goes back before it is finished" again 2
check "that is told" runs "$this" "$this" "$next"
check "what was written is there" load --verify_only=1
check "it goes on again" again 2 +1
check "and the last one does" again 1 +1
check "all are of the next release" runs "$next" "$next" "$next"
check "status says that it can be finished" until_it_is 10 "assert any(f['command'] == 'cairn upgrade finish' for f in s['findings']), s" status

check "a node is killed" kill_node 3
check "it is away" runs "$next" "$next" -
check "nobody is counted who is away" refused "node-3 does not run, so nobody knows its release" "$cairn" upgrade finish --yes
start_later() { CAIRN_TEST_PROTOCOL=+1; export CAIRN_TEST_PROTOCOL; start "$1"; CAIRN_TEST_PROTOCOL=; serves "$1"; }
check "it comes back" start_later 3
check "as the next release" runs "$next" "$next" "$next"
check "what finishing comes to is told" is 'assert (s["cluster_version"], s["next_version"], s["changed"]) == (1, 2, False), s' upgrade finish
"$cairn" upgrade finish | sed 's/^/      /'
check "and not done" is 'assert s["cluster_version"] == 1, s' upgrade
check "the upgrade is finished" is 'assert (s["cluster_version"], s["changed"]) == (2, True), s' upgrade finish --yes
check "an event tells it" until_it_is 10 'assert [e for e in s["events"] if e["kind"] == "upgrade-finished"], s' events
check "once and for all" is "assert (s['cluster_version'], s['changed'], s['finished_with']) == (2, False, '$next'), s" upgrade finish --yes

check "a node is stopped" stop 2
check "what is no release is refused" refused "CAIRN_TEST_PROTOCOL" env CAIRN_TEST_PROTOCOL=+7 "$cairn" node run --config "$work/m2/node.toml"
check "as the older release it does not start any more" refused "at cluster version 2, and this program speaks 1: run release $next" \
    timeout 30 "$cairn" node run --config "$work/m2/node.toml"
check "nor does a machine join" refused "at cluster version 2, and this program speaks 1" machine 4 join
check "as the next one it does" start_later 2
check "the cluster is whole" until_it_is 30 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
check "what was written is there" load --verify_only=1
finish
