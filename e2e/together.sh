#!/bin/bash
# Clients of all kinds at once, on one node: each writes to a volume (or its part of one) and verifies it while all
# others do; then the node is killed with some of them under way, is started again, and each finds all that it was told
# is written.
# Time: 300 s (half a minute; the first run builds the guest from Debian packages)
. "$(dirname "$0")/lib.sh"
need together nbdcopy qemu-img qemu-io qemu-nbd nbdkit fio nbdsh qemu-system-x86_64 mkfs.ext4 dpkg-deb apt-get || finish
load=$tools/verified-load
[ -x "$load" ] || { fail "$load is there: 'cargo build --workspace' makes it"; finish; }

names="nbdcopy connections qemu-img qcow2 qemu-io model multi fio fio-two shared nbdkit qemu-nbd"
volumes=()
for name in $names own-nbd own-nvme; do volumes+=(--volume "$name:64M"); done
start_demo --device-size 6G --cores 2 "${volumes[@]}" --volume own-digests:64M:4096 --volume kernel:256M:4096
server=nbd://127.0.0.1:$nbd_port

# The clients: NAME PHASE URI. `write` writes and compares at once, `verify` compares only.
image() { { head -c 40M /dev/urandom; head -c 8M /dev/zero; head -c 16M /dev/urandom; } > "$work/$1.raw"; }
same_as_image() { nbdcopy "${@:2}" - | cmp - "$work/$1.raw"; }
nbdcopy_() { [ "$1" = verify ] || nbdcopy "$work/nbdcopy.raw" "$2" && same_as_image nbdcopy "$2"; }
connections() {
    [ "$1" = verify ] || nbdcopy --connections=4 --requests=16 "$work/connections.raw" "$2" &&
        same_as_image connections --connections=4 "$2"
}
qemu_img() {
    [ "$1" = verify ] || qemu-img convert -n -f raw -O raw -m 8 -W "$work/qemu-img.raw" "$2" &&
        qemu-img compare -f raw -F raw "$work/qemu-img.raw" "$2"
}
# A qcow2 image, its tables and all, on a volume.
qcow2() {
    [ "$1" = verify ] || { truncate -s 48M "$work/qcow2.raw" && qemu-img create -q -f qcow2 "$2" 48M &&
        qemu-img convert -n -f raw -O qcow2 -m 4 -W "$work/qcow2.raw" "$2"; } &&
        qemu-img check -q -f qcow2 "$2" && qemu-img compare -f raw -F qcow2 "$work/qcow2.raw" "$2"
}
qemu_io() {
    local number writes=() reads=()
    for number in $(seq 200); do
        # Each beside the one before, of another length, none on a block's border.
        local at=$((number * 262144 + 512)) length=$((number * 1024 + 512))
        writes+=(-c "write -q -P $number $at $length") reads+=(-c "read -q -P $number $at $length")
    done
    { [ "$1" = verify ] || qemu-io -f raw "${writes[@]}" "$2"; } &&
        qemu-io -f raw "${reads[@]}" "$2" > "$work/qemu-io.out" && cat "$work/qemu-io.out" &&
        ! grep -q -i 'fail\|error' "$work/qemu-io.out"
}
libnbd() { /usr/bin/python3 "$root/e2e/together-nbd.py" "$1" "$2" "$3"; }
fio_job() { # fio_job NAME PHASE URI OPTIONS...
    local only=(); [ "$2" = verify ] && only=(--verify_only=1)
    fio --name="$1" --ioengine=nbd --uri="$3" --rw=randwrite --verify=crc32c --verify_fatal=1 --do_verify=1 \
        --eta=never "${only[@]}" "${@:4}"
}
nbdkit_() {
    local script='nbdcopy "$uri" - | cmp - "$image"'
    [ "$1" = verify ] || script='nbdcopy "$image" "$uri" && '$script
    image=$work/nbdkit.raw nbdkit -U - nbd "uri=$2" --run "$script"
}
qemu_nbd() {
    local gateway="nbd+unix:///?socket=$work/qemu-nbd.$1" pid status tries
    qemu-nbd -f raw --persistent --socket="$work/qemu-nbd.$1" "$2" &
    pid=$!
    for tries in $(seq 100); do [ -S "$work/qemu-nbd.$1" ] && break; sleep 0.1; done
    { [ "$1" = verify ] || nbdcopy "$work/qemu-nbd.raw" "$gateway"; } && same_as_image qemu-nbd "$gateway"
    status=$?
    kill "$pid"; wait "$pid"
    return $status
}
client() { # client NAME PHASE
    local uri=$server/$1
    case $1 in
        nbdcopy) nbdcopy_ "$2" "$uri" ;;
        connections) connections "$2" "$uri" ;;
        qemu-img) qemu_img "$2" "$uri" ;;
        qcow2) qcow2 "$2" "$uri" ;;
        qemu-io) qemu_io "$2" "$uri" ;;
        model | multi) libnbd "$1" "$2" "$uri" ;;
        fio) fio_job fio "$2" "$uri" --bs=4k --iodepth=32 --size=48M ;;
        # Two processes, each with a connection, on the two halves of one volume.
        fio-two) fio_job two "$2" "$uri" --bs=64k --iodepth=8 --size=32M --numjobs=2 --offset_increment=32M ;;
        # The second half of the volume of which an NVMe host has the first.
        shared) fio_job shared "$2" "$server/own-nvme" --bs=4k --iodepth=8 --size=24M --offset=32M ;;
        nbdkit) nbdkit_ "$2" "$uri" ;;
        qemu-nbd) qemu_nbd "$2" "$uri" ;;
    esac
}

# all PHASE WHAT: every client at once; each is a proof of its own.
all() {
    local name pids=()
    for name in $names; do client "$name" "$1" > "$work/$name.$1" 2>&1 < /dev/null & pids+=($!); done
    for name in $names; do
        if wait "${pids[0]}"; then pass "$name: $2"; else
            fail "$name: $2"; tail -n 10 "$work/$name.$1" | sed 's/^/      /'
        fi
        pids=("${pids[@]:1}")
    done
}

# Our own hosts and client go on over the kill; so does the kernel.
own="own-nbd:nbd:64 own-nvme:nvme:32 own-digests:nvme-digests:64"
own_pids=()
end_clients() { [ ${#own_pids[@]} = 0 ] || kill -TERM "${own_pids[@]}" 2> /dev/null; }
trap 'end_clients; cleanup' EXIT
start_own() {
    local entry name door mib
    for entry in $own; do
        IFS=: read -r name door mib <<< "$entry"
        "$load" "${admin#http://}" "$name" "$door" "$mib" 4000 "$work/go" > "$work/$name.out" 2> "$work/$name.err" &
        own_pids+=($!)
    done
    "$root/tools/kernel-client/kernel-client" run --timeout 240 --smp 1 --out "$work/guest" \
        --hook 'killed=touch "$work/guest.waits"; until [ -e "$work/again" ]; do sleep 0.2; done' \
        "$root/e2e/guest/together.sh" 10.0.2.2 "$nvme_port" "$(field kernel nqn)" "$(field kernel nsid)" \
        > "$work/kernel.out" 2> "$work/kernel.err" &
    own_pids+=($!)
}
# all_say WORD: each of our own has said so, within two minutes.
all_say() {
    local entry tries
    for tries in $(seq 1200); do
        for entry in $own; do grep -q "^$1" "$work/${entry%%:*}.out" || break; done
        grep -q "^$1" "$work/${entry%%:*}.out" && return 0
        sleep 0.1
    done
    tail -n 5 "$work"/own-*.err
    return 1
}
# The end of one of our own: what it said last.
own_kept() { wait "$2" && grep "^kept" "$work/$1.out" || { grep -A4 -m1 panicked "$work/$1.err"; tail -n 3 "$work/$1.err"; return 1; }; }
guest_waits() {
    local tries
    for tries in $(seq 1800); do
        [ -e "$work/guest.waits" ] && return 0
        kill -0 "${own_pids[3]}" 2> /dev/null || break
        sleep 0.1
    done
    tail -n 10 "$work/kernel.out" "$work/kernel.err"
    return 1
}

"$root/tools/kernel-client/kernel-client" build 2> /dev/null
for name in nbdcopy connections qemu-img qcow2 nbdkit qemu-nbd; do image "$name"; done
export work
start_own
all write "writes and finds what it wrote, beside all others"
check "our own NBD client and NVMe/TCP hosts, digests off and on: every sector is right" all_say verified
check "the kernel has written, and waits" guest_waits
touch "$work/go"
check "they load it again" all_say loading
kill -KILL "$demo_pid"; wait "$demo_pid" 2> /dev/null; demo_pid=
# On the ports that it had: who connects again knows no others.
start_demo --nvme-port "$nvme_port" --nbd-port "$nbd_port" --admin-port "${admin##*:}"
touch "$work/again"
all verify "after kill -9 all of it is there"
number=0
for entry in $own; do
    check "${entry%%:*}: what was acknowledged up to the kill is there" own_kept "${entry%%:*}" "${own_pids[number]}"
    number=$((number + 1))
done
wait "${own_pids[3]}"; status=$?
own_pids=()
sed 's/^/      /' "$work/kernel.out"
passed=$((passed + $(grep -c '^PASS:' "$work/kernel.out"))) failed=$((failed + $(grep -c '^FAIL:' "$work/kernel.out")))
if [ $status = 0 ]; then pass "the kernel finds everything after the kill"; else
    fail "the kernel's guest (exit status $status)"; tail -n 8 "$work/kernel.err" | sed 's/^/      /'
fi
# What is not what a client wrote is noticed by each of them.
noticed() { ! client "$1" verify; }
for name in $names; do
    volume=$name; [ "$name" = shared ] && volume=own-nvme
    qemu-io -f raw -c "write -q -z 0 64M" "$server/$volume" > /dev/null
    check "$name: it is no more there, which is noticed" noticed "$name"
done
check "the cluster is healthy" sh -c '"$1" status -o json | grep -q "\"health\": \"healthy\""' - "$cairn"
stop_demo
check "not a byte of the device is wrong" "$cairn" device check "$work/d/node-1/device-1.img"
finish
