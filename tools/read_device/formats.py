"""Each structure on the device, from bytes. docs/formats.md says what they mean."""

import hashlib
import struct
from array import array
from collections import namedtuple

from .bad import all_zero, require

KIB, MIB = 1 << 10, 1 << 20
BLOCK, CHUNK_BLOCKS, UNIT = 4096, 256, 512
VERSION = 1
RECORD_MAX = MIB
MEMBER_STATE_MAX = 4 * KIB
SKIP_MAX, SKIP_EPOCHS_MAX = 120 * KIB, 4096
FOREVER = 1 << 64
ABSENT, ZEROES = 0, 1
CODECS = {0: "raw", 1: "lz4", 2: "zstd"}
STREAMS = {0: "hot", 1: "cold", 2: "checkpoint"}


Pointer = namedtuple("Pointer", "sequence generation segment offset")
Root = namedtuple("Root", "checkpoint first last replay stop_sequence stops")
Superblock = namedtuple("Superblock", "slot store cluster size segment_size segments block shards incarnation counter "
                        "formatted written key roots compatible")


def pointer_at(data, at):
    pointer = Pointer(*struct.unpack_from("<QQII", data, at))
    require(pointer.sequence or not any(pointer), "a pointer to nothing is not zero")
    return pointer


def superblock_at(data, slot):
    """One slot. Bad says why it does not count; NewerDevice ends everything."""
    require(data[:8] == b"CairnSup", "no superblock" if not all_zero(data) else "all zero")
    require(hashlib.blake2s(data[:4064]).digest() == data[4064:], "its sum is wrong")
    version, number, compatible, read_only, incompatible = struct.unpack_from("<IIQQQ", data, 8)
    if version > VERSION or read_only or incompatible:
        raise NewerDevice(f"version {version}, features {read_only:x}/{incompatible:x}")
    size, segment_size, segments, block, shards = struct.unpack_from("<QIIIB", data, 72)
    formatted, written, incarnation, counter = struct.unpack_from("<QQQQ", data, 96)
    require(version == VERSION and number == slot, "version or slot is wrong")
    require(counter % 2 == slot % 2, "the write counter does not belong into this slot")
    require(all_zero(data[93:96] + data[160:512] + data[512 + 96 * shards:4064]), "unused bytes are not zero")
    require(block in (512, 1024, 2048, 4096) and size % BLOCK == 0 and segment_size and segment_size % MIB == 0
            and segments == (size - 2 * MIB) // segment_size and shards in (1, 2, 4, 8), "its sizes do not belong together")
    roots = []
    for at in range(512, 512 + 96 * shards, 96):
        root = Root(struct.unpack_from("<Q", data, at)[0], *(pointer_at(data, at + 8 + 24 * i) for i in range(3)),
                    *struct.unpack_from("<QI", data, at + 80))
        require(all_zero(data[at + 92:at + 96]), "unused bytes are not zero")
        roots.append(root)
    return Superblock(slot, data[56:72], data[40:56], size, segment_size, segments, block, shards, incarnation, counter,
                      formatted, written, data[128:160], roots, compatible)


class NewerDevice(Exception):
    """A newer build's device: to be left alone."""


Segment = namedtuple("Segment", "number generation first incarnation created shard stream")


def segment_at(data, number, superblock):
    """A segment's header, or None if it was never used."""
    if all_zero(data):
        return None
    require(data[:8] == b"CairnSeg", "no segment header")
    version, segment, generation = struct.unpack_from("<IIQ", data, 8)
    first, incarnation, created, shard, stream = struct.unpack_from("<QQQBB", data, 40)
    place = struct.pack("<IIQ", number, 0, generation)
    digest = hashlib.blake2s(superblock.store + place + data[:96], key=superblock.key, digest_size=16).digest()
    require(digest == data[96:112], "the header's keyed hash is wrong")
    require(version == VERSION and segment == number and data[24:40] == superblock.store, "the header of another segment")
    require(all_zero(data[66:96] + data[112:]) and shard < superblock.shards and stream in STREAMS, "the header is malformed")
    return Segment(number, generation, first, incarnation, created, shard, stream)


# Which of an entry's fields each kind uses: Order, Layer, Chunk, Blocks, Key, Pass, Group, Member (group and commit),
# Number. And in which kind of record.
LOG, CHECKPOINT, OPENING, MOVE = range(4)
WRITE, ZERO, EPOCH_START, VOLUME_EPOCH, GROUP_RECORD, LAYER, NOOP, MERGE, LAYER_DELETE = range(1, 10)
MEMBER_STATE, INSTALL_BEGIN, INSTALL, INSTALL_ZERO, INSTALL_END, SKIP = range(10, 16)
OPEN, MOVED, INSTALL_LAYER = 16, 17, 18
PASS_BEGIN, LEAF, GROUP_STATE, LAYER_STATE, MERGE_STATE, SEGMENTS, PASS_END = range(32, 39)
KINDS = {
    WRITE: ("OLCBK", LOG), ZERO: ("OLCB", LOG), EPOCH_START: ("O", LOG), VOLUME_EPOCH: ("O", LOG), GROUP_RECORD: ("O", LOG),
    LAYER: ("OL", LOG), NOOP: ("O", LOG), MERGE: ("OL", LOG), LAYER_DELETE: ("OL", LOG),
    MEMBER_STATE: ("MN", LOG), INSTALL_BEGIN: ("MLC", LOG), INSTALL: ("MLCBK", LOG), INSTALL_ZERO: ("MLCB", LOG),
    INSTALL_END: ("MLC", LOG), SKIP: ("M", LOG), INSTALL_LAYER: ("ML", LOG),
    OPEN: ("", OPENING), MOVED: ("LCBK", MOVE),
    PASS_BEGIN: ("P", CHECKPOINT), LEAF: ("PLC", CHECKPOINT), GROUP_STATE: ("PG", CHECKPOINT),
    LAYER_STATE: ("P", CHECKPOINT), MERGE_STATE: ("P", CHECKPOINT), SEGMENTS: ("P", CHECKPOINT), PASS_END: ("P", CHECKPOINT),
}

Entry = namedtuple("Entry", "kind hides_below first blocks group epoch sequence commit layer chunk key payload data length keeps carried", defaults=[False, False])
Record = namedtuple("Record", "segment offset length kind sequence durable incarnation entries")
ENTRY = struct.Struct("<IIBBBBHHIIQQIIQIII12s")
RECORD = struct.Struct("<4sBBBBIIH6sQQQQQ16s")


def term(epoch, mark):
    """Epoch and mark of who led in it as one number: in that order they rise."""
    return epoch << 32 | mark


def entry_at(data, at, record_kind):
    """The entry at `at`, without the place of its data; and where the next one begins."""
    require(at + 80 <= len(data), "an entry is cut off")
    (length, payload, kind, flags, ec, first, blocks, zero, group, epoch, sequence, commit, volume_epoch, key, layer, chunk,
     atomic, mark, spare) = ENTRY.unpack_from(data, at)
    epoch = term(epoch, mark)
    require(kind in KINDS and KINDS[kind][1] == record_kind, f"an entry of kind {kind} does not belong here")
    used = KINDS[kind][0]
    require(length == 80 + (payload + 7) // 8 * 8 and at + length <= len(data), "an entry's length is wrong")
    require(not zero and not ec and all_zero(spare) and all_zero(data[at + 80 + payload:at + length]), "padding is not zero")
    known = (1 if kind in (ZERO, INSTALL_ZERO, MERGE) else 0) | (2 if kind == INSTALL_BEGIN else 0) | (4 if "O" in used else 0)
    require(not flags & ~known, "an entry's flags are not known")
    require("O" in used or not (epoch or volume_epoch or atomic), "a field that is not used is not zero")
    require("O" in used or "M" in used or not commit, "a field that is not used is not zero")
    require("O" in used or "G" in used or "M" in used or not group, "a field that is not used is not zero")
    require(("L" in used or not layer) and ("C" in used or not chunk), "a field that is not used is not zero")
    require("B" in used or not (first or blocks), "a field that is not used is not zero")
    require("K" in used or not key, "a field that is not used is not zero")
    require(sequence > commit if "O" in used else ("P" in used or "N" in used) == (sequence > 0), "an entry's sequence is wrong")
    require(first + blocks <= CHUNK_BLOCKS, "an entry's blocks run over their chunk")
    body = data[at + 80:at + 80 + payload]
    data_length = 0
    if kind in (WRITE, INSTALL, MOVED):
        require(payload == (10 if kind == MOVED else 5) * blocks, "a payload's length is wrong")
        stored = body[4 * blocks:5 * blocks]
        require(all(stored_is_sound(byte) for byte in stored), "a stored length is wrong")
        data_length = sum(byte & 15 for byte in stored) * UNIT
    elif kind in (INSTALL_BEGIN, INSTALL_ZERO, INSTALL_END):
        require(payload == (8 if kind == INSTALL_END else 0), "a payload's length is wrong")
    elif kind == MEMBER_STATE:
        require(payload <= MEMBER_STATE_MAX, "a payload's length is wrong")
    elif kind == SKIP:
        state = group_state_from(body)
        require(payload <= SKIP_MAX and len(state.epochs) <= SKIP_EPOCHS_MAX and not state.member, "a skip is too long")
        require(all(first <= state.committed for _, first in state.epochs), "a skip names an epoch that begins behind it")
    elif kind == LEAF:
        require(payload == 8, "a payload's length is wrong")
        data_length = (int.from_bytes(body[:4], "little") + 7) // 8 * 8
    entry = Entry(kind, bool(flags & 1), first, blocks, group, epoch, sequence, commit, layer, chunk, key, body, 0, data_length, bool(flags & 2), bool(flags & 4))
    require(kind not in (MERGE, LAYER_DELETE) or chunks_are_sound(entry), "the chunks of a merge or deletion are malformed")
    return entry, at + length


GroupState = namedtuple("GroupState", "committed epochs volumes record member")


def group_state_from(payload):
    """What a pass, or a skip, says of a group."""
    require(len(payload) >= 24, "a group's state is malformed")
    committed, epochs, volumes, record, member = struct.unpack_from("<QIIII", payload)
    record_at = 24 + 16 * (epochs + volumes)
    require(len(payload) == record_at + record + member, "a group's state is malformed")
    return GroupState(committed, [(term(*pair), first) for *pair, first in (struct.unpack_from("<IIQ", payload, 24 + 16 * i) for i in range(epochs))],
                      [struct.unpack_from("<QI", payload, 24 + 16 * (epochs + i)) for i in range(volumes)],
                      payload[record_at:record_at + record], payload[record_at + record:])


def chunks_of(entry):
    """The chunks that a merge or a layer delete names."""
    before = 8 if entry.kind == MERGE else 0
    return struct.unpack_from(f"<{(len(entry.payload) - before) // 4}I", entry.payload, before)


def chunks_are_sound(entry):
    chunks = chunks_of(entry)
    whole = len(entry.payload) == 4 * len(chunks) + (8 if entry.kind == MERGE else 0)
    return whole and len(chunks) <= 64 and all(a < b for a, b in zip(chunks, chunks[1:]))


def stored_is_sound(byte):
    units, codec = byte & 15, byte >> 4
    return units == 8 if codec == 0 else codec in (1, 2) and 1 <= units <= 7


def round_up(value, step):
    return (value + step - 1) // step * step


def sums_of(entry):
    """(crc32c, stored length) of each block of a write, an install or a move."""
    count = entry.blocks
    return zip(struct.unpack_from(f"<{count}I", entry.payload), entry.payload[4 * count:5 * count])


class Leaf:
    """Where the blocks of a layer's chunk are: location in the low 40 bits, stored length above; and their sums."""

    __slots__ = ("last_sequence", "untrusted", "since", "places", "sums")

    def __init__(self):
        self.last_sequence = 0
        # An install of it has begun and not ended: entries up to the last sequence are left out.
        self.untrusted = False
        # The record that it was read from: moves in earlier ones are in it.
        self.since = 0
        self.places, self.sums = array("Q", bytes(8 * CHUNK_BLOCKS)), array("I", bytes(4 * CHUNK_BLOCKS))

    def put(self, block, location, stored, crc):
        self.places[block], self.sums[block] = location | stored << 40, crc

    def get(self, block):
        place = self.places[block]
        return place & (1 << 40) - 1, place >> 40, self.sums[block]


def leaf_from(data):
    require(len(data) >= 16 and data[13] <= 1 and all_zero(data[14:16]), "a leaf is malformed")
    leaf = Leaf()
    leaf.last_sequence, stored_blocks, runs, shape = struct.unpack_from("<QHHB", data)
    leaf.untrusted = data[13] == 1
    require(leaf.last_sequence < 1 << 63, "a leaf's last sequence is wrong")
    if shape == 1:
        at, sums = 16 + 8 * runs, 0
        require(len(data) == at + 4 * stored_blocks, "a leaf's length is wrong")
        for run in range(16, at, 8):
            first, more, stored = data[run:run + 3]
            location = int.from_bytes(data[run + 3:run + 8], "little")
            require(first + more < CHUNK_BLOCKS, "a run of a leaf is too long")
            for index in range(more + 1):
                if stored == 0 and location == ZEROES:
                    leaf.put(first + index, ZEROES, 0, 0)
                else:
                    require(sums < stored_blocks, "a leaf's count is wrong")
                    crc = struct.unpack_from("<I", data, at + 4 * sums)[0]
                    leaf.put(first + index, location + index * (stored & 15), stored, crc)
                    sums += 1
    elif shape in (2, 3):
        require(len(data) == 16 + CHUNK_BLOCKS * (9 if shape == 2 else 10), "a leaf's length is wrong")
        for block in range(CHUNK_BLOCKS):
            location = int.from_bytes(data[16 + 5 * block:21 + 5 * block], "little")
            crc = struct.unpack_from("<I", data, 16 + 5 * CHUNK_BLOCKS + 4 * block)[0]
            real = location > ZEROES
            stored = (8 if shape == 2 else data[16 + 9 * CHUNK_BLOCKS + block]) if real else 0
            leaf.put(block, location, stored, crc)
    else:
        require(shape == 0 and len(data) == 16, "a leaf's shape is not known")
    require(sum(place & (1 << 40) - 1 > ZEROES for place in leaf.places) == stored_blocks, "a leaf's count is wrong")
    return leaf


LayerRecord = namedtuple("LayerRecord", "layer parent family created kept_until key")


def layer_from(payload):
    require(len(payload) == 64, "a layer's record is malformed")
    return LayerRecord(*struct.unpack_from("<QQQQQI", payload))
