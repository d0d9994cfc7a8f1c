#!/bin/bash
# libcairn and fio's engine over it, against nodes that are processes: a program is the head of a volume, is killed, is paused, and
# outlives a node. Mostly waits.
# Time: 400 s.
. "$(dirname "$0")/lib.sh"

need libcairn etcd fio nbdinfo cc pkg-config python3 || finish

# What the build of all brought is not built once more with fewer features.
export LIBCAIRN_BUILT=${CAIRN_BIN:+1}
check "the library and fio's engine are built" "$root/tools/libcairn.sh" engine
check "the library is installed" env PREFIX="$work/usr" "$root/tools/libcairn.sh" install
build() {
    local flags
    flags=$(PKG_CONFIG_PATH=$work/usr/lib/pkgconfig pkg-config --cflags --libs cairn) || return
    # shellcheck disable=SC2086
    cc -std=gnu11 -O1 -g -Wall -Werror -o "$work/program" "$root/e2e/libcairn.c" $flags -Wl,-rpath,"$work/usr/lib"
}
check "a C program is built with what pkg-config says" build || finish
engine=${CARGO_TARGET_DIR:-$root/target}/release/libcairn-fio.so

start_demo --nodes 3 --replicas 3 --processes --device-size 1G --volume a:128M --volume b:128M
# A node's file will do.
conf=$work/d/node-1/node.toml
a="cairn:a?conf=$conf"
of_node() { "$cairn" node ls -o json | python3 -c "import json, sys; print(json.load(sys.stdin)[$1 - 1]['$2'])"; }
head_is() { is "assert s['head'].startswith('$1'), s['head']" volume info a; }
is_whole() { is 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"], s' status; }
within 60 is_whole

# begin SECONDS: a program writes in the background.
begin() {
    "$work/program" load "$a" "$work/notes" "$1" > "$work/load" 2>&1 & running=$!
    within 30 grep -q writing "$work/load" || fail "the program does not begin: $(cat "$work/load")"
}
ends_with() {
    wait $running
    local status=$?
    [ $status = "$1" ] && pass "$2" || fail "$2: exit status $status, $(tail -n 1 "$work/load")"
}

check "polled, waited for, zeroed, discarded; nonsense is refused" "$work/program" poll "$a"
check "each way to wait is served, alone and beside others" timeout 120 "$work/program" threads "$a"
begin 22
check "the program is the volume's head" until_it_is 5 'assert s["head"].startswith("client-"), s["head"]' volume info a
check "it is no node" is 'assert [n["name"] for n in s] == ["node-1", "node-2", "node-3"], s' node ls
check "and no trouble" is_whole
check "whoever asks for more is told why not" refused "open" "$cairn" snapshot create a@no
check "another program is refused" refused "is in use through client-" "$work/program" poll "$a"
ends_with 0 "all its writes were acknowledged"
check "they are there" "$work/program" verify "$a" "$work/notes" 0
check "and a node is the head again" until_it_is 5 'assert s["head"].startswith("node-"), s["head"]' volume info a
check "over NBD, too" nbdinfo "$(field a nbd_uri)"

begin 60
sleep 2
kill -KILL $running
wait $running 2> /dev/null
check "killed: another program has all that was acknowledged, and nothing comes late" "$work/program" verify "$a" "$work/notes" 3

begin 20
sleep 2
kill -KILL "$(of_node 2 pid)"
ends_with 0 "a node is killed, and the program goes on without an error"
check "all of it is there" "$work/program" verify "$a" "$work/notes" 0
within 60 is_whole

# Longer than it is paused, however slow the machine.
begin 300
sleep 2
kill -STOP $running
check "paused: a node has taken the volume over" until_it_is 40 'assert s["head"].startswith("node-"), s["head"]' volume info a || {
    # It would go on for minutes.
    kill -KILL $running
    "$cairn" status; "$cairn" node ls
    finish
}
check "and another program all that was acknowledged" "$work/program" verify "$a" "$work/notes" 0
cp "$work/notes" "$work/notes-then"
sleep 5
kill -CONT $running
ends_with 3 "the program that was paused is refused whatever it asks for"
check "and has written nothing" "$work/program" verify "$a" "$work/notes-then" 2

measured() {
    (cd "$work" && fio --name=f --ioengine=external:"$engine" --uri="cairn:b?conf=$conf" --rw=randwrite --bs=4k --iodepth=32 \
        --numjobs=2 --offset_increment=32M --size=32M --verify=crc32c --verify_fatal=1 --eta=never)
}
check "fio writes and verifies by its engine, two jobs" measured
check "cairn bench measures by it" env CAIRN_FIO_ENGINE="$engine" "$cairn" bench mix --quick --size 16M --overwrite \
    --target "cairn:b?conf=$conf" --engine libcairn --out "$work/bench"
stop_demo
finish
