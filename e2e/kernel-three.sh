#!/bin/bash
# The Linux kernel as a host of three nodes: its first connect goes to a node that does not serve the volume, its paths follow
# the volume from node to node.
# Time: 200 s.
. "$(dirname "$0")/lib.sh"
need kernel-client qemu-system-x86_64 python3 dpkg-deb apt-get || finish

start_demo --nodes 3 --replicas 3 --device-size 1G --volume v:64M
node() { "$cairn" node ls -o json | python3 -c "import json, sys; print(json.load(sys.stdin)[$1]['nvme_address'].split(':')[-1])"; }
served_by() { "$cairn" volume info v -o json | python3 -c "import json, sys; assert json.load(sys.stdin)['nvme_addresses'][0].endswith(':$(node "$1")')"; }
check "node 1 serves the volume" served_by 0
check "a node that is not there gets nothing" refused "it is not up" "$cairn" volume move v node-7
check "what is no node is refused" refused "cairn node ls" "$cairn" volume move v here

export CAIRN_BIN=$cairn
mkdir -p "$work/three"
"$root/tools/kernel-client/kernel-client" run --timeout 200 --out "$work/three" --smp 2 --hook 'cairn="$CAIRN_BIN" "$@"' \
    "$root/e2e/guest/nvme-three.sh" 10.0.2.2 "$(field v nqn)" "$(field v nsid)" v "$(node 0)" "$(node 1)" "$(node 2)" \
    > "$work/three.out" 2> "$work/three.err"
status=$?
sed 's/^/      /' "$work/three.out"
passed=$((passed + $(grep -c '^PASS:' "$work/three.out")))
failed=$((failed + $(grep -c '^FAIL:' "$work/three.out")))
if [ $status = 0 ]; then pass "guest"; else
    fail "guest (exit status $status)"
    tail -n 5 "$work/three.err" | sed 's/^/      /'
    tail -n 15 "$work/three/dmesg.txt" 2> /dev/null | sed 's/^/      /'
fi
check "node 2 serves it" served_by 1
check "the cluster is healthy" sh -c '"$1" status -o json | grep -q "\"health\": \"healthy\""' - "$cairn"
stop_demo
finish
