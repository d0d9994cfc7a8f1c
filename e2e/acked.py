"""Writes a volume over NBD and notes what was acknowledged; judges by that what is read later. For /usr/bin/python3 with libnbd.

acked.py write URI LOG            blocks of 64 MiB at random, one after the other, until the server is gone or SIGTERM comes
acked.py check URI LOG [LINES]    each block holds what was last acknowledged in the first LINES lines of LOG (all of them), or something that
                                  was begun later
Lines of LOG: `b BLOCK NUMBER`, a write was begun; `a BLOCK NUMBER`, it was acknowledged. A block is full of its number.
"""
import random
import signal
import sys

import nbd

BLOCK, BLOCKS = 4096, (64 << 20) // 4096


def content(number):
    return number.to_bytes(8, "little") * (BLOCK // 8)


def write(handle, path):
    ends = []
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    with open(path, "w", buffering=1) as log:
        for number in range(1, 1 << 40):
            if ends:
                return
            block = random.randrange(BLOCKS)
            log.write(f"b {block} {number}\n")
            try:
                handle.pwrite(content(number), block * BLOCK)
            except nbd.Error as error:
                print(f"after {number - 1} writes: {error}")
                return
            log.write(f"a {block} {number}\n")


def check(handle, path, lines):
    acked, begun = {}, {}
    with open(path) as log:
        for count, line in enumerate(log):
            what, block, number = line.split()
            if what == "b":
                begun.setdefault(int(block), []).append(int(number))
            elif lines is None or count < lines:
                acked[int(block)] = int(number)
    wrong = 0
    for block in begun:
        least = acked.get(block, 0)
        may_be = {least, *(number for number in begun[block] if number > least)}
        found = bytes(handle.pread(BLOCK, block * BLOCK))
        number = int.from_bytes(found[:8], "little")
        if found != content(number) or number not in may_be:
            wrong += 1
            print(f"block {block} holds {number}, {least} was acknowledged")
    print(f"{len(acked)} blocks were acknowledged, {wrong} are wrong")
    return wrong == 0 and len(acked) > 0


def main():
    handle = nbd.NBD()
    handle.connect_uri(sys.argv[2])
    if sys.argv[1] == "write":
        write(handle, sys.argv[3])
        return
    if not check(handle, sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else None):
        sys.exit(1)


main()
