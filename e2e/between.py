"""The TCP connections between nodes on this machine, each once, as the kernel has them (`ss`).

    python3 e2e/between.py NODE=PID,PID,... ...      a node and its processes

Prints JSON: [{"nodes": [1, 2], "ends": ["127.0.0.11:8430", "127.0.0.12:40112"], "bytes": sent by both ends}, ...]
"""

import json
import re
import subprocess
import sys


def sockets():
    """(local end, other end, pids, bytes sent) of all that are established."""
    for line in subprocess.run(["ss", "-tnpiOH"], capture_output=True, text=True, check=True).stdout.splitlines():
        state, _, _, here, there = line.split()[:5]
        sent = re.search(r"\bbytes_sent:(\d+)", line)
        if state == "ESTAB":
            yield here, there, [int(pid) for pid in re.findall(r"pid=(\d+)", line)], int(sent[1]) if sent else 0


def main():
    node_of_pid = {}
    for word in sys.argv[1:]:
        node, _, pids = word.partition("=")
        node_of_pid.update({int(pid): int(node) for pid in pids.split(",")})
    ours = {}
    for here, there, pids, sent in sockets():
        nodes = {node_of_pid[pid] for pid in pids if pid in node_of_pid}
        if nodes:
            ours[here, there] = nodes.pop(), sent
    between = []
    for (here, there), (node, sent) in ours.items():
        other, back = ours.get((there, here), (node, 0))
        if node < other:
            between.append({"nodes": [node, other], "ends": [here, there], "bytes": sent + back})
    print(json.dumps(between))


main()
