"""How long a host waits when a node fails: `cairn-faults failover`."""

import json
import os

import machine


def measure():
    path = os.path.abspath("out/failover.json")
    rounds = os.environ.get("ROUNDS", "20")
    out = machine.run([machine.FAULTS, "failover", "--rounds", rounds, "--json", path], timeout=int(rounds) * 600)
    print("\n### Fail-over as the host sees it\n")
    print(out[out.index("| failure"):])
    with open(path, encoding="utf-8") as file:
        said = json.load(file)
    machine.keep(said.pop("what"), **said)
