"""What an I/O costs is to stay what it is: with more volumes, more connections, more data."""

import json

from clusters import Cairn, wait_until
from machine import BENCH, GIB, MIB, REPEATS, SECONDS, keep, medians, ping_pong, run, say, table

# Volumes, connections, GiB of data: each is held against the first.
SHAPES = [(1, 1, 1), (100, 1, 1), (1000, 1, 1), (1, 64, 1), (1, 1, 4)]
DEPTH = 128
GOAL = 0.85


def measure():
    seen, states = {}, []
    for repeat in range(REPEATS):
        states.append(ping_pong())
        say(f"flat, repeat {repeat + 1} of {REPEATS}: ping-pong {states[-1]:.0f}k")
        for shape in SHAPES:
            for pattern, one in load(*shape).items():
                seen.setdefault((shape, pattern), []).append(keep(f"flat {shape} {pattern}", **one))
                say(f"{shape} {pattern}: {one['iops']:,.0f} IOPS, {one['per_core']:,.0f} per core")
    rows = []
    for (shape, pattern), rounds in seen.items():
        one, first = medians(rounds), medians(seen[SHAPES[0], pattern])
        share = one["per_core"] / first["per_core"]
        rows.append([pattern, *map(str, shape), f"{one['iops']:,.0f}", f"{one['p99_us']:,.0f}", f"{one['cpu_us']:.1f}",
                     f"{one['per_core']:,.0f}", f"{share:.0%}{'' if share >= GOAL else ' (missed)'}"])
    table(f"The cost of an I/O, 4 KiB at random over NVMe/TCP, {DEPTH} under way, three copies, memory",
          ["", "volumes", "connections", "GiB", "IOPS", "p99 µs", "CPU µs, all processes", "IOPS per core", "of the first"], sorted(rows, key=lambda row: row[0]))
    print(f"\nMedians of {REPEATS}. Ping-pong over loopback before each repeat: {', '.join(f'{state:.0f}k' for state in states)} a second.")


def load(volumes, connections, gib):
    """One cluster: reads, then writes, of volumes that were written from end to end."""
    cluster = Cairn("memory", max(7 * GIB // 2, gib * 3 * GIB // 2))
    try:
        size = gib * GIB // volumes // MIB * MIB
        for number in range(volumes):
            cluster.ask("volume", "create", f"v{number}", "--size", str(size), "--placement", "local:node-1", "--any-host")
        found = {}
        for number in {0, volumes - 1}:
            wait_until("the volume has a head", lambda: cluster.ask("volume", "info", f"v{number}", "-o", "json").get("head"))
            found[number] = cluster.ask("volume", "info", f"v{number}", "-o", "json")
        first, last = found[0], found[volumes - 1]
        if last["nsid"] != first["nsid"] + volumes - 1:
            raise RuntimeError("the volumes' namespaces are not in a row")
        words = ["nvme", first["nvme_addresses"][0], first["nqn"], first["nsid"], "--namespaces", volumes, "--controllers", connections]
        return {pattern: one(cluster, [*words, *(["--fill"] if pattern == "read" else [])], pattern) for pattern in ("read", "write")}
    finally:
        cluster.stop()


def one(cluster, words, pattern):
    pids = [word for pid in cluster.processes().values() for word in ("--pid", pid)]
    result = json.loads(run([BENCH, "--depth", DEPTH, "--pattern", pattern, "--seconds", SECONDS, *pids, *words]))
    # Of nodes, etcd and client: on loopback that is nearly all that the machine does, and nothing that others do.
    result["cpu_us"] = sum(result["process_cpu_us"])
    return {"iops": result["iops"], "p99_us": result["p99_us"], "cpu_us": result["cpu_us"], "per_core": 1e6 / result["cpu_us"]}
