"""What an I/O costs is to stay what it is: with more volumes, more connections, more data. By NVMe/TCP and by NBD (`cairn-bench`), and by libcairn (fio)."""

import os
import shutil
import time
from typing import NamedTuple

from clusters import Cairn, wait_until
from goals import LIBCAIRN, NBD, NVME
from machine import (GIB, MIB, RAMP_S, REPEATS, SECONDS, chosen, duration, fio, generator, keep, medians, ping_pong, say, say_left, table, turned,
                     with_spread)


class Shape(NamedTuple):
    volumes: int
    connections: int
    gib: int

    def __str__(self):
        return f"{self.volumes} volumes, {self.connections} connections, {self.gib} GiB"


# Each is held against the first of its medium.
SHAPES = {"memory": [Shape(1, 1, 1), Shape(100, 1, 1), Shape(1000, 1, 1), Shape(1, 64, 1), Shape(1, 1, 4)],
          "disk": [Shape(1, 1, 1), Shape(1, 1, 16)]}
CONTESTANTS = (NVME, NBD, LIBCAIRN)
PATTERNS = {"read": "randread", "write": "randwrite"}
DEPTH = 128
# IOPS per core, of the first's.
GOAL = 0.85
# fio opens one volume after the other before its load begins, so the CPU's time would be taken while it still does; and it has a thread for each.
LIBCAIRN_VOLUMES_MAX = 1
# No shape is begun later than this.
SECONDS_MAX = float(os.environ.get("FLAT_SECONDS_MAX", "3600"))
# Of a cluster until it is whole, of a volume that is made, of a point beside its measured time, of a GiB that is written: seen on a machine of
# 2 cores, for what is said before only.
CLUSTER_S, VOLUME_S, POINT_S = 25, 0.1, 1.5
GIB_S = {"memory": 5, "disk": 25}


def device_bytes(shape):
    return max(7 * GIB // 2, shape.gib * 5 * GIB // 4)


def planned_s(media, names):
    def of(shape):
        points = sum(name != LIBCAIRN or shape.volumes <= LIBCAIRN_VOLUMES_MAX for name in names) * len(PATTERNS)
        written = (shape.gib + 3 * device_bytes(shape) / GIB / 10) * GIB_S[media]
        return CLUSTER_S + VOLUME_S * shape.volumes + written + points * (SECONDS + RAMP_S + POINT_S)
    return REPEATS * sum(map(of, SHAPES[media]))


def measure(media):
    names, began = chosen(CONTESTANTS), time.monotonic()
    print(f"\nFlat cost, {media}: {len(SHAPES[media])} shapes, {', '.join(names)}, {REPEATS} repeats: about {duration(planned_s(media, names))}; "
          f"what has not begun after {duration(SECONDS_MAX)} is left out.", flush=True)
    seen, states, left_out = {}, [], set()
    for repeat in range(REPEATS):
        states.append(ping_pong())
        say(f"flat, {media}, repeat {repeat + 1} of {REPEATS}: ping-pong {states[-1]:.0f}k")
        for shape in SHAPES[media]:
            why = why_not(media, shape, time.monotonic() - began)
            if why:
                left_out.add(f"{shape}: {why}")
                continue
            for (name, pattern), one in load(media, shape, turned(names, repeat)).items():
                seen.setdefault((name, pattern, shape), []).append(keep(f"flat {media} {name} {shape} {pattern}", repeat=repeat, **one))
                say(f"{name} {shape} {pattern}: {one['iops']:,.0f} IOPS, {one['per_core']:,.0f} per core")
        say_left(began, repeat + 1, REPEATS)
    tell(media, names, seen)
    for line in sorted(left_out):
        print(f"\nNot measured: {line}.")
    print(f"\nMedians of {REPEATS}, and between what they lie. Ping-pong over loopback before each repeat: "
          f"{', '.join(f'{state:.0f}k' for state in states)} a second. It took {duration(time.monotonic() - began)}.")


def why_not(media, shape, elapsed_s):
    """Why a shape is left out, in words; None if it is not."""
    if elapsed_s > SECONDS_MAX:
        return f"{duration(SECONDS_MAX)} were over"
    needed = 3 * device_bytes(shape) + 2 * GIB
    free = shutil.disk_usage("/dev/shm" if media == "memory" else "out").free
    return f"it takes {needed // GIB} GiB, {free // GIB} are free" if free < needed else None


def tell(media, names, seen):
    rows, first = [], SHAPES[media][0]
    for name in names:
        for pattern in PATTERNS:
            measured = [shape for shape in SHAPES[media] if (name, pattern, shape) in seen]
            base = medians(seen[name, pattern, first]) if first in measured else None
            for shape in measured:
                rounds = seen[name, pattern, shape]
                one = medians(rounds)
                rows.append([name, pattern, *map(str, shape), f"{one['iops']:,.0f}", f"{one['p99_us']:,.0f}", f"{one['cpu_us']:.1f}",
                             with_spread([r["per_core"] for r in rounds]), against(one, base, "per_core"),
                             f"{one['per_storage_core']:,.0f}", against(one, base, "per_storage_core")])
    table(f"The cost of an I/O, 4 KiB at random, {DEPTH} under way, three copies, {media}",
          ["", "", "volumes", "connections", "GiB", "IOPS", "p99 µs", "CPU µs, all processes", "IOPS per core", "of the first", "IOPS per storage core",
           "of the first"], rows)
    if media == "memory":
        print("\nBy NBD a volume is a connection at least. By libcairn a connection is a thread of fio with a queue of its own; many "
              "volumes are not measured by it, as fio opens them one after the other while its load is to run.")


def against(one, first, figure):
    if first is None or one == first:
        return ""
    share = one[figure] / first[figure]
    return f"{share:.0%} ({'reached' if share >= GOAL else 'missed'})"


def load(media, shape, names):
    """One cluster: reads, then writes, of volumes that were written from end to end, by each contestant."""
    cluster = Cairn(media, device_bytes(shape))
    try:
        size = shape.gib * GIB // shape.volumes // MIB * MIB
        volumes = [f"v{number}" for number in range(shape.volumes)]
        for volume in volumes:
            cluster.create(volume, size, "local:node-1")
        for volume in (volumes[0], volumes[-1]):
            wait_until("the volume has a head", lambda: cluster.head(volume))
        generator([*namespaces(cluster, shape), "--fill"], "randread", "4k", 1, {}, seconds=0.1, timeout=1200)
        found = {}
        for pattern, rw in PATTERNS.items():
            for name in names:
                if name != LIBCAIRN or shape.volumes <= LIBCAIRN_VOLUMES_MAX:
                    found[name, pattern] = costs(by(name, cluster, shape, volumes, size, rw))
        return found
    finally:
        cluster.stop()


def by(name, cluster, shape, volumes, size, rw):
    if name == LIBCAIRN:
        threads = max(shape.volumes, shape.connections)
        first, *others = [cluster.program(volumes[number % shape.volumes]) for number in range(threads)]
        return fio(first, rw, "4k", max(1, DEPTH // threads), cluster.processes(), size, others=others)
    words = namespaces(cluster, shape) if name == NVME else exports(cluster, shape, volumes)
    return generator(words, rw, "4k", DEPTH, cluster.processes())


def namespaces(cluster, shape):
    first, last = (cluster.namespace(f"v{number}") for number in (0, shape.volumes - 1))
    if last[-1] != first[-1] + shape.volumes - 1:
        raise RuntimeError("the volumes' namespaces are not in a row")
    return [*first, "--namespaces", shape.volumes, "--controllers", shape.connections]


def exports(cluster, shape, volumes):
    address = cluster.ask("volume", "info", volumes[0], "-o", "json")["nbd_uri"].removeprefix("nbd://").partition("/")[0]
    return ["nbd", address, *volumes, "--connections", shape.connections]


def costs(one):
    """On loopback what nodes, etcd and client take is nearly all that the machine does, and nothing that others do."""
    storage = sum(sum(cpu) for who, cpu in one["cpu_us"].items() if who != "client")
    return {"iops": one["iops"], "p99_us": one["p99_us"], "cpu_us": one["processes_us"], "per_core": 1e6 / one["processes_us"],
            "per_storage_core": 1e6 / storage}
