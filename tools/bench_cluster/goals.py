"""What Cairn is to be faster at, and by how much: each case in turn by its own client (fio's engine over libcairn), by NBD, by NVMe/TCP (our host library,
`cairn-bench nvme`) and by Ceph, on a volume of the same size. Which is first changes from repeat to repeat, and among those of Cairn from case to
case. Vitastor's figures (vitastor.py) were measured at another time, on a machine of this kind: context, not an opponent."""

import time
from typing import NamedTuple

from clusters import Cairn, Ceph
from machine import (GIB, RAMP_S, REPEATS, SECONDS, chosen, duration, fio, generator, keep, medians, ping_pong, say, say_left, table, turned, with_spread)
from vitastor import known

SIZE = GIB
DEVICE = 7 * GIB // 2
LIBCAIRN, NBD, NVME, CEPH = "libcairn", "NBD", "NVMe/TCP", "Ceph"
CONTESTANTS = (LIBCAIRN, NBD, NVME, CEPH)


class Case(NamedTuple):
    what: str
    rw: str
    block: str
    depth: int
    # What is compared, and how many times Ceph's and Vitastor's it is to be; "mean_us": so many times as short.
    figure: str
    of_ceph: float | None = None
    of_vitastor: float | None = None
    # Of 100 I/Os of a mix so many read, and so many go anywhere.
    reads: int | None = None
    random: int | None = None


def in_order(block, depth, direction, goal):
    return Case(f"{block} sequential {direction}, depth {depth}", direction, block, depth, "mib_s", goal, goal)


LARGE = [("512k", 1), ("512k", 16), ("512k", 128), ("4M", 1), ("4M", 16)]
CASES = [
    Case("4k random read, depth 128", "randread", "4k", 128, "iops", 8, 2.5),
    Case("4k random read, depth 1", "randread", "4k", 1, "mean_us", 4, 1 / 0.75),
    Case("4k random write, depth 128", "randwrite", "4k", 128, "iops", 30, 2),
    Case("4k random write, depth 1", "randwrite", "4k", 1, "mean_us", 6, 1 / 0.7),
    Case("8k 80/20, depth 64", "randrw", "8k", 64, "iops", 12.5, 2, 80, 80),
    Case("16k 70/30, depth 64", "randrw", "16k", 64, "iops", 10.4, 1.9, 70, 80),
    Case("32k 50/50, depth 64", "randrw", "32k", 64, "iops", 5.7, 1.4, 50, 80),
    *(in_order(block, depth, "read", 1.1) for block, depth in LARGE),
    *(in_order(block, depth, "write", 1.5) for block, depth in LARGE),
    Case("4k random write, depth 32", "randwrite", "4k", 32, "iops"),
    Case("4k sequential write, depth 32", "write", "4k", 32, "iops"),
    Case("4k sequential write, depth 128", "write", "4k", 128, "iops"),
]
# A sequential write of 4 KiB is to have at least the IOPS of a random one, at these depths.
ORDER_DEPTHS = (32, 128)
# I/Os per second and core of the storage's processes: how many times Ceph's and Vitastor's. Of mixes no goal is set.
PER_CORE = {"4k random read, depth 128": (8, 2), "4k random write, depth 128": (30, 2),
            "8k 80/20, depth 64": (None, None), "16k 70/30, depth 64": (None, None), "32k 50/50, depth 64": (None, None)}
UNITS = {"iops": "IOPS", "mean_us": "µs mean", "mib_s": "MiB/s", "per_core": "IOPS per storage core"}

# What beside warm-up and measured time a point takes (a process that begins, opens, and gives back), and a cluster until it is filled: seen
# on a machine of 2 cores, for what is said before only.
POINT_S, CAIRN_S, CEPH_S = 1.2, 35, 60


def planned_s(names, cases=len(CASES)):
    """How long one medium takes, about."""
    points = len(names) * cases * (SECONDS + RAMP_S + POINT_S)
    return REPEATS * (points + (CAIRN_S if set(names) - {CEPH} else 0) + (CEPH_S if CEPH in names else 0))


def measure(media):
    names = chosen(CONTESTANTS)
    began = time.monotonic()
    plan = f"{len(CASES)} cases, {', '.join(names)}, {REPEATS} repeats, {SECONDS:g} s and {RAMP_S} s of warm-up for each"
    print(f"\nGoals, {media}: {plan}: about {duration(planned_s(names))}.", flush=True)
    seen, states = {}, []
    for repeat in range(REPEATS):
        ours = [name for name in names if name != CEPH]
        clusters = ([lambda: measure_cairn(media, ours, repeat, seen)] if ours else []) + ([lambda: measure_ceph(media, repeat, seen)] if CEPH in names else [])
        for one in turned(clusters, repeat):
            states.append(ping_pong())
            say(f"{media}, repeat {repeat + 1} of {REPEATS}: ping-pong {states[-1]:.0f}k")
            one()
        say_left(began, repeat + 1, REPEATS)
    tell(media, names, seen)
    print(f"\nMedians of {REPEATS}, and between what they lie. Ping-pong over loopback before each cluster: "
          f"{', '.join(f'{state:.0f}k' for state in states)} a second. It took {duration(time.monotonic() - began)}.")


def measure_cairn(media, names, repeat, seen):
    cluster = Cairn(media, DEVICE)
    try:
        by_nbd, _ = cluster.volume("gathered", SIZE, "gathered")
        loads = {LIBCAIRN: by_fio(cluster.program("gathered")), NBD: by_fio(by_nbd), NVME: by_host(cluster, "gathered")}
        for number, case in enumerate(CASES):
            for name in turned(names, repeat + number):
                take(seen, media, repeat, name, case, loads[name](case, cluster.processes()))
    finally:
        cluster.stop()


def measure_ceph(media, repeat, seen):
    ceph = Ceph(media, DEVICE, SIZE)
    try:
        load = by_fio(ceph.target)
        for case in CASES:
            take(seen, media, repeat, CEPH, case, load(case, ceph.processes()))
    finally:
        ceph.stop()


def by_fio(target):
    def load(case, processes):
        mix = () if case.reads is None else (f"--rwmixread={case.reads}", f"--percentage_random={case.random}")
        return fio(target, case.rw, case.block, case.depth, processes, SIZE, extra=mix)
    return load


def by_host(cluster, volume):
    def load(case, processes):
        return generator(cluster.namespace(volume), case.rw, case.block, case.depth, processes, reads=case.reads, random=case.random)
    return load


def take(seen, media, repeat, name, case, one):
    one["per_core"] = 1e6 / sum(sum(cpu) for who, cpu in one["cpu_us"].items() if who != "client")
    seen.setdefault((name, case.what), []).append(one)
    keep(f"goals {media} {name} {case.what}", repeat=repeat, **one)
    say(f"{name} {case.what}: {one['iops']:,.0f} IOPS, {one['mean_us']:,.0f} µs")


def tell(media, names, seen):
    rows = []
    for case in CASES:
        rows += lines(media, case.what, case.figure, names, seen, (case.of_ceph, case.of_vitastor))
        if case.what in PER_CORE:
            rows += lines(media, case.what, "per_core", names, seen, PER_CORE[case.what])
    table(f"Goals, three copies, {media}", ["", "", "", "p50 µs", "p99 µs", "p99.9 µs", "of Ceph's in this run (goal)",
                                            "of Vitastor's at another time (goal)", "which was"], rows)
    if media == "disk":
        print("\nA write is durable on all three disks when it is acknowledged, by Cairn and by Ceph. Vitastor's, too, where it says *durable each*; "
              "where it says *acknowledged before any flush*, that was not measured, and it promises less.")
    for line in orders(names, seen):
        print(line)


def orders(names, seen):
    """Of each contestant, what a sequential write of 4 KiB has of a random one."""
    for name in (name for name in names if name != CEPH):
        for depth in ORDER_DEPTHS:
            random, order = (medians(seen[name, f"4k {kind} write, depth {depth}"])["iops"] for kind in ("random", "sequential"))
            yield f"\n{name}: a sequential write of 4 KiB at depth {depth} has, of the IOPS of a random one, {verdict(order / random, 1)}."


def verdict(times, goal, spread=None):
    if times is None:
        return ""
    between = "" if spread is None else f"{spread[0]:.1f}–{spread[1]:.1f}"
    judged = "" if goal is None else f"{'reached' if times >= goal else 'missed'}, {goal:.3g}"
    said = "; ".join(word for word in (between, judged) if word)
    return f"{times:.{2 if goal == 1 else 1}f} ×{f' ({said})' if said else ''}"


def lines(media, what, figure, names, seen, goals):
    of_ceph, of_vitastor = goals
    vitastor = known(media, what, figure)
    is_compared = figure == "per_core" or of_ceph is not None

    def times(mine, theirs):
        return theirs / mine if figure == "mean_us" else mine / theirs

    for name in names:
        rounds, m = seen[name, what], medians(seen[name, what])
        its = [one[figure] for one in rounds]
        beside = ["", "", ""]
        if name != CEPH and is_compared:
            if CEPH in names:
                theirs = [one[figure] for one in seen[CEPH, what]]
                pairs = [times(*pair) for pair in zip(its, theirs)]
                beside[0] = verdict(times(m[figure], medians(seen[CEPH, what])[figure]), of_ceph, (min(pairs), max(pairs)) if len(pairs) > 1 else None)
            beside[1] = "not known" if vitastor is None else verdict(times(m[figure], vitastor.value), of_vitastor)
            beside[2] = "" if vitastor is None else f"{vitastor.value:,.0f}{', ' * bool(vitastor.how)}{vitastor.how}"
        latencies = [f"{m[share]:,.0f}" for share in ("p50_us", "p99_us", "p999_us")] if figure != "per_core" else [""] * 3
        yield [what, name, f"{with_spread(its)} {UNITS[figure]}", *latencies, *beside]
