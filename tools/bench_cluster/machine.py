"""What every part measures with: fio, the CPU's time by process, tables."""

import json
import os
import statistics
import subprocess
import sys
import time

MIB, GIB = 1 << 20, 1 << 30
TICKS = os.sysconf("SC_CLK_TCK")
RELEASE = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release")
CAIRN, BENCH, FAULTS = (os.path.abspath(os.path.join(RELEASE, name)) for name in ("cairn", "cairn-bench", "cairn-faults"))
ENGINE = os.path.abspath(os.path.join(RELEASE, "libcairn-fio.so"))
SECONDS = float(os.environ.get("SECONDS_PER_POINT", "5"))
REPEATS = int(os.environ.get("REPEATS", "3"))
# Of a measured time what comes first and last is left out of the CPU's time: processes begin and end in it.
EDGE = 0.1
RAMP_S = 1
results = []


def keep(what, **figures):
    """Into out/bench-cluster.json, once the part has ended."""
    results.append({"what": what, "at": time.time(), **figures})
    return figures


def run(command, timeout=300, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def say(text):
    print(f"      {text}", file=sys.stderr, flush=True)


def machine_busy_s():
    """What all cores together have worked since the machine began (proc(5), /proc/stat)."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _wait, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def process_cpu_s(pid):
    """User and system time of a process and its threads."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


def snapshot(processes):
    return time.monotonic(), machine_busy_s(), {name: process_cpu_s(pid) for name, pid in processes.items()}


def fio(target, rw, block, depth, processes, size, seconds=None, extra=(), others=()):
    """One measured run: rates, latencies in µs, and CPU µs per I/O of the machine and of each process, user and system apart.
    `processes`: pids by name; fio itself is added as `client`. `others`: targets that have the same load beside the first, told of as one."""
    seconds = seconds or SECONDS
    jobs = [word for number, one in enumerate((target, *others)) for word in (f"--name=v{number}", *one)]
    child = subprocess.Popen(
        ["fio", "--output-format=json", "--name=global", "--thread", "--group_reporting", f"--rw={rw}", f"--bs={block}", f"--iodepth={depth}",
         f"--size={size}", "--direct=1", "--time_based", f"--ramp_time={RAMP_S}", f"--runtime={seconds}", "--randrepeat=0", "--norandommap",
         *extra, *jobs],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        processes = {**processes, "client": child.pid}
        time.sleep(RAMP_S + EDGE * seconds)
        first = snapshot(processes)
        time.sleep((1 - 2 * EDGE) * seconds)
        last = snapshot(processes)
        out, errors = child.communicate(timeout=120)
    finally:
        child.kill()
        child.wait()
    if child.returncode != 0:
        raise RuntimeError(f"fio {rw} {block} failed ({child.returncode}):\n{errors[-2000:]}")
    job = json.loads(out[out.index("{"):])["jobs"][0]
    side = both(job) if rw == "randrw" else job["read" if "read" in rw else "write"]
    ios = side["iops"] * (last[0] - first[0])
    cpu = {name: [(last[2][name][part] - first[2][name][part]) * 1e6 / ios for part in (0, 1)] for name in processes}
    percentile = side["clat_ns"]["percentile"]
    return {"iops": side["iops"], "mib_s": side["bw_bytes"] / MIB, "mean_us": side["lat_ns"]["mean"] / 1000,
            "p50_us": percentile["50.000000"] / 1000, "p99_us": percentile["99.000000"] / 1000, "p999_us": percentile["99.900000"] / 1000,
            "max_us": side["lat_ns"]["max"] / 1000,
            "machine_us": (last[1] - first[1]) * 1e6 / ios, "processes_us": sum(map(sum, cpu.values())), "cpu_us": cpu}


def both(job):
    """Reads and writes of a mix as one: of the percentiles the larger."""
    sides = [job["read"], job["write"]]
    mean = sum(side["lat_ns"]["mean"] * side["iops"] for side in sides) / sum(side["iops"] for side in sides)
    percentiles = [side["clat_ns"]["percentile"] for side in sides]
    return {"iops": sum(side["iops"] for side in sides), "bw_bytes": sum(side["bw_bytes"] for side in sides),
            "lat_ns": {"mean": mean, "max": max(side["lat_ns"]["max"] for side in sides)},
            "clat_ns": {"percentile": {share: max(one[share] for one in percentiles) for share in percentiles[0]}}}


def generator(words, rw, block, depth, processes, seconds=None, reads=None, random=None, timeout=300):
    """The same by our own generator: `words` name its target (`cairn-bench --help`). Of the CPU's time user and system are one."""
    direction = {"read": "read", "write": "write", "rw": "mix"}[rw.replace("rand", "")]
    if random is None:
        random = 100 if rw.startswith("rand") else 0
    share = ["--read-percent", reads] if direction == "mix" and reads is not None else []
    pids = [word for pid in processes.values() for word in ("--pid", pid)]
    # What the machine does at rest is left in, as it is with fio.
    times = ["--idle-cores", "0", "--warm-up", RAMP_S, "--seconds", seconds or SECONDS]
    pattern = ["--pattern", direction, *share, "--random-percent", random, "--bytes", bytes_of(block)]
    result = json.loads(run([BENCH, *times, "--depth", depth, *pattern, *pids, *words], timeout=timeout))
    cpu = {name: [us] for name, us in zip([*processes, "client"], result["process_cpu_us"], strict=True)}
    figures = {key: result[key] for key in ("iops", "mean_us", "p50_us", "p99_us", "p999_us", "max_us")}
    return {**figures, "mib_s": result["iops"] * bytes_of(block) / MIB, "machine_us": result["machine_cpu_us"],
            "processes_us": sum(map(sum, cpu.values())), "cpu_us": cpu}


def bytes_of(block):
    """As fio writes it: 4k, 512k, 4M."""
    unit = {"k": 1 << 10, "m": MIB, "g": GIB}.get(block[-1].lower(), 1)
    return int(block.rstrip("kKmMgG")) * unit


def chosen(names):
    """Those of a part's contestants that CONTESTANTS names, in the part's order; all where it is not set. NVMe/TCP is `nvme` there."""
    words = os.environ.get("CONTESTANTS", "").lower().split()
    by_word = {name.lower().partition("/")[0]: name for name in names}
    unknown = [word for word in words if word not in by_word]
    if unknown:
        sys.exit(f"bench-cluster: CONTESTANTS names {', '.join(unknown)}, which this part has not: it has {' '.join(by_word)}")
    return [name for word, name in by_word.items() if not words or word in words]


def turned(names, by):
    """The same in another order, so that none is always the first."""
    by %= max(len(names), 1)
    return [*names[by:], *names[:by]]


def ping_pong():
    """Round trips over loopback TCP at depth 1, in thousands a second: how fast the machine is just now."""
    words = [BENCH, "--depth", "1", "--seconds", "1", "ping-pong"]
    return json.loads(run(words))["iops"] / 1000


def medians(rounds):
    """Of each figure by itself; of figures by process, too."""
    def of(key):
        values = [r[key] for r in rounds]
        if isinstance(values[0], dict):
            return {name: [statistics.median(parts) for parts in zip(*(v[name] for v in values))] for name in values[0]}
        return statistics.median(values)
    return {key: of(key) for key in rounds[0]}


def with_spread(values):
    """The median, and between what it lies, if there is more than one."""
    median = f"{statistics.median(values):,.0f}"
    return median if len(values) < 2 else f"{median} ({min(values):,.0f}–{max(values):,.0f})"


def say_left(began, done, of):
    """After a repeat: how long the others take, by what these took."""
    took = time.monotonic() - began
    if done < of:
        say(f"{done} of {of} repeats took {duration(took)}: about {duration(took / done * (of - done))} are left")


def duration(seconds):
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def table(title, columns, rows):
    print(f"\n### {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    sys.stdout.flush()


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


