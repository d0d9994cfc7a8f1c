#!/bin/bash
# NVMe/TCP as the Linux kernel speaks it: a guest with a stock kernel (tools/kernel-client) connects to `cairn demo`.
#   KERNEL_CLIENT_KERNEL=backports e2e/kernel-nvme.sh     with a newer kernel, and its atomic writes
# Time: 900 s (five minutes; the first run builds the guest from Debian packages)
. "$(dirname "$0")/lib.sh"
need kernel-client qemu-system-x86_64 python3 mkfs.ext4 dpkg-deb apt-get || finish

kernel_client=$root/tools/kernel-client/kernel-client
start_demo --device-size 2G --volume v512:384M --volume v4096:384M:4096
nqn=$(field v512 nqn) small=$(field v512 nsid) large=$(field v4096 nsid)

guest() { # guest NAME OPTIONS... SCRIPT ARGS...: shows what the guest's script says of itself
    local name=$1; shift
    mkdir -p "$work/$name"
    "$kernel_client" run --timeout 420 --out "$work/$name" "$@" > "$work/$name.out" 2> "$work/$name.err"
    local status=$?
    sed 's/^/      /' "$work/$name.out"
    passed=$((passed + $(grep -c '^PASS:' "$work/$name.out")))
    failed=$((failed + $(grep -c '^FAIL:' "$work/$name.out")))
    if [ $status = 0 ]; then
        pass "guest: $name"
    else
        fail "guest: $name (exit status $status)"
        tail -n 5 "$work/$name.err" | sed 's/^/      /'
        tail -n 15 "$work/$name/dmesg.txt" 2> /dev/null | sed 's/^/      /'
    fi
}

# The demo on the ports that it has, again after each kill -9, until SIGTERM.
keep_demo() {
    local node= status stopping=
    trap 'stopping=1; kill -TERM "$node"' TERM
    while :; do
        "$cairn" demo --dir "$work/d" --nvme-port "$nvme_port" --nbd-port "$nbd_port" --admin-port "${admin##*:}" \
            >> "$work/ready" 2>> "$work/demo.log" &
        node=$!
        echo "$node" > "$work/node"
        wait "$node"; status=$?
        [ -n "$stopping" ] && { wait "$node"; exit; }
        [ $status = 137 ] || exit $status
    done
}

# As much of a session as people have: discover, connect, file system, trim, reconnect in four ways, compare.
guest session "$root/e2e/guest/nvme-session.sh" 10.0.2.2 "$nvme_port" "$nqn" "$small" "$large"
# What a person types to look around, and what Cairn refuses.
guest typed "$root/e2e/guest/nvme-typed.sh" 10.0.2.2 "$nvme_port" "$nqn" "$small"
# Both formats by each kind of digest, raw and under ext4 and XFS.
guest matrix --smp 2 "$root/e2e/guest/nvme-matrix.sh" 10.0.2.2 "$nvme_port" "$nqn" "$small" "$large"
# And the initiator's commands one by one, with fio's verification, with both digests and two I/O queues.
guest commands --smp 2 "$root/tools/kernel-client/examples/connect-and-verify.sh" 10.0.2.2 "$nvme_port" "$nqn" \
    mb=8 ns="$large" connect="-i 2 -g -G"
# Linux knows atomic writes since 6.11, its native multipath not even in 6.12.
if [ "${KERNEL_CLIENT_KERNEL:-stable}" != stable ]; then
    guest atomic --append nvme_core.multipath=N "$root/e2e/guest/nvme-atomic.sh" 10.0.2.2 "$nvme_port" "$nqn" \
        "$small" "$large"
fi
stop_demo

# What changes under a host: size, access, and the node itself.
: > "$work/ready"
keep_demo &
demo_pid=$!
trap '[ -n "$demo_pid" ] && kill -KILL "$demo_pid" "$(cat "$work/node")" 2> /dev/null; cleanup' EXIT
for _ in $(seq 300); do grep -q '^ready' "$work/ready" && break; sleep 0.1; done
export CAIRN_BIN=$cairn work
guest changes --smp 2 --hook 'cairn="$CAIRN_BIN" "$@"' --hook 'kill=kill -KILL "$(cat "$work/node")"' \
    "$root/e2e/guest/nvme-changes.sh" 10.0.2.2 "$nvme_port" "$nqn" "$small" "$large"

check "the cluster is healthy" sh -c '"$1" status -o json | grep -q "\"health\": \"healthy\""' - "$cairn"
stop_demo
finish
