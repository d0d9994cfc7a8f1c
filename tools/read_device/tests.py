#!/usr/bin/env python3
"""What the store does not write every day, read from examples: golden bytes of every structure, leaves of each shape,
lz4, moves, merges. `make test` runs it."""

import os
import random
import struct
import sys
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, TOOLS)

from read_device.bad import Bad
from read_device.contents import Contents
from read_device.device import Reader
from read_device.formats import (
    ABSENT, BLOCK, CHUNK_BLOCKS, INSTALL, INSTALL_BEGIN, INSTALL_END, INSTALL_ZERO, KINDS, LAYER, LAYER_DELETE, LOG, MEMBER_STATE, MERGE, MOVE, MOVED, SKIP, WRITE, ZERO,
    ZEROES, Entry, Record, Root, Pointer,
    Segment, Superblock, layer_from, leaf_from, segment_at, superblock_at,
)
from read_device.lz4 import lz4_decode
from read_device.shard import Shard
from read_device.sums import CRC_TABLE, crc32c

GOLDEN = os.path.join(TOOLS, "../crates/store/tests/golden.txt")
SEGMENT = Segment(5, 77, 1, 1, 0, 3, 0)
RECORD_OFFSET = 8192


def golden():
    """{name: its first 1,024 bytes}."""
    samples = {}
    with open(GOLDEN, encoding="ascii") as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            name, _, words = line.rpartition(": ")
            data = b""
            for word in words.split():
                byte, _, count = word.partition("*")
                data += bytes.fromhex(byte) * int(count or 1)
            samples[name] = data
    return samples


class FromBytes:
    """A device of one record."""

    def __init__(self, at, data):
        self.at, self.data = at, data

    def read(self, offset, length):
        return self.data[offset - self.at:offset - self.at + length].ljust(length, b"\0")


def reader_of(data):
    reader = Reader.__new__(Reader)
    reader.superblock = Superblock(0, bytes.fromhex("ffeeddccbbaa99887766554433221100"), b"", 1 << 40, 1 << 26, 100, 512, 8,
                                   1, 2, 0, 0, bytes(range(0xa0, 0xc0)), [Root(0, *[Pointer(0, 0, 0, 0)] * 3, 0, 0)] * 8, 0)
    reader.block, reader.damage, reader.notes, reader.segments = 512, [], [], []
    reader.device = FromBytes(reader.place_of(SEGMENT.number, RECORD_OFFSET), data)
    return reader


class Golden(unittest.TestCase):
    def test_every_record_is_valid_and_of_its_kind(self):
        found = set()
        for name, data in golden().items():
            if not name.startswith("record"):
                continue
            record = reader_of(data).record_at(SEGMENT, RECORD_OFFSET)
            found |= {entry.kind for entry in record.entries}
            for at in range(0, 80 + 80 * len(record.entries), 7):
                spoilt = data[:at] + bytes([data[at] ^ 4]) + data[at + 1:]
                with self.assertRaises(Bad, msg=f"{name}, byte {at}"):
                    reader_of(spoilt).record_at(SEGMENT, RECORD_OFFSET)
        self.assertEqual(found, set(KINDS))

    def test_the_headers(self):
        samples = golden()
        reader = reader_of(b"")
        self.assertEqual(segment_at(samples["segment header"][:512], 5, reader.superblock).generation, 77)
        with self.assertRaises(Bad):
            segment_at(samples["segment header"][:512], 6, reader.superblock)
        self.assertEqual(samples["superblock"][:8], b"CairnSup")
        with self.assertRaises(Bad):
            superblock_at(samples["superblock"].ljust(BLOCK, b"\0"), 1)

    def test_the_leaves_that_fit(self):
        for shape in ("empty", "runs"):
            data = golden()[f"record, leaf ({shape})"]
            entry, = reader_of(data).record_at(SEGMENT, RECORD_OFFSET).entries
            length, crc = struct.unpack("<II", entry.payload)
            leaf_bytes = data[512:512 + length]
            self.assertEqual(crc32c(leaf_bytes), crc)
            self.assertEqual(any(leaf_from(leaf_bytes).places), shape != "empty")


class Sums(unittest.TestCase):
    def test_known_and_against_the_table(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc32c(bytes(32)), 0x8A9136AA)
        generator = random.Random(1)
        for length in (*range(4, 90), 512, 2576, 3584, BLOCK):
            data = generator.randbytes(length)
            crc = 0xFFFFFFFF
            for byte in data:
                crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
            self.assertEqual(crc32c(data), crc ^ 0xFFFFFFFF, length)


class Lz4(unittest.TestCase):
    def test_literals_matches_overlaps_and_long_lengths(self):
        self.assertEqual(lz4_decode(b"\x50hello", 5), b"hello")
        # 1 literal, then 4 + 15 + 255 + 10 bytes from 1 back; 5 literals end it.
        block = b"\x1fa\x01\x00\xff\x0a" + b"\x50hello"
        self.assertEqual(lz4_decode(block, 290), b"a" * 285 + b"hello")
        # "abcd", 6 bytes from 4 back, then 15 + 5 literals.
        self.assertEqual(lz4_decode(b"\x42abcd\x04\x00\xf0\x05" + b"x" * 20, 30), b"abcdabcdab" + b"x" * 20)
        for wrong in (b"\x50hell", b"\x1fa\x02\x00\x00\x00", b"\x1fa\x00\x00\x00\x00", b"\xf0", b"\x10a\x01", b"\x50hello!"):
            with self.assertRaises(Bad):
                lz4_decode(wrong, 5)


def leaf_bytes(shape, blocks, last_sequence=9):
    """Column shapes: blocks is {number: (location, crc, stored)}."""
    row = [blocks.get(number, (0, 0, 0)) for number in range(CHUNK_BLOCKS)]
    stored = sum(location > ZEROES for location, _, _ in row)
    data = struct.pack("<QHHB3x", last_sequence, stored, 0, shape)
    data += b"".join(location.to_bytes(5, "little") for location, _, _ in row)
    data += struct.pack("<256I", *(crc for _, crc, _ in row))
    return data + (bytes(length for _, _, length in row) if shape == 3 else b"")


class Leaves(unittest.TestCase):
    def test_columns(self):
        leaf = leaf_from(leaf_bytes(2, {0: (2048, 7, 8), 255: (1 << 39, 8, 8), 4: (1, 0, 0)}))
        self.assertEqual((leaf.get(0), leaf.get(255)), ((2048, 8, 7), (1 << 39, 8, 8)))
        self.assertEqual((leaf.get(4)[0], leaf.get(5)[0], leaf.last_sequence), (ZEROES, ABSENT, 9))
        leaf = leaf_from(leaf_bytes(3, {3: (2048, 7, 0x13)}))
        self.assertEqual(leaf.get(3), (2048, 0x13, 7))

    def test_runs(self):
        data = struct.pack("<QHHB3x", 9, 3, 2, 1)
        data += bytes([1, 2, 0x12]) + (4096).to_bytes(5, "little") + bytes([9, 1, 0]) + (1).to_bytes(5, "little")
        leaf = leaf_from(data + struct.pack("<III", 10, 11, 12))
        self.assertEqual([leaf.get(block) for block in (1, 2, 3)], [(4096, 0x12, 10), (4098, 0x12, 11), (4100, 0x12, 12)])
        self.assertEqual([leaf.get(block)[0] for block in (0, 9, 10, 11)], [ABSENT, ZEROES, ZEROES, ABSENT])
        with self.assertRaises(Bad):
            leaf_from(data)


def entry(kind, sequence=0, commit=0, first=0, blocks=0, layer=1, payload=b"", data=0, hides_below=False, epoch=1):
    return Entry(kind, hides_below, first, blocks, 7, epoch, sequence, commit, layer, 0, 0, payload, data, 0)


def write(sequence, first, locations, commit=0, epoch=1):
    """Blocks that lie one after the other from a location on."""
    payload = struct.pack(f"<{len(locations)}I", *locations) + b"\x08" * len(locations)
    return entry(WRITE, sequence, commit, first, len(locations), payload=payload, data=locations[0] * 512, epoch=epoch)


def moved(first, location, old, layer=1):
    payload = struct.pack("<I", location) + b"\x08" + old.to_bytes(5, "little")
    return entry(MOVED, first=first, blocks=1, payload=payload, data=location * 512, layer=layer)


def replayed(*steps, layers=(), committed_only=False):
    """A shard after a log of one entry per record."""
    shard = Shard.__new__(Shard)
    shard.reader, shard.number = reader_of(b""), 0
    shard.root = shard.reader.superblock.roots[0]
    shard.groups, shard.leaves, shard.layers, shard.merged, shard.ended = {}, {}, {}, {}, {}
    shard.gaps, shard.accepted = [], []
    for number, parent in layers:
        shard.layers[number] = layer_from(struct.pack("<QQQQQI20x", number, parent, 1, 0, 0, 0))
    shard.records = {number: Record(SEGMENT, 0, 512, MOVE if step.kind == MOVED else LOG, number, number - 1, 1, [step])
                     for number, step in enumerate(steps, 1)}
    shard.reader.check_data = lambda *_: True
    shard.replay(committed_only)
    return shard


class Replay(unittest.TestCase):
    def place(self, shard, block, layer=1):
        leaf = shard.leaves.get((layer, 0))
        return leaf.get(block)[0] if leaf else ABSENT

    def test_a_move_counts_only_where_the_index_says_the_old_place(self):
        shard = replayed(write(1, 0, [4000]), write(2, 1, [5000]), write(3, 1, [6000]), moved(0, 9000, 4000), moved(1, 9100, 5000))
        self.assertEqual((self.place(shard, 0), self.place(shard, 1)), (9000, 6000))
        # The place is used again by the same block: the move came before.
        shard = replayed(write(1, 0, [4000]), moved(0, 9000, 4000), write(2, 0, [4000]))
        self.assertEqual(self.place(shard, 0), 4000)
        # What says that the write is committed comes behind the move.
        shard = replayed(write(1, 0, [4000]), moved(0, 9000, 4000), write(2, 3, [7000], commit=1), committed_only=True)
        self.assertEqual((self.place(shard, 0), self.place(shard, 3)), (9000, ABSENT))

    def test_zeroes_and_tombstones(self):
        shard = replayed(write(1, 0, [4000, 4008, 4016]), entry(ZERO, 2, first=0, blocks=1),
                         entry(ZERO, 3, first=1, blocks=1, hides_below=True))
        self.assertEqual([self.place(shard, block) for block in range(3)], [ABSENT, ZEROES, 4016])

    def test_an_epoch_owns_what_comes_behind_its_start(self):
        start = entry(3, sequence=2, epoch=2, layer=0)
        shard = replayed(write(1, 0, [4000]), write(2, 1, [5000]), start, write(3, 2, [6000], epoch=2))
        self.assertEqual([self.place(shard, block) for block in range(3)], [4000, ABSENT, 6000])

    def test_an_older_epoch_takes_the_place_of_what_was_cut(self):
        steps = write(1, 0, [4000]), entry(3, sequence=2, epoch=3, layer=0), write(3, 1, [5000], epoch=3), write(2, 2, [6000], epoch=2)
        shard = replayed(*steps)
        self.assertEqual([self.place(shard, block) for block in range(3)], [4000, ABSENT, 6000])
        # Not where it was committed.
        shard = replayed(*steps[:3], write(4, 3, [7000], commit=3, epoch=3), write(3, 2, [6000], epoch=2))
        self.assertEqual([self.place(shard, block) for block in range(4)], [4000, 5000, ABSENT, 7000])

    def test_what_was_carried_is_where_it_was(self):
        steps = write(1, 0, [4000]), write(2, 1, [5000]), write(3, 0, [6000])
        def places(*steps, **options):
            shard = replayed(*steps, **options)
            return [self.place(shard, block) for block in range(3)], shard.groups[7].prepared
        carried = write(1, 0, [7000])._replace(carried=True)
        # Beside its first, and without it; what comes behind it stays, and counts later.
        for steps in (steps, steps[1:]):
            self.assertEqual(places(*steps, carried), ([6000, 5000, ABSENT], 3))
        self.assertEqual(places(*steps, carried, write(4, 2, [8000], commit=1), committed_only=True), ([7000, ABSENT, ABSENT], 4))
        # Not where it is committed already, nor where it was cut.
        said = write(4, 2, [8000], commit=1)
        self.assertEqual(places(write(1, 0, [4000]), *steps, said, carried, committed_only=True), ([4000, ABSENT, ABSENT], 4))

    def test_a_leaf_is_installed(self):
        begin, zero = entry(INSTALL_BEGIN, commit=1), entry(INSTALL_ZERO, commit=1, first=9, blocks=1, hides_below=True)
        install = write(0, 0, [8000, 8008], commit=1)._replace(kind=INSTALL)
        def end(last, commit=1):
            return entry(INSTALL_END, commit=commit, payload=struct.pack("<Q", last))
        old = write(1, 1, [4000, 4008])
        def places(*steps):
            shard = replayed(old, *steps)
            leaf = shard.leaves.get((1, 0))
            return leaf and ([leaf.get(block)[0] for block in (0, 1, 2, 9)], leaf.last_sequence, leaf.untrusted)
        self.assertEqual(places(begin, install, zero, end(1)), ([8000, 8008, ABSENT, ZEROES], 1, False))
        self.assertEqual(places(begin, install), ([8000, 8008, ABSENT, ABSENT], 0, True))
        self.assertEqual(places(install, end(5)), ([ABSENT, 4000, 4008, ABSENT], 1, False))
        self.assertIsNone(places(begin, end(0)))
        self.assertTrue(places(begin, install, end(0))[2])
        kept = begin._replace(keeps=True)
        self.assertEqual(places(kept, zero), ([ABSENT, 4000, 4008, ZEROES], 0, True))
        self.assertEqual(places(kept, install, end(1)), ([8000, 8008, 4008, ABSENT], 1, False))
        # Prepared before the begin, among the rest, and committed behind the end.
        late = write(2, 2, [5000])
        said = entry(7, sequence=3, commit=2, layer=0)
        for steps in ((late, begin, install, end(1)), (begin, late, install, end(1)), (begin, install, end(1), late)):
            self.assertEqual(places(*steps), ([8000, 8008, 5000, ABSENT], 2, False))
            self.assertEqual(places(*steps, said), ([8000, 8008, 5000, ABSENT], 2, False))
        # Committed before the end, which does not hold it; and which does.
        self.assertEqual(places(begin, late, install, said, end(1, 2)), ([8000, 8008, ABSENT, ABSENT], 2, True))
        self.assertEqual(places(begin, late, install, said, end(2, 2)), ([8000, 8008, ABSENT, ABSENT], 2, False))

    def test_the_last_state_of_a_member_counts(self):
        steps = entry(MEMBER_STATE, 1, payload=b"one", epoch=0), entry(MEMBER_STATE, 2, payload=b"two", epoch=0)
        self.assertEqual(replayed(*steps).groups[7].member_state, (2, b"two"))

    def test_what_was_skipped_is_void(self):
        def skip(through, commit, *epochs):
            # Epoch 0: a term is its mark.
            payload = struct.pack("<QIIII", through, len(epochs), 1, 1, 0) + b"".join(struct.pack("<IIQ", 0, *one) for one in epochs)
            return entry(SKIP, commit=commit, epoch=0, layer=0, payload=payload + struct.pack("<QI4x", 5, 2) + b"r")
        def places(*steps, **options):
            shard = replayed(write(1, 0, [4000]), write(2, 1, [5000]), write(3, 2, [6000]), *steps, **options)
            group = shard.groups[7]
            self.assertEqual(shard.reader.damage, [])
            return [self.place(shard, block) for block in range(4)], group.committed, group.prepared
        # The last two were not applied; one of them, and others behind, are skipped. What follows counts.
        behind = write(10, 3, [7000], commit=9, epoch=2)
        self.assertEqual(places(skip(9, 1, (1, 1), (2, 4))), ([4000, ABSENT, ABSENT, ABSENT], 9, 9))
        self.assertEqual(places(skip(9, 1, (1, 1), (2, 4)), behind), ([4000, ABSENT, ABSENT, 7000], 9, 10))
        self.assertEqual(places(skip(9, 1, (2, 4)), behind, committed_only=True), ([4000, ABSENT, ABSENT, ABSENT], 9, 10))
        self.assertEqual(places(skip(2, 1, (1, 1))), ([4000, ABSENT, ABSENT, ABSENT], 2, 2))
        # An entry of an epoch that was over where the member went on.
        self.assertEqual(places(skip(9, 1, (2, 4)), write(10, 3, [7000], epoch=1))[0], [4000, ABSENT, ABSENT, ABSENT])
        # All of it was committed already: nothing is void.
        self.assertEqual(places(skip(2, 2, (1, 1))), ([4000, 5000, 6000, ABSENT], 2, 3))
        group = replayed(write(1, 0, [4000]), skip(9, 1, (1, 1), (2, 4))).groups[7]
        self.assertEqual((group.epochs, group.volumes), ({1: 1, 2: 4}, {5: 2}))

    def test_behind_a_hole_nothing_counts(self):
        shard = replayed(write(1, 0, [4000]), write(3, 1, [5000]))
        self.assertEqual([self.place(shard, block) for block in range(2)], [4000, ABSENT])

    def test_a_merge_gives_what_the_taking_layer_does_not_have(self):
        upper = write(2, 1, [5000])._replace(layer=2)
        upper_zero = entry(ZERO, 3, first=2, blocks=1, layer=2, hides_below=True)
        into = struct.pack("<QI", 2, 0)
        merge = entry(MERGE, 4, layer=1, payload=into)
        moves = moved(0, 9000, 4000, layer=1), moved(1, 9100, 4008, layer=1)
        end = entry(LAYER_DELETE, 5, layer=1)
        steps = write(1, 0, [4000, 4008, 4016]), upper, upper_zero
        for ending in ((), (end,)):
            shard = replayed(*steps, merge, *moves, *ending, layers=((1, 0), (2, 1)))
            self.assertEqual([self.place(shard, block, 2) for block in range(3)], [9000, 5000, ABSENT])
            self.assertNotIn((1, 0), shard.leaves)
            self.assertEqual(shard.chain(2), [2] if ending else [2, 1])
        chain = replayed(entry(LAYER_DELETE, 1, layer=2), entry(LAYER_DELETE, 2, layer=2), layers=((1, 0), (2, 1), (3, 2))).chain(3)
        self.assertEqual(chain, [3, 1], "told by two groups")
        shard = replayed(*steps, merge._replace(hides_below=True), layers=((1, 0), (2, 1)))
        self.assertEqual(self.place(shard, 2, 2), ZEROES)

    def test_a_pass_that_was_under_way_when_a_layer_ended_names_it_once_more(self):
        def state(number, parent):
            record = struct.pack("<QQQQQI20x", number, parent, 1, 0, 0, 0)
            return entry(LAYER, number, layer=number, payload=record)
        shard = replayed(state(1, 0), state(2, 1)._replace(sequence=2), entry(LAYER_DELETE, 3, layer=3),
                         state(3, 2)._replace(sequence=4), state(4, 3)._replace(sequence=5))
        self.assertEqual(shard.chain(4), [4, 2, 1])

    def test_a_deleted_layer_is_gone_chunk_by_chunk(self):
        other = write(2, 0, [5000])._replace(chunk=5)
        shard = replayed(write(1, 0, [4000]), other, entry(LAYER_DELETE, 3, layer=1, payload=struct.pack("<I", 5)))
        self.assertEqual(list(shard.leaves), [(1, 0)])

    def test_a_layer_shows_its_parents_where_it_has_nothing(self):
        upper = write(2, 0, [5000])._replace(layer=2)
        hides = entry(ZERO, 3, first=1, blocks=1, layer=2, hides_below=True)
        shard = replayed(write(1, 0, [4000, 4008, 4016]), upper, hides, layers=((1, 0), (2, 1)))
        places = [found and found[1] for found in (shard.block(shard.chain(2), 0, block) for block in range(4))]
        self.assertEqual(places, [5000, None, 4016, None])


class Fetch(unittest.TestCase):
    """One block at byte 1 MiB, stored as the codec says."""

    def fetch(self, compressed, codec, key=0):
        data = (len(compressed).to_bytes(2, "little") + compressed).ljust(512, b"\0")
        contents = Contents.__new__(Contents)
        contents.reader = reader_of(b"")
        contents.reader.device = FromBytes(1 << 20, data)
        contents.layers = {1: layer_from(struct.pack("<QQQQQI20x", 1, 0, 1, 0, 0, key))}
        return contents.fetch(1, 2048, codec << 4 | 1, crc32c(data))

    def test_lz4_is_undone_and_what_cannot_be_is_said(self):
        # One literal, then 4,090 bytes from 1 back, then 5 literals.
        block = b"\x1fa\x01\x00" + b"\xff" * 15 + bytes([4090 - 4 - 15 - 15 * 255]) + b"\x50bcdef"
        self.assertEqual(self.fetch(block, 1), b"a" * 4091 + b"bcdef")
        for arguments, why in (((block, 2), "zstd"), ((block, 1, 9), "encrypted"), ((block[:-1], 1), "lz4")):
            with self.assertRaisesRegex(Bad, why):
                self.fetch(*arguments)


if __name__ == "__main__":
    unittest.main()
