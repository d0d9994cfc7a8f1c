#!/usr/bin/env python3
"""The figures of docs/performance.md, measured here: `make bench`.

Contestants alternate, every figure is the median of three runs, and a ping-pong over loopback TCP is run before each
round to tell the machine's state. Prints tables in Markdown and keeps all single results in out/bench.json.

    tools/bench.py [--quick] [store] [doors] [shapes] [open] [coding] [layers] [life]    default: all; life is longest
"""

import itertools
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 3
SECONDS = 3
MIB, GIB = 1 << 20, 1 << 30
RELEASE = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release")
BENCH, CAIRN = os.path.join(RELEASE, "cairn-bench"), os.path.join(RELEASE, "cairn")
MEMORY = "/dev/shm"
# SPDK 26.09-pre, NVMe/TCP, one core, aio on a file in memory, 4 KiB at depth 128, on a machine of this kind: what the
# doors are held against.
SPDK_PER_CORE = {"read": 205_000, "write": 284_000}
results = []


def run(command, timeout=300, enter=None):
    """The output of a command; `enter` is called in its process before it begins."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout,
                          preexec_fn=enter)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout


def keep(what, **figures):
    results.append({"what": what, "at": time.time(), **figures})
    return figures


def bench(*words, depth=1, pattern="read", pids=(), seconds=SECONDS, enter=None):
    command = [BENCH, "--depth", depth, "--pattern", pattern, "--seconds", seconds]
    for pid in pids:
        command += ["--pid", pid]
    return json.loads(run([*command, *words], enter=enter))


def busy_seconds():
    """What all cores together have worked since the machine began (proc(5), /proc/stat)."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _wait, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def fio(path, rw, depth, block="4k", extra=(), enter=None):
    began, busy = time.monotonic(), busy_seconds()
    out = run(["fio", "--name=raw", f"--filename={path}", f"--rw={rw}", f"--bs={block}", f"--iodepth={depth}",
               f"--size={GIB}", "--direct=1", "--ioengine=io_uring", "--time_based", "--ramp_time=1",
               f"--runtime={SECONDS}", "--randrepeat=0", "--norandommap", "--output-format=json", *extra],
              enter=enter)
    job = json.loads(out)["jobs"][0]
    side = job["read" if "read" in rw else "write"]
    # A flush behind each write is not in the latency of the write: one at a time, the rate says what both took.
    mean_us = 1e6 / side["iops"] if "--fdatasync=1" in extra else side["lat_ns"]["mean"] / 1000
    # Of the whole machine: fio does not see the workers that io_uring starts for it.
    cpu_us = (busy_seconds() - busy) / (time.monotonic() - began) * 1e6 / side["iops"]
    return {"iops": side["iops"], "mean_us": mean_us, "cpu_us": cpu_us, "mib_s": side["bw_bytes"] / MIB}


def make_file(path, size, filled):
    if os.path.exists(path):
        os.remove(path)
    with open(path, "wb") as file:
        file.truncate(size)
    if filled:
        run(["fio", "--name=fill", f"--filename={path}", "--rw=write", "--bs=1M", f"--size={filled}", "--direct=1",
             "--ioengine=psync", "--end_fsync=1"])


def medians(rounds):
    return {key: statistics.median(r[key] for r in rounds) for key in rounds[0] if isinstance(rounds[0][key], (int, float))}


def machine_state():
    state = {depth: bench("ping-pong", depth=depth, seconds=1)["iops"] for depth in (1, 128)}
    keep("ping-pong", **{f"depth_{depth}": iops for depth, iops in state.items()})
    return f"ping-pong {state[1] / 1000:.0f}k at depth 1, {state[128] / 1000:.0f}k at depth 128"


def table(title, columns, rows):
    print(f"\n### {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    sys.stdout.flush()


def write_whole_file(path, size):
    """A file that holds something everywhere. In a sparse one the file system allocates under the load, at each flush
    where the log is new, which is neither the store nor the device."""
    make_file(path, size, size)


def clear_ends(path):
    """No store is in the file any more; all else stays as it is."""
    with open(path, "r+b") as file:
        for at in (0, os.path.getsize(path) - MIB):
            file.seek(at)
            file.write(bytes(MIB))
        os.fsync(file.fileno())


def measure_store(media, folder):
    """The store alone beside the raw file: the same file, the same span, in turn."""
    path = os.path.join(folder, "store.img")
    cases = [("random read, depth 128", "randread", 128, "read"), ("random read, depth 1", "randread", 1, "read"),
             ("random write, depth 128", "randwrite", 128, "write"), ("random write, depth 1", "randwrite", 1, "write")]
    seen = {name: ([], []) for name, *_ in cases}
    sequential, states = [], []
    write_whole_file(path, 10 * GIB)
    for _ in range(RUNS):
        states.append(machine_state())
        sequential.append(fio(path, "write", 4, block="1m"))
        for name, rw, depth, pattern in cases:
            # One write that is waited for: with the same durability, where a write can be lost.
            flushed = ("--fdatasync=1",) if media == "disk" and (pattern, depth) == ("write", 1) else ()
            raw = fio(path, rw, depth, extra=flushed)
            clear_ends(path)
            store = bench("store", path, "--span", GIB, depth=depth, pattern=pattern)
            store["cpu_us"] = store["machine_cpu_us"]
            keep(f"store {media}: {name}", raw=raw, store=store)
            seen[name][0].append(raw)
            seen[name][1].append(store)
    limited = measure_limited(path) if media == "disk" else None
    os.remove(path)
    rows = []
    for name, rw, depth, pattern in cases:
        raw, store = medians(seen[name][0]), medians(seen[name][1])
        share = (f"{store['mean_us'] / raw['mean_us']:.0%} of its latency" if depth == 1
                 else f"{store['iops'] / raw['iops']:.0%} of its IOPS")
        rows.append([name, f"{raw['iops']:,.0f}", f"{raw['mean_us']:.0f}", f"{raw['cpu_us']:.1f}",
                     f"{store['iops']:,.0f}", f"{store['mean_us']:.0f}", f"{store['cpu_us']:.1f}", share,
                     f"{store['device_bytes_per_client_byte']:.2f}" if pattern == "write" else ""])
    sequential_mib = statistics.median(r["mib_s"] for r in sequential)
    share = medians(seen["random write, depth 128"][1])["iops"] * 4096 / MIB / sequential_mib
    table(f"The store alone, {media}", ["4 KiB", "raw IOPS", "mean µs", "CPU µs", "store IOPS", "mean µs", "CPU µs",
                                        "store of raw", "device bytes per byte"], rows)
    print(f"\nRaw sequential write: {sequential_mib:,.0f} MiB/s; the store's random write at depth 128 is {share:.0%} of it."
          f" Machine: {'; '.join(states)}.")
    if limited:
        print(limited)


class LimitedDisk:
    """A control group in which the disk under `path` writes no more than so many bytes a second (v1 or v2)."""

    def __init__(self, path, bytes_s):
        device = f"{os.major(os.stat(path).st_dev)}:{os.minor(os.stat(path).st_dev)}"
        whole = os.path.realpath(f"/sys/dev/block/{device}")
        if os.path.exists(f"{whole}/partition"):
            with open(f"{os.path.dirname(whole)}/dev", encoding="ascii") as file:
                device = file.read().strip()
        first = os.path.isdir("/sys/fs/cgroup/blkio")
        self.folder = "/sys/fs/cgroup/blkio/cairn-bench" if first else "/sys/fs/cgroup/cairn-bench"
        if not first:
            self.put("/sys/fs/cgroup/cgroup.subtree_control", "+io")
        os.makedirs(self.folder, exist_ok=True)
        self.put(*((f"{self.folder}/blkio.throttle.write_bps_device", f"{device} {bytes_s}") if first
                   else (f"{self.folder}/io.max", f"{device} wbps={bytes_s}")))

    @staticmethod
    def put(path, text):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)

    def enter(self):
        self.put(f"{self.folder}/cgroup.procs", str(os.getpid()))

    def remove(self):
        os.rmdir(self.folder)


def measure_limited(path):
    """Random writes of the store beside sequential ones of the raw file on a disk that is slower than a core."""
    mib_s = 400
    try:
        disk = LimitedDisk(path, mib_s * MIB)
    except OSError as error:
        return f"\nOn a disk limited to {mib_s} MiB/s: not measured, no control group that limits it ({error})."
    sequential, stores = [], {128: [], 512: []}
    for _ in range(RUNS):
        sequential.append(fio(path, "write", 4, block="1m", enter=disk.enter))
        for depth, seen in stores.items():
            clear_ends(path)
            seen.append(bench("store", path, "--span", GIB, depth=depth, pattern="write", enter=disk.enter))
            keep(f"store limited: random write, depth {depth}", raw=sequential[-1], store=seen[-1])
    disk.remove()
    raw = statistics.median(r["mib_s"] for r in sequential)
    shares = []
    for depth, seen in stores.items():
        store = medians(seen)
        shares.append(f"at depth {depth} {store['iops'] * 4096 / MIB:,.0f} MiB/s ({store['iops'] * 4096 / MIB / raw:.0%}, "
                      f"{store['device_bytes_per_client_byte']:.2f} device bytes per byte)")
    return (f"\nOn the same disk limited to {mib_s} MiB/s: raw sequential write {raw:,.0f} MiB/s; the store's random write "
            f"{', '.join(shares)}.")


class Demo:
    """A cluster of one node, one core, its device in `folder`: a file whose memory is there before the load begins, as a
    drive's flash is. The first touch of each page would else be counted, which costs more than the write itself: up to
    15 µs where the machine is a guest whose own memory comes at the first touch. That one is left over by fallocate."""

    def __init__(self, folder, size, volumes=("v:1G",), options=()):
        self.folder = tempfile.mkdtemp(dir=folder, prefix="cairn-bench-")
        self.process = subprocess.Popen(
            [CAIRN, "demo", "--dir", self.folder, "--device-size", str(size), "--nvme-port", "0",
             "--nbd-port", "0", "--admin-port", "0", "--cores", "1", *options,
             *(word for volume in volumes for word in ("--volume", volume))],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready = self.process.stdout.readline()
        if not ready.startswith("ready"):
            self.stop()
            sys.exit("bench: the demo did not become ready")
        self.admin = dict(word.split("=", 1) for word in ready.split() if "=" in word)["admin"]
        self.info = self.ask("volume", "info", "v", "-o", "json") if volumes and volumes[0].startswith("v:") else None
        image = os.path.join(self.folder, "node-1", "device-1.img")
        run(["fallocate", "--length", size, image])
        with open(image, "rb") as file:
            mmap.mmap(file.fileno(), size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ).close()

    def ask(self, *words):
        out = run([CAIRN, "--admin", self.admin, *words])
        return json.loads(out) if "json" in words else out

    def door(self, kind):
        if kind == "NVMe/TCP":
            return ["nvme", self.info["nvme_addresses"][0], self.info["nqn"], self.info["nsid"]]
        host = self.info["nbd_uri"].split("/")[2]
        return ["nbd", host, "v"]

    def fill(self):
        uri = self.info["nbd_uri"]
        run(["fio", "--name=fill", "--ioengine=nbd", f"--uri={uri}", "--rw=write", "--bs=256k", "--iodepth=4",
             "--size=1G"])

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=10)
        shutil.rmtree(self.folder)


def measure_doors():
    """NVMe/TCP and NBD on loopback, one core for the target, the device a file in memory."""
    cases = [(pattern, depth) for pattern in ("read", "write") for depth in (1, 16, 128)]
    seen = {(kind, *case): [] for kind in ("NVMe/TCP", "NBD") for case in cases}
    states = []
    for _ in range(RUNS):
        states.append(machine_state())
        demo = None
        for kind, pattern, depth in seen:
            # Reads leave the device as it is; writes begin on a fresh one, so that none finds the log further than others.
            if demo is None or pattern == "write":
                demo = replace_demo(demo)
            try:
                result = bench(*demo.door(kind), depth=depth, pattern=pattern, pids=[demo.process.pid])
            except BaseException:
                demo.stop()
                raise
            result["target_us"], result["client_us"] = result["process_cpu_us"]
            result["per_core"] = result["iops_per_process_core"][0]
            seen[kind, pattern, depth].append(keep(f"{kind} {pattern} {depth}", **result))
        demo.stop()
    rows, per_core = [], {}
    for (kind, pattern, depth), rounds in seen.items():
        m = medians(rounds)
        per_core[kind, pattern, depth] = m["per_core"]
        rows.append([kind, pattern, str(depth), f"{m['iops']:,.0f}", f"{m['mean_us']:.0f}", f"{m['p99_us']:.0f}",
                     f"{m['p999_us']:.0f}", f"{m['machine_cpu_us']:.1f}", f"{m['target_us']:.1f}",
                     f"{m['client_us']:.1f}", f"{m['per_core']:,.0f}"])
    table("NVMe/TCP and NBD, one core, memory",
          ["door", "4 KiB", "depth", "IOPS", "mean µs", "p99 µs", "p99.9 µs", "CPU µs, machine", "CPU µs, target",
           "CPU µs, client", "IOPS per target core"], rows)
    shares = ", ".join(f"{kind} {pattern}s {per_core[kind, pattern, 128] / SPDK_PER_CORE[pattern]:.0%}"
                       for kind in ("NVMe/TCP", "NBD") for pattern in ("read", "write"))
    print(f"\nIOPS per target core at depth 128, of those of SPDK's target on a file in memory ({SPDK_PER_CORE['read']:,} reads, "
          f"{SPDK_PER_CORE['write']:,} writes; measured once on a machine of this kind, NVMe/TCP, busy polling): {shares}.")
    print(f"\nMachine: {'; '.join(states)}.")


# Connections and volumes of each shape, the first one being what the others are held against. All have the same bytes,
# and either the same depth over all connections or the same on each.
SHAPES = [(1, 1), (16, 1), (256, 1), (64, 100), (64, 1000)]
SHAPE_MIB = 1000
SHAPE_DEPTHS = {"512 over all": lambda connections: 512, "16 on each": lambda connections: 16 * connections}


def measure_shapes():
    """4 KiB at random over NVMe/TCP by one or many connections and on one or many volumes, digests off and on: what an
    I/O costs, target and client together. Each shape on a fresh device, filled: reads, then writes. About 25 minutes."""
    patterns, states = ("read", "write"), []
    cases = [(digests, depth) for digests in (False, True) for depth in SHAPE_DEPTHS]
    seen = {(*case, pattern, shape): [] for case in cases for pattern in patterns for shape in SHAPES}
    for _ in range(RUNS):
        states.append(machine_state())
        for (digests, depth), shape in itertools.product(cases, SHAPES):
            loads = shape_loads(*shape, SHAPE_DEPTHS[depth](shape[0]), patterns, digests)
            for pattern, result in zip(patterns, loads):
                # Target and client: on loopback that is all the machine does for it, to some per cent, and nothing
                # that others do.
                result["both_us"] = sum(result["process_cpu_us"])
                result["per_core"] = 1e6 / result["both_us"]
                result["target_us"] = result["process_cpu_us"][0]
                result["per_target_core"] = result["iops_per_process_core"][0]
                seen[digests, depth, pattern, shape].append(
                    keep(f"shape {shape} depth {depth} {pattern} {'digests' if digests else ''}", **result))
    rows = []
    for (digests, depth, pattern, shape), rounds in seen.items():
        m, first = medians(rounds), medians(seen[digests, depth, pattern, SHAPES[0]])
        rows.append(["on" if digests else "off", depth, pattern, *map(str, shape),
                     f"{m['iops']:,.0f}", f"{m['p99_us']:.0f}", f"{m['both_us']:.1f}", f"{m['target_us']:.1f}",
                     f"{m['per_core']:,.0f}", f"{m['per_core'] / first['per_core']:.0%}",
                     f"{m['per_target_core']:,.0f}", f"{m['per_target_core'] / first['per_target_core']:.0%}"])
    table("Connections and volumes, NVMe/TCP, one core, memory",
          ["digests", "depth", "4 KiB", "connections", "volumes", "IOPS", "p99 µs", "CPU µs, both",
           "CPU µs, target", "IOPS per core, both", "of the first", "IOPS per target core", "of the first"], rows)
    print(f"\nMachine: {'; '.join(states)}.")


def shape_loads(connections, volumes, depth, patterns, digests):
    demo = Demo(MEMORY, 6 * GIB, volumes=[f"v{n}:{SHAPE_MIB // volumes}M" for n in range(volumes)])
    try:
        info = [demo.ask("volume", "info", f"v{n}", "-o", "json") for n in {0, volumes - 1}]
        nsid = min(volume["nsid"] for volume in info)
        if max(volume["nsid"] for volume in info) != nsid + volumes - 1:
            sys.exit("bench: the volumes' namespaces are not in a row")
        words = ["nvme", info[0]["nvme_addresses"][0], info[0]["nqn"], nsid, "--namespaces", volumes,
                 "--controllers", connections, *(["--digests"] if digests else [])]
        return [bench(*words, *(["--fill"] if pattern == patterns[0] else []), depth=depth, pattern=pattern,
                      pids=[demo.process.pid]) for pattern in patterns]
    finally:
        demo.stop()


def replace_demo(old):
    if old is not None:
        old.stop()
    demo = Demo(MEMORY, 6 * GIB)
    try:
        demo.fill()
    except BaseException:
        demo.stop()
        raise
    return demo


def measure_coding():
    """What compressing and encrypting costs: 4 KiB at random at depth 16 over NBD, data that lz4 makes half as long, one
    core, the device a file in memory."""
    ways = [("off", False), ("lz4", False), ("zstd", False), ("off", True), ("lz4", True)]
    seen = {(way, pattern): [] for way in ways for pattern in ("write", "read")}
    stored = {}
    for _ in range(RUNS):
        for compression, encrypted in ways:
            demo = Demo(MEMORY, 6 * GIB, volumes=(), options=("--compression", compression))
            try:
                key = []
                if encrypted:
                    path = os.path.join(demo.folder, "key")
                    with open(path, "wb") as file:
                        file.write(os.urandom(32))
                    key = ["--encrypt", "--key-file", path]
                demo.ask("volume", "create", "v", "--size", "1G", *key)
                demo.info = demo.ask("volume", "info", "v", "-o", "json")
                nbd_fio(demo, "write", block="128k", extra=HALF, timed=False)
                for pattern in ("write", "read"):
                    result = nbd_fio(demo, "rand" + pattern, extra=HALF)
                    seen[(compression, encrypted), pattern].append(
                        keep(f"coding {compression} {encrypted} {pattern}", **result))
                stored[compression, encrypted] = demo.ask("volume", "info", "v", "-o", "json")["usage"]
            finally:
                demo.stop()
    rows = []
    for (compression, encrypted), pattern in seen:
        m = medians(seen[(compression, encrypted), pattern])
        usage = stored[compression, encrypted]
        share = usage["stored_bytes"] / max(1, usage["unique_bytes"] + usage["shared_bytes"])
        rows.append([compression, "yes" if encrypted else "no", pattern, f"{m['iops']:,.0f}", f"{m['mean_us']:.0f}",
                     f"{m['p99_us']:.0f}", f"{m['target_us']:.1f}", f"{share:.0%}"])
    table("Compression and encryption, NBD, depth 16, one core, memory",
          ["compression", "encrypted", "4 KiB", "IOPS", "mean µs", "p99 µs", "CPU µs, node", "stored"], rows)


# Data that lz4 makes about half as long.
HALF = ("--refill_buffers", "--buffer_compress_percentage=50", "--buffer_compress_chunk=4k")


def nbd_fio(demo, pattern, depth=16, block="4k", size="256M", extra=(), timed=True):
    """One run of fio over NBD, with the CPU time of the node."""
    began = process_seconds(demo.process.pid)
    bound = [f"--runtime={SECONDS}", "--time_based"] if timed else []
    out = run(["fio", "--name=run", "--ioengine=nbd", f"--uri={demo.info['nbd_uri']}", f"--rw={pattern}", f"--bs={block}",
               f"--iodepth={depth}", f"--size={size}", "--output-format=json", *bound, *extra])
    # The NBD engine says first that it is connected.
    job = json.loads(out[out.index("{"):])["jobs"][0]["read" if "read" in pattern else "write"]
    spent = process_seconds(demo.process.pid) - began
    return {"iops": job["iops"], "mib_s": job["bw_bytes"] / MIB, "mean_us": job["lat_ns"]["mean"] / 1000,
            "p99_us": job["clat_ns"]["percentile"]["99.000000"] / 1000, "target_us": spent * 1e6 / job["total_ios"]}


def process_seconds(pid):
    """CPU time of a process, user and system (proc(5), /proc/pid/stat)."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


SNAPSHOTS = (0, 1, 10, 100)


def measure_layers():
    """What snapshots cost each I/O, what the first write to a place costs (thin, filled, after a snapshot), and what is left
    of sequential reads when all of a volume was overwritten at random. NBD, one core, the device a file in memory."""
    snapshots = {(count, pattern): [] for count in SNAPSHOTS for pattern in ("randread", "randwrite")}
    first = {(state, pattern): [] for state in ("empty", "filled", "after a snapshot") for pattern in ("randread", "randwrite")}
    stream = {state: [] for state in ("written in order", "overwritten at random")}
    for _ in range(RUNS):
        demo = Demo(MEMORY, 6 * GIB)
        try:
            for pattern in ("randread", "randwrite"):
                first["empty", pattern].append(keep(f"empty {pattern}", **nbd_fio(demo, pattern)))
            nbd_fio(demo, "write", block="128k", timed=False)
            stream["written in order"].append(keep("sequential", **nbd_fio(demo, "read", 4, "1M")))
            made = 0
            for count in SNAPSHOTS:
                while made < count:
                    # Something of each snapshot's own, so that its layer is not empty.
                    nbd_fio(demo, "randwrite", size="256M", extra=("--io_size=2M", f"--randseed={made}"), timed=False)
                    made += 1
                    demo.ask("snapshot", "create", f"v@s{made}")
                for pattern in ("randread", "randwrite"):
                    result = keep(f"{count} snapshots {pattern}", **nbd_fio(demo, pattern))
                    snapshots[count, pattern].append(result)
                    if count == 0:
                        first["filled", pattern].append(result)
                    elif count == 1:
                        first["after a snapshot", pattern].append(result)
        finally:
            demo.stop()
        demo = Demo(MEMORY, 6 * GIB)
        try:
            nbd_fio(demo, "write", block="128k", timed=False)
            nbd_fio(demo, "randwrite", timed=False)
            stream["overwritten at random"].append(keep("sequential, overwritten", **nbd_fio(demo, "read", 4, "1M")))
        finally:
            demo.stop()
    columns = ["4 KiB at random", "IOPS", "mean µs", "p99 µs", "CPU µs, node"]

    def row(what, rounds):
        m = medians(rounds)
        return [*what, f"{m['iops']:,.0f}", f"{m['mean_us']:.0f}", f"{m['p99_us']:.0f}", f"{m['target_us']:.1f}"]

    table("Snapshots, NBD, depth 16", ["snapshots", *columns], [row((str(c), p), r) for (c, p), r in snapshots.items()])
    table("The first write to a place, NBD, depth 16", ["volume", *columns], [row(what, r) for what, r in first.items()])
    table("Sequential reads of 1 MiB, depth 4", ["volume", "MiB/s", "CPU µs, node"],
          [[state, f"{medians(r)['mib_s']:,.0f}", f"{medians(r)['target_us']:.0f}"] for state, r in stream.items()])


def measure_open():
    """Opening a store full of 4 KiB-random data, and the memory of its index: data that was written, then an index that
    was made up, as large as memory allows for its checkpoint (2.4 GiB per TiB of data) and for the index itself."""
    path = os.path.join(MEMORY, "open.img")
    room = min(shutil.disk_usage(MEMORY).free, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    made_up = next((gib for gib in (1024, 512, 256, 128) if room > gib * 6 * MIB), 64) * GIB
    rows = []
    for span, size, words in [(2 * GIB, 4 * GIB, []), (made_up, made_up * 5 // 4, ["--synthetic"])]:
        make_file(path, size, 0)
        run([BENCH, "fill", path, "--span", span, *words])
        what = "open, synthetic" if words else "open"
        m = medians([keep(what, **json.loads(run([BENCH, "open", path]))) for _ in range(RUNS)])
        per_tib = 1024 * GIB / (m["blocks"] * 4096)
        # What does not grow with the data would be multiplied if the small one were extrapolated.
        rows.append([f"{m['blocks'] * 4096 / GIB:.0f} GiB{', made up' if words else ''}", f"{m['open_seconds']:.2f}",
                     f"{m['open_cpu_seconds']:.2f}", f"{m['open_seconds'] * per_tib:.1f}" if words else "",
                     f"{m['index_bytes_per_block']:.2f}", f"{m['index_bytes'] * per_tib / GIB:.2f} GiB" if words else "",
                     f"{m['resident_bytes'] * per_tib / GIB:.2f} GiB" if words else ""])
    os.remove(path)
    table("Opening, on one core", ["4 KiB-random data", "seconds", "CPU seconds", "seconds per TiB", "index bytes per block",
                                   "index per TiB", "resident per TiB"], rows)


# What a device of so many segments writes per byte of its clients when all of it but this share lives and the one
# written longest ago is cleaned: uniform random (LRU; Desnoyers, "Analytic modeling of SSD write performance").
LRU = {80: 2.7, 90: 5.1}


def life(path, size, share, overwrites, *words, depth=64):
    make_file(path, size, 0)
    run(["fallocate", "--length", size, path])
    result = json.loads(run([BENCH, "--depth", depth, "life", path, "--share", share, "--overwrites", overwrites, *words],
                            timeout=1800))
    os.remove(path)
    return keep(f"life {size // MIB} MiB {share} % {' '.join(map(str, words))}", **result)


def measure_life():
    """What becomes of a store that is filled and overwritten many times: throughput, what is written to the device for a
    byte of clients, and what clients wait at an equal offered load in the first and in the last tenth."""
    path = os.path.join(MEMORY, "life.img")
    overwrites = 2 if SECONDS == 1 else 10
    rows, steady = [], {}
    for size, share, zipf in [(4 * GIB, 50, None), (4 * GIB, 80, None), (4 * GIB, 90, None), (4 * GIB, 50, 1.1),
                              (4 * GIB, 80, 1.1), (256 * MIB, 80, None), (256 * MIB, 90, None), (256 * MIB, 90, 1.1)]:
        words = [] if zipf is None else ["--zipf", zipf]
        rounds = [life(path, size, share, overwrites, *words) for _ in range(RUNS)]
        m, parts = medians(rounds), {key: statistics.median(r["amplification"][key] for r in rounds)
                                     for key in ("total", "moved", "checkpoint", "headers")}
        steady[size, share, zipf] = m["steady_iops"]
        rows.append([f"{size // MIB} MiB", f"{share} %", f"zipf {zipf}" if zipf else "uniform", f"{m['fresh_iops']:,.0f}",
                     f"{m['steady_iops']:,.0f}", f"{m['steady_iops'] / m['fresh_iops']:.0%}",
                     *(f"{parts[key]:.2f}" for key in ("total", "moved", "checkpoint", "headers")),
                     f"{LRU[share]}" if share in LRU and zipf is None else ""])
    table(f"A long life: overwritten {overwrites} times, depth 64, memory",
          ["device", "of usable", "writes", "fresh IOPS", "steady IOPS", "of fresh", "device bytes per byte", "moved",
           "checkpoint", "headers", "LRU"], rows)
    measure_life_of_a_volume(overwrites)
    rows = []
    for share, zipf in [(80, None), (80, 1.1)]:
        rate = steady[4 * GIB, share, zipf] * 0.5
        words = ["--rate", f"{rate:.0f}"] + ([] if zipf is None else ["--zipf", zipf])
        rounds = [life(path, 4 * GIB, share, overwrites, *words)["parts"] for _ in range(RUNS)]
        tenths = [statistics.median(r[n]["p99_us"] for r in rounds) for n in range(10)]
        waited = statistics.median(r[9]["waited"] for r in rounds)
        rows.append([f"{share} %", f"zipf {zipf}" if zipf else "uniform", f"{rate:,.0f}",
                     ", ".join(f"{us / 1000:.1f}" for us in tenths), f"{tenths[9] / tenths[0]:.1f}", f"{waited:.0f}"])
    table("Client p99 at an equal offered load, 4 GiB, memory",
          ["of usable", "writes", "offered IOPS", "p99 ms of each tenth", "last / first", "waited for room"], rows)


def measure_life_of_a_volume(overwrites):
    """The same as clients see it: 4 KiB over NBD, right after the volume was filled in order, and when all of it has been
    overwritten so often."""
    rows = []
    for share, zipf, depth in [(50, None, 32), (80, None, 32), (50, 1.1, 32), (80, 1.1, 32), (80, None, 4), (80, None, 1)]:
        size = 4 * GIB * 9 // 10 * share // 100 // MIB * MIB
        words = ["--norandommap"] + ([] if zipf is None else [f"--random_distribution=zipf:{zipf}"])
        seen = {"fresh": [], "steady": []}
        for _ in range(RUNS):
            demo = Demo(MEMORY, 4 * GIB, volumes=(f"v:{size}",))
            try:
                load = dict(depth=depth, size=str(size))
                nbd_fio(demo, "write", block="128k", timed=False, size=str(size))
                # What is free now lasts for more than this.
                short = ("--io_size=256M", *words)
                seen["fresh"].append(keep("fresh", **nbd_fio(demo, "randwrite", extra=short, timed=False, **load)))
                long = (f"--io_size={size * overwrites}", *words)
                nbd_fio(demo, "randwrite", extra=long, timed=False, depth=32, size=str(size))
                seen["steady"].append(keep("steady", **nbd_fio(demo, "randwrite", extra=words, **load)))
            finally:
                demo.stop()
        fresh, steady = medians(seen["fresh"]), medians(seen["steady"])
        rows.append([f"{share} %", f"zipf {zipf}" if zipf else "uniform", str(depth),
                     *(f"{m[key]:,.{digits}f}" for m in (fresh, steady)
                       for key, digits in (("iops", 0), ("p99_us", 0), ("target_us", 1))),
                     f"{steady['iops'] / fresh['iops']:.0%}"])
    table(f"A volume overwritten {overwrites} times, NBD, one core, memory",
          ["of usable", "writes", "depth", "fresh IOPS", "p99 µs", "CPU µs, node", "steady IOPS", "p99 µs", "CPU µs, node", "of fresh"], rows)


def main():
    global RUNS, SECONDS
    wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--quick" in sys.argv:
        RUNS, SECONDS = 1, 1
    if set(wanted) - {"store", "doors", "shapes", "open", "coding", "layers", "life"}:
        sys.exit(__doc__)
    os.makedirs("out", exist_ok=True)
    print(f"Medians of {RUNS}, {SECONDS} s each, {os.cpu_count()} cores, Linux {os.uname().release}.")
    if not wanted or "store" in wanted:
        measure_store("memory", MEMORY)
        with tempfile.TemporaryDirectory(dir="out") as folder:
            measure_store("disk", folder)
    if not wanted or "doors" in wanted:
        measure_doors()
    if not wanted or "shapes" in wanted:
        measure_shapes()
    if not wanted or "open" in wanted:
        measure_open()
    if not wanted or "coding" in wanted:
        measure_coding()
    if not wanted or "layers" in wanted:
        measure_layers()
    if not wanted or "life" in wanted:
        measure_life()
    with open("out/bench.json", "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)


main()
