"""Three copies, processes that talk TCP, beside Ceph on the same kind of file: rates, latencies, CPU."""

from clusters import Cairn, Ceph
from machine import GIB, REPEATS, chosen, fio, keep, medians, ping_pong, say, table

SIZE = GIB
# In memory all of it is there before anything is measured.
DEVICE = {"memory": 7 * GIB // 2, "disk": 7 * GIB // 2}
# Reads first: they leave the log as it is.
CASES = [("randread", "4k", 1), ("randread", "4k", 16), ("randread", "4k", 128), ("randwrite", "4k", 1), ("randwrite", "4k", 16),
         ("randwrite", "4k", 128), ("read", "128k", 16), ("read", "1M", 4), ("write", "128k", 16), ("write", "1M", 4)]
PLACEMENTS = ("gathered", "spread")
# The same gathered volume through fio's engine over libcairn: fio's process is the head.
PROGRAM = "libcairn"
WORDS = {"randread": "random read", "randwrite": "random write", "read": "sequential read", "write": "sequential write"}


def measure(media, with_ceph):
    """Contestants in turn, one at a time, as often as wanted; returns medians by contestant and case."""
    seen, states = {}, []
    contestants = chosen((*PLACEMENTS, PROGRAM))
    for repeat in range(REPEATS):
        states.append(ping_pong())
        say(f"{media}, repeat {repeat + 1} of {REPEATS}: ping-pong {states[-1]:.0f}k")
        cluster = Cairn(media, DEVICE[media])
        try:
            targets = {placement: cluster.volume(placement, SIZE, placement) for placement in PLACEMENTS}
            targets[PROGRAM] = (cluster.program("gathered"), targets["gathered"][1])
            for case in CASES:
                for placement, (target, head) in ((name, targets[name]) for name in contestants):
                    one = fio(target, *case, cluster.processes(), SIZE)
                    one["cpu_us"] = by_role(one["cpu_us"], head)
                    seen.setdefault((f"Cairn, {placement}", case), []).append(one)
                    keep(f"{media} {placement} {' '.join(map(str, case))}", **one)
                    say(f"{placement} {case}: {one['iops']:,.0f} IOPS, {one['processes_us']:.0f} µs CPU")
        finally:
            cluster.stop()
        if with_ceph:
            measure_ceph(media, seen)
    tell(media, seen, states)
    return {key: medians(rounds) for key, rounds in seen.items()}


def measure_ceph(media, seen):
    ceph = Ceph(media, DEVICE[media], SIZE)
    try:
        for case in CASES:
            one = fio(ceph.target, *case, ceph.processes(), SIZE)
            one["cpu_us"] = {"client": one["cpu_us"]["client"], "OSDs": add(one["cpu_us"], "osd."), "mon, mgr": add(one["cpu_us"], "m")}
            seen.setdefault(("Ceph", case), []).append(one)
            keep(f"{media} Ceph {' '.join(map(str, case))}", **one)
            say(f"Ceph {case}: {one['iops']:,.0f} IOPS, {one['processes_us']:.0f} µs CPU")
    finally:
        ceph.stop()


def by_role(cpu, head):
    """The head's node, which leads the groups of what is gathered, apart from the two others, whichever it is."""
    others = [value for name, value in cpu.items() if name.startswith("node") and name != f"node {head}"]
    return {"client": cpu["client"], "head's node": cpu[f"node {head}"], "other nodes": [sum(part) for part in zip(*others)], "etcd": cpu["etcd"]}


def add(cpu, prefix):
    return [sum(part) for part in zip(*(value for name, value in cpu.items() if name.startswith(prefix)))]


def tell(media, seen, states):
    rows = []
    for case in CASES:
        for name in [name for name, its in seen if its == case]:
            m = medians(seen[name, case])
            parts = ", ".join(f"{role} {sum(cpu):.1f}" for role, cpu in m["cpu_us"].items())
            ceph = medians(seen["Ceph", case]) if ("Ceph", case) in seen and name != "Ceph" else None
            rows.append([f"{case[1]} {WORDS[case[0]]}", str(case[2]), name, f"{m['iops']:,.0f}", f"{m['mib_s']:,.0f}", f"{m['mean_us']:,.0f}",
                         f"{m['p99_us']:,.0f}", f"{m['p999_us']:,.0f}", f"{m['machine_us']:.1f}", f"{m['processes_us']:.1f}", parts,
                         f"{m['iops'] / ceph['iops']:.1f} ×" if ceph else "", f"{ceph['processes_us'] / m['processes_us']:.1f} ×" if ceph else ""])
    table(f"Three copies, {media}", ["", "depth", "", "IOPS", "MiB/s", "mean µs", "p99 µs", "p99.9 µs", "CPU µs per I/O, machine", "its processes and the client",
                                     "of these", "IOPS of Ceph's", "I/Os per CPU second of Ceph's"], rows)
    print(f"\nMedians of {REPEATS}. Ping-pong over loopback before each repeat: {', '.join(f'{state:.0f}k' for state in states)} a second.")
