"""Bytes at offsets, the superblock that counts, segments, records; and what is wrong with them."""

import fcntl
import hashlib
import os
import struct

from .bad import Bad, all_zero, require
from .formats import (
    BLOCK, CHECKPOINT, FOREVER, INSTALL, KIB, LEAF, MIB, MOVE, MOVED, RECORD, RECORD_MAX, STREAMS, UNIT, WRITE, Record, Segment, entry_at, round_up,
    segment_at, sums_of, superblock_at,
)
from .sums import crc32c


class Device:
    """Bytes at offsets. What cannot be read is remembered and comes back as zeroes."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(self.file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Bad("in use: stop the store that has it open, it changes what is read") from None
        self.size = os.lseek(self.file, 0, os.SEEK_END)
        self.unreadable = {}

    def read(self, offset, length):
        try:
            data = os.pread(self.file, length, offset)
            if len(data) == length:
                return data
        except OSError:
            pass
        return b"".join(self.read_piece(at, min(BLOCK, offset + length - at))
                        for at in range(offset, offset + length, BLOCK))

    def read_piece(self, offset, length):
        try:
            data = os.pread(self.file, length, offset)
        except OSError as error:
            self.unreadable[offset] = f"cannot be read: {error.strerror}"
            return bytes(length)
        if len(data) < length:
            self.unreadable[offset] = "lies behind the end of the device"
        return data.ljust(length, b"\0")


class Damage:
    """Something is wrong: what, and where if that is known."""

    LABEL = "DAMAGE"

    def __init__(self, what, segment=None, offset=None, device_offset=None):
        self.what, self.segment, self.offset, self.device_offset = what, segment, offset, device_offset

    def as_json(self):
        return {key: value for key, value in vars(self).items() if value is not None}

    def __str__(self):
        place = "" if self.device_offset is None else f"at byte {self.device_offset} of the device"
        if self.segment is not None:
            place += f", segment {self.segment} offset {self.offset}"
        return f"{place}: {self.what}" if place else self.what


class LeftOut(Damage):
    """Nothing is wrong with it, and it could not be read."""

    LABEL = "LEFT OUT"


class Reader:
    """A device, its superblock, its segments; and what was found to be wrong."""

    def __init__(self, path):
        self.device = Device(path)
        self.damage, self.notes = [], []
        self.superblock = self.read_superblocks()
        self.block = self.superblock.block
        self.segments, self.free = [], 0
        for number in range(self.superblock.segments):
            self.read_segment_header(number)

    def read_superblocks(self):
        slots, self.slots = [], {}
        for slot, offset in ((0, 0), (1, 64 * KIB)):
            self.read_slot(slot, offset, slots)
        size = max(slots, key=lambda good: good.counter).size if slots else self.device.size // BLOCK * BLOCK
        for slot, offset in ((2, size - 128 * KIB), (3, size - 64 * KIB)):
            self.read_slot(slot, offset, slots)
        if not slots:
            raise Bad("not a Cairn device: there is no good superblock at either end ("
                      + ", ".join(f"S{slot}: {verdict}" for slot, verdict in self.slots.items()) + ")")
        if len({good.store for good in slots}) > 1:
            raise Bad("its superblocks are of different stores")
        return max(slots, key=lambda good: good.counter)

    def read_slot(self, slot, offset, slots):
        if offset < 0:
            self.slots[slot] = "outside of the device"
            return
        try:
            slots.append(superblock_at(self.device.read(offset, BLOCK), slot))
            self.slots[slot] = f"good, update {slots[-1].counter}"
        except Bad as bad:
            self.slots[slot] = str(bad)
            self.damage.append(Damage(f"superblock S{slot}: {bad}", device_offset=offset))

    def place_of(self, segment, offset):
        return MIB + segment * self.superblock.segment_size + offset

    def damaged(self, segment, offset, what):
        self.damage.append(Damage(what, segment, offset, self.place_of(segment, offset)))

    def read_segment_header(self, number):
        data = self.device.read(self.place_of(number, 0), self.block)
        try:
            segment = segment_at(data, number, self.superblock)
        except Bad as bad:
            segment = self.guessed(number, data)
            self.damaged(number, 0, f"segment header: {bad}; " + (
                "it was made out from the first record" if segment else "what is in this segment cannot be told"))
            if segment is None:
                return
        if segment is None:
            self.free += 1
        else:
            self.segments.append(segment)

    def guessed(self, number, header):
        """A segment whose header is not good, by its first record: that proves the generation, as it stands in the header or
        with one bit turned."""
        first = self.device.read(self.place_of(number, self.block), 80)
        generation, = struct.unpack_from("<Q", header, 16)
        for guess in [generation] + [generation ^ 1 << bit for bit in range(64)]:
            # A cold segment begins with moves, a checkpoint segment with a checkpoint record, and no other does.
            segment = Segment(number, guess, 0, 0, 0, first[6], {MOVE: 1, CHECKPOINT: 2}.get(first[4], 0))
            try:
                record = self.record_at(segment, self.block)
            except Bad:
                continue
            return segment._replace(first=record.sequence, incarnation=record.incarnation)
        return None

    def segments_of(self, shard):
        """[(segment, its records are below this sequence)], those of a stream in their order, without those given up."""
        found = []
        for stream in STREAMS:
            ordered = sorted((s for s in self.segments if s.shard == shard and s.stream == stream),
                             key=lambda s: (s.first, s.generation))
            kept, highest = [], 0
            for index, segment in enumerate(ordered):
                behind = ordered[index + 1] if index + 1 < len(ordered) else None
                if segment.generation < highest or (behind and behind.first == segment.first):
                    continue
                highest = segment.generation
                kept.append(segment)
            found += [(segment, behind.first if behind else FOREVER)
                      for segment, behind in zip(kept, kept[1:] + [None])]
        return found

    def record_at(self, segment, offset, data=None):
        """The record there. Bad says why there is none."""
        room = self.superblock.segment_size - offset
        header = self.device.read(self.place_of(segment.number, offset), min(room, 4 * KIB)) if data is None else data
        require(len(header) >= 80, "the segment ends")
        (magic, kind, flags, shard, zero, length, entries_length, count, zeroes, sequence, durable, incarnation, _wall, zero_2,
         digest) = RECORD.unpack_from(header)
        require(magic == b"CRec", "no record")
        entries_end = 80 + entries_length
        data_start = round_up(entries_end, self.block)
        require(kind <= MOVE and not flags and not zero and not zero_2 and all_zero(zeroes)
                and shard == segment.shard, "a record's header is malformed")
        require(length % self.block == 0 and data_start <= length <= min(RECORD_MAX, room), "a record's length is wrong")
        if data_start > len(header):
            header = self.device.read(self.place_of(segment.number, offset), data_start)
        place = struct.pack("<IIQ", segment.number, offset, segment.generation)
        hashed = hashlib.blake2s(self.superblock.store + place, key=self.superblock.key, digest_size=16)
        hashed.update(header[:64])
        hashed.update(header[80:entries_end])
        require(hashed.digest() == digest, "a record's keyed hash is wrong")
        require(durable < sequence < FOREVER - 1 and all_zero(header[entries_end:data_start]), "a record is malformed")
        return self.with_entries(Record(segment, offset, length, kind, sequence, durable, incarnation, ()),
                                 header[:entries_end], count, data_start)

    def with_entries(self, record, header, count, data_start):
        at, data, entries = 80, data_start, []
        while at < len(header):
            entry, at = entry_at(header, at, record.kind)
            entries.append(entry._replace(data=self.place_of(record.segment.number, record.offset + data)))
            data += entry.length
        require(len(entries) == count, "the number of entries is wrong")
        require(round_up(data, self.block) == record.length, "a record's length is not what its data needs")
        return record._replace(entries=entries)

    def walk(self, segment):
        """All records of a segment, and [(start, end, claimed sequence, why)] of what lies between and behind them."""
        records, gaps = [], []
        offset, size = self.block, self.superblock.segment_size
        while offset < size:
            try:
                records.append(self.record_at(segment, offset))
                offset += records[-1].length
            except Bad as bad:
                found = self.next_record(segment, offset + self.block)
                gaps.append((offset, found, *self.claim(segment, offset, bad)))
                offset = found
        return records, gaps

    def claim(self, segment, offset, bad):
        """Which sequence a record that does not count says it has, or None; and why it does not count."""
        header = self.device.read(self.place_of(segment.number, offset), min(80, self.superblock.segment_size - offset))
        claimed = struct.unpack_from("<Q", header, 24)[0] if len(header) == 80 and header[:4] == b"CRec" else None
        return claimed, "all zero" if all_zero(header) else str(bad)

    def next_record(self, segment, offset):
        """Where the next valid record begins; the segment's size if there is none."""
        size = self.superblock.segment_size
        while offset < size:
            window = self.device.read(self.place_of(segment.number, offset), min(MIB, size - offset))
            at = window.find(b"CRec")
            while at >= 0:
                if at % self.block == 0:
                    try:
                        self.record_at(segment, offset + at)
                        return offset + at
                    except Bad:
                        pass
                at = window.find(b"CRec", at + 1)
            offset += len(window)
        return size

    def check_data(self, record, report):
        """Whether all blocks, leaves and padding of a record are right; calls report(device offset, what) where not."""
        start = self.place_of(record.segment.number, record.offset)
        data = self.device.read(start, record.length)
        good, end = True, max([80] + [entry.data - start + entry.length for entry in record.entries])

        def wrong(at, what):
            nonlocal good
            good = False
            report(start + at, what)

        for entry in record.entries:
            at = entry.data - start
            if entry.kind in (WRITE, INSTALL, MOVED):
                for index, (crc, stored) in enumerate(sums_of(entry)):
                    length = (stored & 15) * UNIT
                    if crc32c(data[at:at + length]) != crc:
                        wrong(at, f"the sum of block {entry.first + index} of chunk {entry.chunk}, layer {entry.layer}, is wrong")
                    at += length
            elif entry.kind == LEAF:
                length, crc = struct.unpack("<II", entry.payload)
                if crc32c(data[at:at + length]) != crc or not all_zero(data[at + length:at + entry.length]):
                    wrong(at, f"the sum of the leaf of chunk {entry.chunk}, layer {entry.layer}, is wrong")
        if any(entry.length for entry in record.entries) and not all_zero(data[end:]):
            wrong(end, "the zeroes behind a record's data are not zero")
        return good
