"""Run by nbdsh: the NBD door's own ways, as libnbd sees them, against a model in memory.

Environment: CAIRN (the program), SERVER (nbd://HOST:PORT), VOLUME (a blank volume of 64 MiB that nobody else uses).
"""
import errno
import os
import random
import subprocess

import nbd

CAIRN, SERVER, VOLUME = (os.environ[name] for name in ("CAIRN", "SERVER", "VOLUME"))
SIZE, BLOCK = 64 << 20, 4096


def cairn(*args):
    subprocess.run([CAIRN, *args], check=True, stdout=subprocess.DEVNULL)


def connect(export, *contexts):
    handle = nbd.NBD()
    for context in contexts:
        handle.add_meta_context(context)
    handle.connect_uri(f"{SERVER}/{export}")
    return handle


def extents(handle, offset, length, flags=0):
    """What one request is answered: {context: [(length, flags), ...]}."""
    told = {}

    def entry(context, at, list_, error):
        assert at == offset and error.value == 0
        told[context] = list(zip(list_[::2], list_[1::2]))
        return 0

    handle.block_status(length, offset, entry, flags)
    return told


def map_of(handle, context, length=SIZE):
    """One flag per block, asked until all is told."""
    flags = []
    while len(flags) * BLOCK < length:
        at = len(flags) * BLOCK
        for count, flag in extents(handle, at, length - at)[context]:
            assert count % BLOCK == 0
            flags += [flag] * (count // BLOCK)
    return flags


def refused(number, call, *args):
    try:
        call(*args)
    except nbd.Error as error:
        assert error.errnum == number, (error, number)
        return str(error)
    raise AssertionError(f"{call} was not refused")


class Model:
    def __init__(self):
        self.bytes = bytearray(SIZE)
        self.stored = [False] * (SIZE // BLOCK)
        self.dirty = {}

    def put(self, first, count, data, stored):
        self.bytes[first * BLOCK:(first + count) * BLOCK] = data
        for block in range(first, first + count):
            self.stored[block] = stored
            for touched in self.dirty.values():
                touched[block] = True


def change(handle, model, rng):
    count = rng.choice((1, 3, 16, 300, 2000))
    first = rng.randrange(SIZE // BLOCK - count)
    what, at, zeroes = rng.randrange(6), first * BLOCK, bytes(count * BLOCK)
    if what < 3:
        data = rng.randbytes(count * BLOCK)
        handle.pwrite(data, at)
        model.put(first, count, data, True)
    elif what == 3:
        handle.zero(count * BLOCK, at, rng.choice((0, nbd.CMD_FLAG_FAST_ZERO)))
        model.put(first, count, zeroes, False)
    elif what == 4:
        handle.zero(count * BLOCK, at, nbd.CMD_FLAG_NO_HOLE)
        model.put(first, count, zeroes, True)
    else:
        handle.trim(count * BLOCK, at)
        model.put(first, count, zeroes, False)


rng = random.Random(7)
model, kept = Model(), {}
handle = connect(VOLUME, nbd.CONTEXT_BASE_ALLOCATION)
assert handle.can_cache() and handle.can_fast_zero() and handle.can_df() and not handle.is_read_only()
assert map_of(handle, nbd.CONTEXT_BASE_ALLOCATION) == [3] * (SIZE // BLOCK), "a new volume is a hole"
handle.pwrite(rng.randbytes(SIZE // 2), 0)
model.put(0, SIZE // 2 // BLOCK, handle.pread(SIZE // 2, 0), True)

for round in range(4):
    for _ in range(30):
        change(handle, model, rng)
    name = f"s{round}"
    cairn("snapshot", "create", f"{VOLUME}@{name}")
    kept[name] = (bytes(model.bytes), list(model.stored), {other: list(bits) for other, bits in model.dirty.items()})
    model.dirty[name] = [False] * (SIZE // BLOCK)
for _ in range(10):
    change(handle, model, rng)


def verify(export, content, stored, dirty):
    contexts = [nbd.CONTEXT_BASE_ALLOCATION, *(f"cairn:dirty:{name}" for name in dirty)]
    handle = connect(export, *contexts)
    assert all(handle.can_meta_context(context) for context in contexts)
    stayed = 0
    assert map_of(handle, contexts[0]) == [0 if is_stored else 3 for is_stored in stored], f"{export}: allocation"
    for name, touched in dirty.items():
        then = kept[name][0]
        for block, told in enumerate(map_of(handle, f"cairn:dirty:{name}")):
            # Zeroing a chunk that holds nothing leaves it clean; nothing else that was touched is, and never what differs.
            differs = content[block * BLOCK:(block + 1) * BLOCK] != then[block * BLOCK:(block + 1) * BLOCK]
            assert told & ~1 == 0 and differs <= told <= touched[block], f"{export}: block {block} since {name}: {told}"
            stayed += touched[block] - told
    assert stayed <= len(content) // BLOCK // 8 * max(len(dirty), 1), f"{export}: {stayed} touched blocks told as clean"
    read = b"".join(handle.pread(4 << 20, at) for at in range(0, len(content), 4 << 20))
    assert read == content, f"{export}: content"
    one = extents(handle, 0, SIZE, nbd.CMD_FLAG_REQ_ONE)
    assert len(one) == len(contexts) and all(len(list_) == 1 for list_ in one.values())
    handle.shutdown()


verify(VOLUME, bytes(model.bytes), model.stored, model.dirty)
for name, (content, stored, dirty) in kept.items():
    verify(f"{VOLUME}@{name}", content, stored, dirty)

# An incremental backup: what s0 held, and of s3 what is dirty since.
backup = bytearray(kept["s0"][0])
newer = connect(f"{VOLUME}@s3", "cairn:dirty:s0")
for block, flag in enumerate(map_of(newer, "cairn:dirty:s0")):
    if flag & 1:
        backup[block * BLOCK:(block + 1) * BLOCK] = newer.pread(BLOCK, block * BLOCK)
assert bytes(backup) == kept["s3"][0], "the backup is what the snapshot holds"

# Unaligned questions, and ones that make no sense.
assert sum(count for count, _ in extents(handle, 1000, 5000)[nbd.CONTEXT_BASE_ALLOCATION]) == 5000
handle.set_strict_mode(0)
assert refused(errno.EINVAL, extents, handle, SIZE, BLOCK)
refused(errno.ENOTSUP, handle.zero, BLOCK, 0, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
handle.cache(SIZE, 0)
refused(errno.EINVAL, handle.cache, BLOCK, SIZE)
assert len(handle.pread(8 << 20, 5, nbd.CMD_FLAG_DF)) == 8 << 20

# A snapshot is read only, whoever asks.
snapshot = connect(f"{VOLUME}@s1", nbd.CONTEXT_BASE_ALLOCATION)
assert snapshot.is_read_only() and snapshot.can_multi_conn() and not snapshot.can_trim() and not snapshot.can_zero()
snapshot.set_strict_mode(0)
refused(errno.EPERM, snapshot.pwrite, b"x" * 512, 0)
refused(errno.EPERM, snapshot.trim, BLOCK, 0)
refused(errno.EPERM, snapshot.zero, BLOCK, 0)
snapshot.flush()

# Deleted, it is gone for those who have it open; the context of others that named it says that all may have changed.
since = connect(f"{VOLUME}@s2", "cairn:dirty:s1")
before = map_of(since, "cairn:dirty:s1")
cairn("snapshot", "delete", f"{VOLUME}@s1")
refused(errno.ESHUTDOWN, snapshot.pread, 512, 0)
after = map_of(since, "cairn:dirty:s1")
assert all(new >= old for old, new in zip(before, after)), "it may say more, never less"
assert refused(errno.ENOENT, connect, f"{VOLUME}@s1")
listed = nbd.NBD()
listed.set_opt_mode(True)
listed.connect_uri(f"{SERVER}/{VOLUME}")
contexts, exports = [], {}
listed.opt_list_meta_context(lambda name: contexts.append(name) or 0)
listed.opt_list(lambda name, description: exports.__setitem__(name, description) or 0)
listed.opt_abort()
assert contexts == ["base:allocation", *(f"cairn:dirty:{name}" for name in ("s0", "s2", "s3"))], contexts
names = {name for name in exports if name.startswith(VOLUME)}
assert names == {VOLUME, *(f"{VOLUME}@{name}" for name in ("s0", "s2", "s3"))}, exports
assert exports[f"{VOLUME}@s0"] == f"Cairn snapshot {VOLUME}@s0, {SIZE} bytes"
verify(VOLUME, bytes(model.bytes), model.stored, {name: bits for name, bits in model.dirty.items() if name != "s1"})

# After a rollback the newer snapshots are no part of the volume's history: it has no context for them.
cairn("snapshot", "rollback", f"{VOLUME}@s2")
content, stored, dirty = kept["s2"]
verify(VOLUME, content, stored, {"s0": dirty["s0"], "s2": [False] * (SIZE // BLOCK)})
assert not connect(VOLUME, "cairn:dirty:s3").can_meta_context("cairn:dirty:s3")
