#!/usr/bin/env python3
"""The figures of docs/performance.md, measured here: `make bench`.

Contestants alternate, every figure is the median of three runs, and a ping-pong over loopback TCP is run before each
round to tell the machine's state. Prints tables in Markdown and keeps all single results in out/bench.json.

    tools/bench.py [--quick] [store] [doors] [open]      default: all three
"""

import json
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
BENCH, CAIRN = "target/release/cairn-bench", "target/release/cairn"
MEMORY = "/dev/shm"
# SPDK 26.09-pre, NVMe/TCP, one core, aio on a file in memory, 4 KiB at depth 128, on a machine of this kind: what the
# doors are held against.
SPDK_PER_CORE = {"read": 205_000, "write": 284_000}
results = []


def run(command, timeout=300):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout


def keep(what, **figures):
    results.append({"what": what, "at": time.time(), **figures})
    return figures


def bench(*words, depth=1, pattern="read", pids=(), seconds=SECONDS):
    command = [BENCH, "--depth", depth, "--pattern", pattern, "--seconds", seconds]
    for pid in pids:
        command += ["--pid", pid]
    return json.loads(run([*command, *words]))


def fio(path, rw, depth, block="4k", span=GIB, extra=()):
    out = run(["fio", "--name=raw", f"--filename={path}", f"--rw={rw}", f"--bs={block}", f"--iodepth={depth}",
               f"--size={span}", "--direct=1", "--ioengine=io_uring", "--time_based", "--ramp_time=1",
               f"--runtime={SECONDS}", "--randrepeat=0", "--norandommap", "--output-format=json", *extra])
    job = json.loads(out)["jobs"][0]
    side = job["read" if "read" in rw else "write"]
    # A flush behind each write is not in the latency of the write: one at a time, the rate says what both took.
    mean_us = 1e6 / side["iops"] if "--fdatasync=1" in extra else side["lat_ns"]["mean"] / 1000
    return {"iops": side["iops"], "mean_us": mean_us,
            "mib_s": side["bw_bytes"] / MIB}


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


def measure_store(media, folder):
    """The store alone beside the raw file: the same folder, the same span, in turn."""
    path = os.path.join(folder, "store.img")
    span, size = GIB, 10 * GIB
    cases = [("random read, depth 128", "randread", 128, "read"), ("random read, depth 1", "randread", 1, "read"),
             ("random write, depth 128", "randwrite", 128, "write"), ("random write, depth 1", "randwrite", 1, "write")]
    durable = ("--fdatasync=1",) if media == "disk" else ()
    seen = {name: ([], []) for name, *_ in cases}
    sequential, states = [], []
    for _ in range(RUNS):
        states.append(machine_state())
        make_file(path, size, span)
        sequential.append(fio(path, "write", 4, block="1m"))
        for name, rw, depth, pattern in cases:
            # A write that is waited for alone: into a file written before, for both. In a sparse one the file system
            # allocates at each flush where the log is new, which is neither the store nor the device.
            waited = rw == "randwrite" and depth == 1
            case_size, case_span, filled = (2 * GIB, GIB // 8, 2 * GIB) if waited else (size, span, span)
            make_file(path, case_size, filled)
            raw = fio(path, rw, depth, span=case_span, extra=durable if waited else ())
            make_file(path, case_size, filled if waited else 0)
            store = bench("store", path, "--span", case_span, depth=depth, pattern=pattern)
            keep(f"store {media}: {name}", raw=raw, store=store)
            seen[name][0].append(raw)
            seen[name][1].append(store)
    os.remove(path)
    rows = []
    for name, (raws, stores) in seen.items():
        raw, store = medians(raws), medians(stores)
        ratio = store["mean_us"] / raw["mean_us"] if "depth 1" in name and "128" not in name else store["iops"] / raw["iops"]
        unit = "of its latency" if "depth 1" in name and "128" not in name else "of its IOPS"
        rows.append([name, f"{raw['iops']:,.0f}", f"{raw['mean_us']:.0f}", f"{store['iops']:,.0f}",
                     f"{store['mean_us']:.0f}", f"{store['p99_us']:.0f}", f"{ratio:.0%} {unit}",
                     f"{store['device_bytes_per_client_byte']:.2f}"])
    sequential_mib = statistics.median(r["mib_s"] for r in sequential)
    writes = medians(seen[cases[2][0]][1])
    share = writes["iops"] * 4096 / MIB / sequential_mib
    table(f"The store alone, {media}", ["4 KiB", "raw IOPS", "mean µs", "store IOPS", "mean µs", "p99 µs",
                                        "store of raw", "device bytes per byte"], rows)
    print(f"\nRaw sequential write: {sequential_mib:,.0f} MiB/s; the store's random write at depth 128 is {share:.0%} of it."
          f" Machine: {'; '.join(states)}.")


class Demo:
    """A cluster of one node, one core, its device in `folder`: a file whose memory is there before the load begins, as a
    drive's flash is. The first touch of each page would else be counted, which costs as much as the write itself."""

    def __init__(self, folder, size):
        self.folder = tempfile.mkdtemp(dir=folder, prefix="cairn-bench-")
        self.process = subprocess.Popen(
            [CAIRN, "demo", "--dir", self.folder, "--device-size", str(size), "--volume", "v:1G", "--nvme-port", "0",
             "--nbd-port", "0", "--admin-port", "0", "--cores", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready = self.process.stdout.readline()
        if not ready.startswith("ready"):
            self.stop()
            sys.exit("bench: the demo did not become ready")
        admin = dict(word.split("=", 1) for word in ready.split() if "=" in word)["admin"]
        self.info = json.loads(run([CAIRN, "--admin", admin, "volume", "info", "v", "-o", "json"]))
        run(["fallocate", "--length", size, os.path.join(self.folder, "node-1", "device-1.img")])

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


def main():
    global RUNS, SECONDS
    wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--quick" in sys.argv:
        RUNS, SECONDS = 1, 1
    if set(wanted) - {"store", "doors", "open"}:
        sys.exit(__doc__)
    os.makedirs("out", exist_ok=True)
    print(f"Medians of {RUNS}, {SECONDS} s each, {os.cpu_count()} cores, Linux {os.uname().release}.")
    if not wanted or "store" in wanted:
        measure_store("memory", MEMORY)
        with tempfile.TemporaryDirectory(dir="out") as folder:
            measure_store("disk", folder)
    if not wanted or "doors" in wanted:
        measure_doors()
    if not wanted or "open" in wanted:
        measure_open()
    with open("out/bench.json", "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)


main()
