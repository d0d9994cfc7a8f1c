"""Two of the clients of together.sh, by libnbd: `python3 together-nbd.py model|multi write|verify URI`.

model: random writes, zeroes and trims on one connection, compared with a model in memory; `verify` makes the same model
       again, from the same seed, and compares only.
multi: four connections to one export: what one of them wrote the next one reads at once, without a flush.
"""
import hashlib
import random
import sys
import threading

import nbd

SIZE, BLOCK = 32 << 20, 4096


def connect(uri):
    handle = nbd.NBD()
    handle.connect_uri(uri)
    return handle


def read_all(handle):
    return b"".join(handle.pread(1 << 20, at) for at in range(0, SIZE, 1 << 20))


def model(uri, write):
    rng, content, handle = random.Random(11), bytearray(SIZE), connect(uri)
    for _ in range(600):
        count = rng.choice((1, 2, 17, 130)) * BLOCK
        at = rng.randrange((SIZE - count) // BLOCK) * BLOCK
        kind = rng.randrange(5)
        data = rng.randbytes(count) if kind < 3 else bytes(count)
        content[at:at + count] = data
        if not write:
            continue
        if kind < 3:
            handle.pwrite(data, at, nbd.CMD_FLAG_FUA if kind == 0 else 0)
        elif kind == 3:
            handle.zero(count, at)
        else:
            handle.trim(count, at)
    assert read_all(handle) == content, "the volume is not what the model says"


def block(number):
    return hashlib.sha256(b"%d" % number).digest() * (BLOCK // 32)


def multi(uri, write):
    handles = [connect(uri) for _ in range(4)]
    assert all(handle.can_multi_conn() for handle in handles)
    wrong = []

    def work(mine):
        # Each thread has a connection to write by and one to read by, and blocks of its own.
        try:
            for number in range(mine, SIZE // BLOCK, 4 * 8):
                handles[mine].pwrite(block(number), number * BLOCK)
                if readers[mine].pread(BLOCK, number * BLOCK) != block(number):
                    wrong.append(number)
        except nbd.Error as error:
            wrong.append(error)

    if write:
        readers = [connect(uri) for _ in range(4)]
        threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, f"written by one connection, not read by another: {wrong[:5]}"
    for mine in range(4):
        for number in range(mine, SIZE // BLOCK, 4 * 8):
            found = handles[(mine + 1) % 4].pread(BLOCK, number * BLOCK)
            assert found == block(number), f"block {number} is not what was written"


what, phase, export = sys.argv[1:]
{"model": model, "multi": multi}[what](export, {"write": True, "verify": False}[phase])
