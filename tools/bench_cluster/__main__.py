"""The figures of a cluster of processes: `make bench-cluster`. Tables in Markdown; all single results in out/bench-cluster.json, where
each part has what was measured of it last (record.py).

    tools/bench-cluster.sh [PART...]       default: all, in this order

    failover     how long a host waits when a node fails (crates/faults, needs root): ROUNDS=20
    throughput   three processes, three copies, in memory and on disk, beside Ceph: SECONDS=5 each, REPEATS=3
    cairn        the same without Ceph
    goals        what Cairn is to be faster at than Ceph and Vitastor, by its own client and by NBD: by name only
    flat         what an I/O costs with more volumes, connections and data
    budget       CPU and time of a 4 KiB write and read, stage by stage
    recovery     a node that was away is made whole
    map          1,000 devices, 33,000 groups, 100,000 volumes in etcd
"""

import json
import os
import signal
import sys

import budget
import flat
import goals
import record
import recovery
import throughput
from clusters import PEER
from machine import CAIRN, FAULTS, REPEATS, SECONDS, results, run, keep

PARTS = ("failover", "throughput", "cairn", "goals", "flat", "budget", "recovery", "map")
BY_NAME = ("cairn", "goals")
MEDIA = os.environ.get("MEDIA", "memory disk").split()
RECORD = "out/bench-cluster.json"


def failover():
    path = os.path.abspath("out/failover.json")
    rounds = os.environ.get("ROUNDS", "20")
    out = run([FAULTS, "failover", "--rounds", rounds, "--json", path], timeout=int(rounds) * 600)
    print("\n### Fail-over as the host sees it\n")
    print(out[out.index("| failure"):])
    with open(path, encoding="utf-8") as file:
        keep("failover", **json.load(file))


def big_map():
    import large_map
    large_map.measure()


def main():
    # Told to end, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = sys.argv[1:] or [part for part in PARTS if part not in BY_NAME]
    unknown = set(wanted) - set(PARTS)
    if unknown:
        sys.exit(f"{__doc__}\nbench-cluster: there is no part {', '.join(sorted(unknown))}")
    os.makedirs("out", exist_ok=True)
    os.environ.setdefault("CAIRN_BIN", os.path.abspath(os.path.join(os.path.dirname(FAULTS), "cairn")))
    print(f"{SECONDS:g} s for each point, {REPEATS} repeats, {os.cpu_count()} cores, Linux {os.uname().release}.")
    if {"throughput", "goals"} & set(wanted):
        print(run([sys.executable, PEER, "deps", "--install"], timeout=1800).splitlines()[0], file=sys.stderr)
    rounds = int(os.environ.get("ROUNDS", "20"))
    prints = record.fingerprint(CAIRN, seconds=SECONDS, repeats=REPEATS, rounds=rounds, media=MEDIA)
    for part in wanted:
        with record.recorded(RECORD, part, results, prints):
            measure(part)


def measure(part):
    if part in ("throughput", "cairn"):
        for media in MEDIA:
            throughput.measure(media, with_ceph=part == "throughput")
    elif part == "goals":
        for media in MEDIA:
            goals.measure(media)
    else:
        {"failover": failover, "flat": flat.measure, "budget": budget.measure, "recovery": recovery.measure, "map": big_map}[part]()


main()
