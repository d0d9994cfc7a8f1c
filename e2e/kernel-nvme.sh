#!/bin/bash
# NVMe/TCP as the Linux kernel speaks it: a guest with a stock kernel (tools/kernel-client) connects to `cairn demo`.
# Time: 600 s (the first run builds the guest from Debian packages)
. "$(dirname "$0")/lib.sh"
need kernel-client qemu-system-x86_64 python3 mkfs.ext4 dpkg-deb apt-get || finish

kernel_client=$root/tools/kernel-client/kernel-client
start_demo --device-size 2G --volume v512:384M --volume v4096:384M:4096
nqn=$(field v512 nqn)

guest() { # guest NAME SCRIPT ARGS...: shows what the guest's script says of itself
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

# As much of a session as people have: discover, connect, file system, trim, reconnect in four ways, compare.
guest session "$root/e2e/guest/nvme-session.sh" 10.0.2.2 "$nvme_port" "$nqn" "$(field v512 nsid)" "$(field v4096 nsid)"
# And the initiator's commands one by one, with fio's verification, with both digests and two I/O queues.
guest commands --smp 2 "$root/tools/kernel-client/examples/connect-and-verify.sh" 10.0.2.2 "$nvme_port" "$nqn" \
    mb=8 ns="$(field v4096 nsid)" connect="-i 2 -g -G"

check "the cluster is healthy" sh -c '"$1" status -o json | grep -q "\"health\": \"healthy\""' - "$cairn"
stop_demo
finish
