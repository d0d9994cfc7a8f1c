"""The figures of a cluster of processes: `make bench-cluster`. Tables in Markdown; all single results in out/bench-cluster.json, where
each part has what was measured of it last (record.py).

    tools/bench-cluster.sh [PART...]       default: all, in this order

    failover     how long a host waits when a node fails (crates/faults, needs root): ROUNDS=20
    throughput   three processes, three copies, in memory and on disk, beside Ceph: SECONDS=5 each, REPEATS=3
    cairn        the same without Ceph
    goals        what Cairn is to be faster at than Ceph and Vitastor, by its own client, by NBD and by NVMe/TCP: by name only
    equal        p99 and p99.9 where 70 % of Vitastor's most is offered: by name only
    flat         what an I/O costs with more volumes, connections and data: FLAT_SECONDS_MAX=3600
    budget       CPU and time of a 4 KiB write and read, stage by stage
    recovery     a node that was away is made whole, beside a plain copy
    map          1,000 devices, 33,000 groups, 100,000 volumes in etcd

MEDIA='memory disk' of throughput, goals, equal, flat and recovery. CONTESTANTS: some of those of a part, goals: 'libcairn nbd nvme ceph', equal: 'libcairn nbd
ceph', flat: 'nvme nbd libcairn', throughput: 'gathered spread libcairn'; all where it is not set. Single results are kept, medians and spread printed.
"""

import os
import signal
import sys

import budget
import equal
import failover
import flat
import goals
import record
import recovery
import throughput
from clusters import PEER
from machine import CAIRN, FAULTS, REPEATS, SECONDS, chosen, results, run

PARTS = ("failover", "throughput", "cairn", "goals", "equal", "flat", "budget", "recovery", "map")
BY_NAME = ("cairn", "goals", "equal")
# Parts that each medium is measured by, and those of them that have Ceph among their contestants.
BY_MEDIA = {"goals": goals, "equal": equal, "flat": flat, "recovery": recovery}
BESIDE_CEPH = {"goals": goals, "equal": equal}
MEDIA = os.environ.get("MEDIA", "memory disk").split()
RECORD = "out/bench-cluster.json"


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
    if "throughput" in wanted or any(part in wanted and goals.CEPH in chosen(its.CONTESTANTS) for part, its in BESIDE_CEPH.items()):
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
    elif part in BY_MEDIA:
        for media in MEDIA:
            BY_MEDIA[part].measure(media)
    else:
        {"failover": failover.measure, "budget": budget.measure, "map": big_map}[part]()


main()
