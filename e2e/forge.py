"""Another content for blocks of a copy, with every sum of it right, as if it had gone wrong in memory before it was summed.

    python3 e2e/forge.py DEVICE LAYER BYTE...      the device of a node that is stopped; of each chunk one block

A block's data changes by one bit; so does its crc32c wherever the index has it from (the record that brought it, and the leaf
of the last pass), and the keyed hashes of those records.
"""

import hashlib
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))

from read_device.contents import Contents
from read_device.device import Reader
from read_device.formats import BLOCK, CHUNK_BLOCKS, INSTALL, LEAF, MOVED, RECORD, UNIT, WRITE
from read_device.sums import crc32c

RECORD_BYTES = 80


def replaced(data, old, new):
    """`data` with the one place changed where a sum stands."""
    old, new = struct.pack("<I", old), struct.pack("<I", new)
    assert data.count(old) == 1, f"the sum stands there {data.count(old)} times"
    return data.replace(old, new)


class Forger:
    def __init__(self, path):
        self.reader = Reader(path)
        self.contents = Contents(self.reader)
        self.file = os.open(path, os.O_RDWR)
        # Also those before the last pass, whose blocks it names.
        self.records = [record for segment in self.reader.segments for record in self.reader.walk(segment)[0]]

    def read(self, at, length):
        return os.pread(self.file, length, at)

    def write(self, at, data):
        assert os.pwrite(self.file, data, at) == len(data)

    def forge(self, layer, byte):
        chunk, block = divmod(byte // BLOCK, CHUNK_BLOCKS)
        location, stored, old = self.contents.leaves[layer, chunk].get(block)
        at, length = location * UNIT, (stored & 15) * UNIT
        data = bytearray(self.read(at, length))
        assert location > 1 and crc32c(bytes(data)) == old, "there is no such block, or it is damaged already"
        data[0] ^= 1
        new = crc32c(bytes(data))
        self.write(at, bytes(data))
        for record in self.records:
            for entry in record.entries:
                if entry.kind == LEAF and (entry.layer, entry.chunk) == (layer, chunk):
                    self.seal(record, entry.payload, self.leaf(entry, (old, new)))
                elif entry.kind in (WRITE, INSTALL, MOVED) and entry.data <= at < entry.data + entry.length:
                    sums = replaced(entry.payload[:4 * entry.blocks], old, new)
                    self.seal(record, entry.payload, sums + entry.payload[4 * entry.blocks:])
        return at

    def leaf(self, entry, sums):
        """The payload of a leaf's entry, when the leaf has the other sum."""
        length, _crc = struct.unpack("<II", entry.payload)
        leaf = self.read(entry.data, length)
        if struct.pack("<I", sums[0]) not in leaf:
            # Of an earlier pass, or before the block was written.
            return entry.payload
        leaf = replaced(leaf, *sums)
        self.write(entry.data, leaf)
        return struct.pack("<II", length, crc32c(leaf))

    def seal(self, record, old, new):
        """The record with another payload of one entry, and its keyed hash anew."""
        at = self.reader.place_of(record.segment.number, record.offset)
        header = self.read(at, record.length)
        fields = RECORD.unpack_from(header)
        entries_end = RECORD_BYTES + fields[6]
        entries = header[RECORD_BYTES:entries_end]
        assert entries.count(old) == 1, "which entry it is cannot be told"
        entries = entries.replace(old, new)
        superblock, segment = self.reader.superblock, record.segment
        place = struct.pack("<IIQ", segment.number, record.offset, segment.generation)
        hashed = hashlib.blake2s(superblock.store + place, key=superblock.key, digest_size=16)
        hashed.update(header[:64])
        hashed.update(entries)
        self.write(at, header[:64] + hashed.digest() + entries)
        # Raises if it is not right.
        self.reader.record_at(segment, record.offset)


if __name__ == "__main__":
    forger = Forger(sys.argv[1])
    for byte in sys.argv[3:]:
        print(byte, "at", forger.forge(int(sys.argv[2]), int(byte)))
