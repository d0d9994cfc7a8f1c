"""The map of a large cluster: real etcd, three real nodes, and simulated ones whose records `cairn-bench large-map` writes."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

from clusters import Cairn, wait_until
from machine import BENCH, CAIRN, GIB, MIB, children, keep, process_cpu_s, resident_mib, run, say, table

DEVICES = int(os.environ.get("DEVICES", "1000"))
VOLUMES = int(os.environ.get("VOLUMES", "100000"))
SIMULATED_NODES = 50
START_S = 300


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def metric(text, name):
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))


def measure():
    cluster, simulated, rows = Cairn("memory", GIB), None, []
    tell = lambda what, figure: (rows.append([what, figure]), say(f"{what}: {figure}"))
    try:
        before = {number: resident_mib(children(node.pid)[0]) for number, node in cluster.nodes.items()}
        tell("a node's memory before, MiB", f"{before[1]:,.0f}")
        for number in list(cluster.nodes):
            cluster.stop_node(number)
        simulated = subprocess.Popen([BENCH, "large-map", "--etcd", cluster.etcd.url, "--nodes", str(SIMULATED_NODES),
                                      "--devices", str(DEVICES - 3), "--volumes", str(VOLUMES)], stdout=subprocess.PIPE, text=True)
        filled = json.loads(simulated.stdout.readline())
        tell("devices, groups, volumes", f"{DEVICES:,}, {filled['groups']:,}, {VOLUMES:,}")
        tell("the pool and its groups made, s", f"{filled['groups_seconds']:.1f}")
        tell("volumes written, s", f"{filled['volumes_seconds']:.1f}")
        etcd = get(cluster.etcd.url + "/metrics")
        tell("in etcd, MiB (in use)", f"{metric(etcd, 'etcd_mvcc_db_total_size_in_bytes') / MIB:,.0f} "
             f"({metric(etcd, 'etcd_mvcc_db_total_size_in_use_in_bytes') / MIB:,.0f})")
        tell("etcd's memory, MiB", f"{resident_mib(cluster.etcd.process.pid):,.0f}")
        cold_start(cluster, tell)
        death(cluster, tell)
        keep("large map", rows=rows, filled=filled)
    finally:
        cluster.stop()
        if simulated:
            simulated.kill()
            simulated.wait()
    table("A large map", ["", ""], rows)


def cold_start(cluster, tell):
    began = time.monotonic()
    for number in (1, 2, 3):
        cluster.start(number, waits=False)
    for number in (1, 2, 3):
        cluster.ready(number)
    tell("three nodes start at once, s until ready", f"{time.monotonic() - began:.1f}")
    wait_until("all groups of real nodes are led", lambda: led(cluster, (1, 2, 3)), seconds=START_S)
    tell("until all their groups serve, s", f"{time.monotonic() - began:.1f}")
    cluster.stop_node(3)
    began = time.monotonic()
    cluster.start(3, waits=False)
    cluster.ready(3)
    tell("one node starts while others run, s until ready", f"{time.monotonic() - began:.1f}")
    worker = children(cluster.nodes[3].pid)[0]
    tell("its CPU for that, s", f"{sum(process_cpu_s(worker)):.1f}")
    time.sleep(10)
    tell("its memory, MiB", f"{resident_mib(worker):,.0f}")
    before = sum(process_cpu_s(worker))
    time.sleep(20)
    tell("its CPU at rest, % of a core", f"{(sum(process_cpu_s(worker)) - before) * 5:.1f}")
    for what in (["status"], ["volume", "ls"], ["device", "ls"], ["node", "ls"]):
        began = time.monotonic()
        try:
            run(["timeout", "60", *command(cluster, *what)])
            tell(f"`cairn {' '.join(what)}`, s", f"{time.monotonic() - began:.1f}")
        except RuntimeError as error:
            tell(f"`cairn {' '.join(what)}`", f"fails after {time.monotonic() - began:.0f} s: {str(error).splitlines()[-1][:100]}")


def command(cluster, *words):
    return [CAIRN, "--admin", cluster.admins[1], *words]


def led(cluster, nodes):
    """Groups that these nodes lead, if all of them serve; none as long as a node is too busy to say."""
    try:
        told = [get(cluster.admins[number] + "/metrics") for number in nodes]
    except urllib.error.HTTPError:
        return 0
    groups, serving = (sum(metric(text, name) for text in told) for name in ("cairn_groups", "cairn_groups_serving"))
    return serving if serving == groups else 0


def death(cluster, tell):
    """A real node's, whose groups the others take over; then a simulated one's."""
    wait_until("all groups of real nodes are led", lambda: led(cluster, (1, 2, 3)), seconds=START_S)
    groups = led(cluster, (1, 2, 3))
    tell("groups that the three lead", f"{groups:,.0f}")
    time.sleep(5)
    supervisor, worker = cluster.nodes[3], children(cluster.nodes[3].pid)[0]
    supervisor.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    os.kill(worker, signal.SIGKILL)
    supervisor.kill()
    supervisor.wait()
    wait_until("its groups are led by others", lambda: led(cluster, (1, 2)) >= groups, seconds=START_S, every=0.02)
    tell("a node is killed: s until others lead its groups", f"{time.monotonic() - began:.1f}")
    for words in (["node", "rm", "node-10", "--lost", "--dry-run"], ["node", "drain", "node-11", "--dry-run"]):
        began = time.monotonic()
        try:
            said = run(command(cluster, *words)).strip().splitlines()
        except RuntimeError as error:
            said = str(error).strip().splitlines()
        tell(f"`cairn {' '.join(words)}`, s", f"{time.monotonic() - began:.1f} ({said[-1][:120] if said else ''})")
