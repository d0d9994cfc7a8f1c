"""A node is away while clients write, and comes back: how fast it is made whole, what share that is of what a plain copy gives, and what clients
notice of it."""

import glob
import os
import subprocess
import tempfile
import time

import plain_copy
from budget import metrics
from clusters import Cairn, wait_until
from machine import GIB, MIB, SECONDS, keep, percentile, run, say, table

SIZE = 3 * GIB // 2
DEVICE = 5 * GIB
# What is written while the node is away: all of the volume, in order or block by block.
PATTERNS = {"1 MiB in order": ("write", "1M", 4), "4 KiB at random": ("randwrite", "4k", 64)}
# Light: what a client notices, not who gets the core.
CLIENT_IOPS, CLIENT_DEPTH = 1500, 8
AWAY = 3
# How often the cluster is asked whether it is whole: as often while nothing is made whole, for that costs the client something, too.
ASK_EVERY = 0.5
# Goal: with clients quiet at least this share of the slower of disk and network.
GOAL = 0.7
# Of the bytes that come, the first and the last are left out where it is asked how fast they come: it begins and ends with what is no copying.
EDGE = 0.1


def measure(media):
    """Each way of writing: with clients quiet, then with a client at a steady rate. A plain copy goes before the first, the cluster being idle."""
    cluster, rows, shares = Cairn(media, DEVICE), [], []
    try:
        target, head = cluster.volume("v", SIZE, "local:node-1")
        for name, (rw, block, depth) in PATTERNS.items():
            size = SIZE if rw == "write" else SIZE // 4
            gives = plain_copy.measure(media)
            say(f"a plain copy, MiB/s: {', '.join(f'{what} {rate:,.0f}' for what, rate in gives.items())}")
            quiet = recover(cluster, target, (rw, block, depth), size, watches=True)
            alone = Client(target)
            until = time.monotonic() + 2 * SECONDS
            wait_until("the client was seen alone", lambda: cluster.is_whole() and time.monotonic() > until, every=ASK_EVERY)
            base = alone.stop()
            busy_client = None
            def start():
                nonlocal busy_client
                busy_client = Client(target)
            busy = recover(cluster, target, (rw, block, depth), size, start)
            # What is over before the node was whole counts alone.
            during = [us for at, us in busy_client.stop(timed=True) if busy["began"] <= at <= busy["ended"]]
            p99 = [percentile(values, 0.99) for values in (base, during)] if during else [percentile(base, 0.99), float("nan")]
            keep(f"recovery {media} {name}", quiet=quiet, busy=busy, p99_us=p99, samples=len(during), plain_copy_mib_s=gives)
            shares.append(share_row(name, size / MIB / quiet["seconds"], coming(quiet["written"]), gives))
            rows.append([name, f"{size / MIB:,.0f}", f"{quiet['seconds']:.1f}", f"{size / MIB / quiet['seconds']:,.0f}", f"{busy['seconds']:.1f}",
                         f"{size / MIB / busy['seconds']:,.0f}", f"{p99[0]:,.0f}", f"{p99[1]:,.0f}", f"{p99[1] / p99[0]:.1f} ×"])
    finally:
        cluster.stop()
    table(f"A node comes back, {media}", ["written meanwhile", "MiB", "s until whole, clients quiet", "MiB/s", "s, with a client", "MiB/s",
                                        "client's p99 µs before", "while it is made whole", ""], rows)
    table(f"And of a plain copy, {media}, clients quiet, MiB/s",
          ["written meanwhile", "until whole", "while it comes", "disk, read", "disk, written", "TCP", "of the slower, until whole", "while it comes",
           "disk to TCP to disk", "of that, until whole", "while it comes"], shares)


def share_row(name, until_whole, while_coming, gives):
    """`while_coming` is None where it was over too soon to be seen."""
    slower = plain_copy.slower(gives)
    def judged(rate):
        return "" if rate is None else f"{rate / slower:.0%} ({'reached' if rate / slower >= GOAL else 'missed'}, {GOAL:.0%})"
    def of_copy(rate):
        return "" if rate is None else f"{rate / gives['copy']:.0%}"
    seen = "" if while_coming is None else f"{while_coming:,.0f}"
    return [name, f"{until_whole:,.0f}", seen, f"{gives['read']:,.0f}", f"{gives['write']:,.0f}", f"{gives['tcp']:,.0f}", judged(until_whole),
            judged(while_coming), f"{gives['copy']:,.0f}", of_copy(until_whole), of_copy(while_coming)]


def coming(written):
    """MiB/s at which a device was written, by what was seen of it, seconds and bytes: without the edges of what came; None if it was not seen."""
    first, last = written[0][1], written[-1][1]
    def reached(share):
        wanted = first + share * (last - first)
        for (at, had), (then, has) in zip(written, written[1:]):
            if had < wanted <= has:
                return at + (then - at) * (wanted - had) / (has - had)
        return None
    began, ended = reached(EDGE), reached(1 - EDGE)
    if began is None or ended is None or ended <= began:
        return None
    return (1 - 2 * EDGE) * (last - first) / MIB / (ended - began)


def written_bytes(cluster, number):
    """Written to a node's device since it was opened."""
    for line in metrics(cluster.admins[number]).splitlines():
        if line.startswith("cairn_device_written_bytes_total{") and f"device-{number}.img" in line:
            return float(line.rsplit(" ", 1)[1])
    raise RuntimeError(f"node {number} does not say what was written to its device")


def recover(cluster, target, load, size, before_start=None, watches=False):
    """Seconds from the node being ready until the cluster is whole. `watches`: what is written to its device meanwhile is looked at, too, which no
    client is to pay for."""
    rw, block, depth = load
    cluster.stop_node(AWAY)
    wait_until("the others serve", lambda: serves(cluster))
    run(["fio", "--name=w", *target, f"--rw={rw}", f"--bs={block}", f"--iodepth={depth}", f"--io_size={size}", f"--size={SIZE}", "--randrepeat=0"])
    if before_start:
        before_start()
    # Made whole from when its device is open: the first that the others say of it.
    cluster.start(AWAY, waits=False)
    cluster.ready(AWAY)
    began, written = time.time(), []
    def is_whole():
        if watches:
            written.append((time.time() - began, written_bytes(cluster, AWAY)))
        return cluster.is_whole()
    wait_until("it is whole", is_whole, seconds=600, every=ASK_EVERY)
    ended = time.time()
    say(f"{load}: whole after {ended - began:.1f} s")
    return {"began": began, "ended": ended, "seconds": ended - began, **({"written": written} if watches else {})}


def serves(cluster):
    status = cluster.ask("status", "-o", "json")
    return status["groups_serving"] == status["groups"] >= 100


class Client:
    """Random 4 KiB writes and reads at a steady rate, each with its latency and time."""

    def __init__(self, target):
        self.folder = tempfile.mkdtemp(prefix="cairn-client-")
        log = os.path.join(self.folder, "lat")
        self.process = subprocess.Popen(
            ["fio", "--name=c", "--thread", *target, "--rw=randrw", "--rwmixread=50", "--bs=4k", f"--iodepth={CLIENT_DEPTH}", f"--size={SIZE}",
             f"--rate_iops={CLIENT_IOPS // 2},{CLIENT_IOPS // 2}", "--time_based", "--runtime=900", "--randrepeat=0", "--norandommap",
             f"--write_lat_log={log}", "--log_unix_epoch=1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self, timed=False):
        """Latencies in µs; with the time of each, if wanted."""
        self.process.send_signal(2)
        self.process.wait(timeout=60)
        found = []
        for path in glob.glob(os.path.join(self.folder, "lat_lat*.log")):
            with open(path, encoding="ascii") as file:
                for line in file:
                    at_ms, ns = line.split(",")[:2]
                    found.append((int(at_ms) / 1000, int(ns) / 1000))
        for path in glob.glob(os.path.join(self.folder, "*")):
            os.remove(path)
        os.rmdir(self.folder)
        return found if timed else [us for _, us in found]
