#!/bin/bash
# The Linux kernel with native multipath over nodes that are processes: the one that serves is killed, stands still, is cut off
# and falls silent; no error, no long stall, nothing lost. And a volume that waits for a third node for a minute and a half
# leaves those beside it alone.
# Time: 700 s (the first run builds the guest from Debian packages)
. "$(dirname "$0")/lib.sh"
need kernel-client etcd qemu-system-x86_64 python3 mkfs.ext4 dpkg-deb apt-get || finish

start_demo --nodes 3 --replicas 3 --processes --device-size 2G --volume files:96M
check "a pool whose writes wait for all three copies" "$cairn" pool create strict --replicas 3 --min-in-sync 3
check "a second volume" "$cairn" volume create raw --size 32M --placement local:node-1
check "and one in that pool" "$cairn" volume create strict --size 32M --pool strict --placement local:node-2
of_node() { "$cairn" node ls -o json | python3 -c "import json, sys; print(json.load(sys.stdin)[$1 - 1]['$2'])"; }
door() { of_node "$1" nvme_address | sed 's/.*://'; }

# send SIGNAL NODE: to the process that is the node. Its supervisor starts it again when it has ended.
export CAIRN_BIN=$cairn
cat > "$work/send" << 'HOOK'
#!/bin/bash
pid=$("$CAIRN_BIN" node ls -o json | python3 -c "import json, sys; print(json.load(sys.stdin)[$2 - 1]['pid'])")
[ "$pid" -gt 1 ] || { grep -q . "$0.$2" && pid=$(cat "$0.$2"); }
echo "$pid" > "$0.$2"
kill -"$1" "$pid"
HOOK
chmod +x "$work/send"
mkdir -p "$work/guest"
"$root/tools/kernel-client/kernel-client" run --timeout 640 --out "$work/guest" --smp 2 --hook 'cairn="$CAIRN_BIN" "$@"' \
    --hook "send=$work/send \"\$@\"" --link one="$(door 1)" --link two="$(door 2)" "$root/e2e/guest/nvme-failover.sh" \
    "$(field files nqn)" "$(field files nsid)" "$(field raw nsid)" "$(field strict nsid)" > "$work/guest.out" 2> "$work/guest.err"
status=$?
sed 's/^/      /' "$work/guest.out"
passed=$((passed + $(grep -c '^PASS:' "$work/guest.out")))
failed=$((failed + $(grep -c '^FAIL:' "$work/guest.out")))
if [ $status = 0 ]; then pass "guest"; else
    fail "guest (exit status $status)"
    tail -n 5 "$work/guest.err" | sed 's/^/      /'
    tail -n 15 "$work/guest/dmesg.txt" 2> /dev/null | sed 's/^/      /'
fi
stop_demo
for node in 1 2 3; do
    check "node $node's device has no fault" "$cairn" device check "$work/d/node-$node/device-1.img"
done
finish
