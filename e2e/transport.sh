#!/bin/bash
# What goes on between nodes of several cores that copy over a network of their own: over that one alone, by one connection for each
# pair of cores that talk, with one beat for each pair of nodes. Clients are told, and use, the other network.
# Mostly waits.
# Time: 150 s.
. "$(dirname "$0")/lib.sh"

need transport etcd fio pgrep python3 ss || finish
machine_cores=2
. "$(dirname "$0")/machines.bash"
for number in 1 2 3; do peers_at[$number]=127.0.0.$((10 + number)); done

# between STATEMENTS: about the connections between nodes; `of` has them by pair.
between() {
    local number words=()
    for number in 1 2 3; do words+=("$number=$(pgrep -d, -P "${node_pid[$number]}"),${node_pid[$number]}"); done
    python3 "$root/e2e/between.py" "${words[@]}" | python3 -c "
import json, sys
links = json.load(sys.stdin)
of = {pair: [c for c in links if tuple(c['nodes']) == pair] for pair in ((1, 2), (1, 3), (2, 3))}
$1"
}
# told STATEMENTS: about what each node says by metrics of each other one, p: {(node, other): {metric: value}}.
told() {
    python3 - "$(for number in 1 2 3; do admin_of $number; done)" "$1" << 'EOT'
import json, re, sys, urllib.request
p = {}
for node, admin in enumerate(sys.argv[1].split(), 1):
    page = urllib.request.urlopen(admin + "/metrics").read().decode()
    for name, labels, value in re.findall(r"^cairn_peer_(\w+)\{(.*)\} (\S+)$", page, re.M):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        pair = tuple(int(labels[end].removeprefix("node-")) for end in ("node", "peer"))
        assert pair[0] == node, pair
        if pair[1] != node:
            p.setdefault(pair, {})[name + "".join("_" + labels[key] for key in labels if key == "what")] = float(value)
assert set(p) == {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}, p
exec(sys.argv[2])
EOT
}

begin_with_three
"$cairn" volume create a --size 256M > /dev/null
"$cairn" volume create s --size 64M --placement spread > /dev/null

is_client_address='assert all(address.startswith("[::1]:") for address in s["nvme_addresses"]), s
assert len(s["nvme_addresses"]) == 3 and all(uri.startswith("nbd://[::1]:") for uri in [s["nbd_uri"], *s["nbd_uris"]]), s'
check "clients are told the clients' addresses" is "$is_client_address" volume info a
check "also of the nodes" is 'assert all(n[of].startswith("[::1]:") for n in s for of in ("nvme_address", "nbd_address")), s' node ls

load --do_verify=1 > "$work/fio.out" 2>&1 || fail "the load"
# Connections that two cores made at once are one after some seconds.
is_one='assert all(its["connections"] == its["core_pairs"] and 1 <= its["core_pairs"] <= 4 for its in p.values()), p'
check "two cores that talk have one connection" within 40 told "$is_one"
check "as the kernel has it" between "
assert all(1 <= len(connections) <= 4 for connections in of.values()), of"

load --time_based --runtime=30 --rate_iops=1500 --do_verify=0 > "$work/fio.out" 2>&1 &
fio_pid=$!
fio --name=s --ioengine=nbd --uri="$(field s nbd_uri)" --rw=randwrite --bs=16k --iodepth=8 --size=32M --time_based --runtime=25 \
    --rate_iops=300 --eta=never > "$work/spread.out" 2>&1 &
spread_pid=$!
sleep 2
before=$(between 'print(json.dumps({str(pair): sum(c["bytes"] for c in its) for pair, its in of.items()}))')
beats=$(told 'import time; print(json.dumps([time.time(), {str(pair): its for pair, its in p.items()}]))')
check "fio is a client of the clients' address" python3 -c '
import subprocess, sys
lines = [line.split() for line in subprocess.check_output(["ss", "-tnpOH"], text=True).splitlines() if "((\"fio\"" in line]
mine = [line[4] for line in lines if line[4].rpartition(":")[2] in sys.argv[1:]]
assert len(mine) >= 2 and all(end.startswith("[::1]:") for end in mine), lines' $("$cairn" node ls -o json |
    python3 -c 'import json, sys; print(*(n["nbd_address"].rpartition(":")[2] for n in json.load(sys.stdin)))')
stays() {
    local tries
    for tries in $(seq 10); do
        told "$is_one" && between 'assert all(1 <= len(its) <= 4 for its in of.values()), of' || return 1
        sleep 1
    done
}
# A node that gets no processor for seconds is connected to anew; soon after that is one connection again.
stays_at_last() { stays || { within 40 told "$is_one" && stays; }; }
check "so it stays while much is written" stays_at_last
both_count_the_same() {
    between "assert {pair: len(its) for pair, its in of.items()} == $(told 'print({(a, b): its["connections"] for (a, b), its in p.items() if a < b})'), of"
}
check "what the kernel counts is what nodes say" within 20 both_count_the_same
check "nodes reach each other by the addresses for that, and by no other" between "
ports = {f'127.0.0.{10 + number}:{port}' for number, port in ((1, ${peers[1]}), (2, ${peers[2]}), (3, ${peers[3]}))}
assert all(ports & set(c['ends']) and not any('::1' in end for end in c['ends']) for c in links), links"
check "what is copied goes there" between "
before = $before
moved = [sum(c['bytes'] for c in its) - before[str(pair)] for pair, its in of.items()]
# In ten seconds or more some 6 MB a second to each of two copies, where a machine is not busy.
assert sum(moved) > 4 << 20, moved"
check "a node beats once for each other one" told "
import time
at, before = $beats
beats = (time.time() - at) / 0.25
for pair, its in p.items():
    for what in ('beats_total_sent', 'beats_total_answered'):
        count = its[what] - before[str(pair)][what]
        # A node that gets no processor beats less often, and never more.
        assert 0.2 * beats < count < 1.05 * beats + 2, (pair, what, count, beats)"
check "fio went on all the time" wait "$fio_pid"
check "the other one, too" wait "$spread_pid"
check "all copies agree" within 60 "$cairn" check
for number in 1 2 3; do check "machine $number is stopped" stop $number; done
finish
