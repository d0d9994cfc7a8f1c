"""out/bench-cluster.json: of each part what was measured last, by what, on what, and when.

    {"format": "cairn-bench-cluster", "version": 1,
     "parts": {"flat": {"at": s since 1970, "took_s": s, "complete": whether the part came to its end,
                        "fingerprint": {"commit", "cairn" (sha256 of the binary), "kernel", "cores", "seconds", "repeats", ...},
                        "results": [{"what": ..., "at": ..., figures}, ...]}, ...}}

A part that is measured again takes its own place and no other's.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import time

FORMAT, VERSION = "cairn-bench-cluster", 1


def fingerprint(binary, **setting):
    """What a part was measured with: the program, the machine, and what was set."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = None
    try:
        with open(binary, "rb") as file:
            cairn = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        cairn = None
    return {"commit": commit, "cairn": cairn, "kernel": os.uname().release, "cores": os.cpu_count(), **setting}


def kept(path):
    """The parts of an earlier run; none where there is no such file, or another format's."""
    try:
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    is_ours = isinstance(said, dict) and (said.get("format"), said.get("version")) == (FORMAT, VERSION)
    return said["parts"] if is_ours else {}


def put(path, part, entry):
    """The part in its place in the file, all others as they were: whole or not at all."""
    said = {"format": FORMAT, "version": VERSION, "parts": {**kept(path), part: entry}}
    beside = f"{path}.new"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(said, file, indent=1)
    os.replace(beside, path)


@contextlib.contextmanager
def recorded(path, part, results, prints):
    """Puts into the file what a part appends to `results`, also if it is cut short: then it says so. One that has measured nothing
    leaves there what was."""
    begun, first, complete = time.time(), len(results), False
    try:
        yield
        complete = True
    finally:
        if results[first:]:
            entry = {"at": begun, "took_s": time.time() - begun, "complete": complete, "fingerprint": prints, "results": results[first:]}
            put(path, part, entry)
