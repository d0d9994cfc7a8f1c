"""Where a 4 KiB write and read on three nodes spend time and CPU, stage by stage, beside what was estimated before."""

import urllib.request

from clusters import Cairn
from machine import GIB, fio, keep, table
from throughput import DEVICE, by_role

# CPU µs per I/O at depth 128 of client, head's node and other nodes, from figures of one node (docs/performance.md): its door and store take 5;
# sending 4 KiB to two members 3 and their answers 1; a member receives (2), appends (2) and answers (0.5). fio takes 4.
ESTIMATED = {"randwrite": (4.0, 9.0, 9.0), "randread": (4.0, 5.0, 0.0)}
BUDGET = {"randwrite": 30, "randread": 10}
STAGES = ("receive", "admit", "queue", "device", "send")


def measure():
    """One cluster in memory, gathered: processes, user and system; then the stages that the nodes time themselves."""
    cluster = Cairn("memory", DEVICE["memory"])
    rows, stages = [], []
    try:
        target, head = cluster.volume("v", GIB, "gathered")
        for rw in ("randwrite", "randread"):
            for depth in (1, 128):
                before = totals(cluster)
                one = fio(target, rw, "4k", depth, cluster.processes(), GIB)
                cpu = by_role(one["cpu_us"], head)
                keep(f"budget {rw} {depth}", **{**one, "cpu_us": cpu})
                stages.append([rw, str(depth), *means(before, totals(cluster), "write" if "write" in rw else "read"), f"{one['mean_us']:,.0f}"])
                if depth == 128:
                    rows += budget_rows(rw, cpu, one["processes_us"])
    finally:
        cluster.stop()
    table("The budget, CPU µs per I/O at depth 128", ["", "stage", "estimated", "measured", "user", "system"], rows)
    table("Stages at the head, mean µs (`cairn_io_stage_seconds`)", ["", "depth", *STAGES, "client's mean"], stages)


def budget_rows(rw, cpu, total):
    roles = ("client", "head's node", "other nodes")
    rows = [[rw, role, f"{estimate:.1f}", f"{sum(cpu[role]):.1f}", f"{cpu[role][0]:.1f}", f"{cpu[role][1]:.1f}"]
            for role, estimate in zip(roles, ESTIMATED[rw])]
    return [*rows, [rw, "all", f"{sum(ESTIMATED[rw]):.1f} (budget {BUDGET[rw]})", f"{total:.1f}", "", ""]]


def totals(cluster):
    """Seconds and commands of each operation and stage, over all nodes."""
    found = {}
    for number in cluster.admins:
        for line in metrics(cluster.admins[number]).splitlines():
            for kind in ("sum", "count"):
                if line.startswith(f"cairn_io_stage_seconds_{kind}{{"):
                    labels, value = line.rsplit(" ", 1)
                    key = (kind, field(labels, "operation"), field(labels, "stage"))
                    found[key] = found.get(key, 0) + float(value)
    return found


def metrics(admin):
    with urllib.request.urlopen(f"{admin}/metrics", timeout=10) as answer:
        return answer.read().decode()


def field(labels, name):
    return labels.partition(f'{name}="')[2].partition('"')[0]


def means(before, after, operation):
    def of(stage):
        seconds, count = (after.get((kind, operation, stage), 0) - before.get((kind, operation, stage), 0) for kind in ("sum", "count"))
        return f"{seconds * 1e6 / count:,.0f}" if count else ""
    return [of(stage) for stage in STAGES]
