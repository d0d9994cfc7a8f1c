"""What Cairn is to be faster at, and by how much: each case in turn by its own client (fio's engine over libcairn), by NBD and by Ceph, on a volume of
the same size. Vitastor's figures were measured at another time, on a machine of this kind: context, not an opponent."""

from clusters import Cairn, Ceph
from machine import GIB, REPEATS, fio, keep, medians, ping_pong, say, table

SIZE = GIB
DEVICE = 7 * GIB // 2
CEPH = "Ceph"
CONTESTANTS = ("libcairn", "NBD", CEPH)


def mix(reads, random):
    return (f"--rwmixread={reads}", f"--percentage_random={random}")


# Name, what fio is told, what is compared, how many times Ceph's and Vitastor's it is to be, Vitastor's figure (three copies in memory, 3.0.8, the best
# that was seen). "mean_us": so many times as short.
CASES = [
    ("4k random read, depth 128", ("randread", "4k", 128, ()), "iops", 8, 2.5, 68_918),
    ("4k random read, depth 1", ("randread", "4k", 1, ()), "mean_us", 4, 1 / 0.75, 83),
    ("4k random write, depth 128", ("randwrite", "4k", 128, ()), "iops", 30, 2, 40_059),
    ("4k random write, depth 1", ("randwrite", "4k", 1, ()), "mean_us", 6, 1 / 0.7, 216),
    ("8k 80/20, depth 64", ("randrw", "8k", 64, mix(80, 80)), "iops", 12.5, 2, 33_403),
    ("16k 70/30, depth 64", ("randrw", "16k", 64, mix(70, 80)), "iops", 10.4, 1.9, 23_757),
    ("32k 50/50, depth 64", ("randrw", "32k", 64, mix(50, 80)), "iops", 5.7, 1.4, 14_109),
    ("512k sequential read, depth 1", ("read", "512k", 1, ()), "mib_s", 1.1, 1.1, 956),
    ("512k sequential read, depth 16", ("read", "512k", 16, ()), "mib_s", 1.1, 1.1, 1_685),
    ("512k sequential read, depth 128", ("read", "512k", 128, ()), "mib_s", 1.1, 1.1, 978),
    ("4M sequential read, depth 16", ("read", "4M", 16, ()), "mib_s", 1.1, 1.1, 1_169),
    ("512k sequential write, depth 1", ("write", "512k", 1, ()), "mib_s", 1.5, 1.5, 438),
    ("512k sequential write, depth 16", ("write", "512k", 16, ()), "mib_s", 1.5, 1.5, 475),
    ("512k sequential write, depth 128", ("write", "512k", 128, ()), "mib_s", 1.5, 1.5, 460),
    ("4M sequential write, depth 16", ("write", "4M", 16, ()), "mib_s", 1.5, 1.5, 469),
    ("4k random write, depth 32", ("randwrite", "4k", 32, ()), "iops", None, None, None),
    ("4k sequential write, depth 32", ("write", "4k", 32, ()), "iops", None, None, None),
]
# I/Os per second and core of the storage's processes.
PER_CORE = {"4k random read, depth 128": (8, 2, 58_900), "4k random write, depth 128": (30, 2, 25_800)}


def measure(media, with_ceph=True):
    seen, states = {}, []
    for repeat in range(REPEATS):
        states.append(ping_pong())
        say(f"{media}, repeat {repeat + 1} of {REPEATS}: ping-pong {states[-1]:.0f}k")
        cluster = Cairn(media, DEVICE)
        try:
            by_nbd, _ = cluster.volume("gathered", SIZE, "gathered")
            targets = {"libcairn": cluster.program("gathered"), "NBD": by_nbd}
            for case in CASES:
                for name, target in targets.items():
                    take(seen, media, name, case, fio(target, *case[1][:3], cluster.processes(), SIZE, extra=case[1][3]))
        finally:
            cluster.stop()
        if with_ceph:
            ceph = Ceph(media, DEVICE, SIZE)
            try:
                for case in CASES:
                    take(seen, media, CEPH, case, fio(ceph.target, *case[1][:3], ceph.processes(), SIZE, extra=case[1][3]))
            finally:
                ceph.stop()
    tell(media, {key: medians(rounds) for key, rounds in seen.items()}, states)


def take(seen, media, name, case, one):
    one["per_core"] = 1e6 / sum(sum(cpu) for who, cpu in one["cpu_us"].items() if who != "client")
    seen.setdefault((name, case[0]), []).append(one)
    keep(f"goals {media} {name} {case[0]}", **one)
    say(f"{name} {case[0]}: {one['iops']:,.0f} IOPS, {one['mean_us']:,.0f} µs")


def verdict(times, goal):
    return "" if times is None else f"{times:.1f} × ({'reached' if times >= goal else 'missed'}, {goal:.3g})"


def tell(media, seen, states):
    rows, names = [], [name for name in CONTESTANTS if (name, CASES[0][0]) in seen]
    for what, _, figure, ceph_goal, vitastor_goal, vitastor in CASES:
        rows += lines(what, figure, names, seen, (ceph_goal, vitastor_goal, vitastor))
        if what in PER_CORE:
            rows += lines(what, "per_core", names, seen, PER_CORE[what])
    table(f"Goals, three copies, {media}", ["", "", "", "p99 µs", "of Ceph's (goal)", "of Vitastor's, at another time (goal)"], rows)
    for name in names:
        random, order = (seen[name, f"4k {kind} write, depth 32"]["iops"] for kind in ("random", "sequential"))
        print(f"\n{name}: a sequential write of 4 KiB at depth 32 has {order / random:.2f} of the IOPS of a random one.")
    print(f"\nMedians of {REPEATS}. Ping-pong over loopback before each repeat: {', '.join(f'{state:.0f}k' for state in states)} a second.")


UNITS = {"iops": "IOPS", "mean_us": "µs mean", "mib_s": "MiB/s", "per_core": "IOPS per storage core"}


def lines(what, figure, names, seen, goals):
    ceph_goal, vitastor_goal, vitastor = goals

    def times(mine, theirs):
        return theirs / mine if figure == "mean_us" else mine / theirs

    for name in names:
        m = seen[name, what]
        is_peer = name == CEPH or ceph_goal is None
        of_ceph = None if is_peer or CEPH not in names else times(m[figure], seen[CEPH, what][figure])
        of_vitastor = None if is_peer else times(m[figure], vitastor)
        yield [what, name, f"{m[figure]:,.0f} {UNITS[figure]}", f"{m['p99_us']:,.0f}", verdict(of_ceph, ceph_goal), verdict(of_vitastor, vitastor_goal)]
