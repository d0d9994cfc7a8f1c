"""All shards of a device together."""

from .bad import Unreadable, all_zero, require
from .formats import BLOCK, CHUNK_BLOCKS, CODECS, MIB, UNIT, ZEROES
from .lz4 import lz4_decode
from .shard import Shard
from .sums import crc32c


class Contents:
    """All shards together: a chunk is in one of them, a layer may be in all."""

    def __init__(self, reader, committed_only=False):
        self.reader = reader
        self.shards = [Shard(reader, number) for number in range(reader.superblock.shards)]
        self.layers, self.leaves = {}, {}
        for shard in self.shards:
            shard.replay(committed_only)
            self.layers.update(shard.layers)
            self.leaves.update(shard.leaves)
        self.chunks = {}
        for layer, chunk in sorted(self.leaves):
            self.chunks.setdefault(layer, []).append(chunk)
            if self.leaves[layer, chunk].untrusted:
                self.reader.notes.append(f"chunk {chunk}, layer {layer}, was not received whole from another member: what "
                                         "is read of it is not what its group holds")

    def shown(self, layer):
        """(chunk, block, (layer, location, stored length, crc)) of all that the layer shows, its own and its parents'."""
        for shard in self.shards:
            chain = shard.chain(layer)
            for chunk in sorted({chunk for part, chunk in shard.leaves if part in chain}):
                for block in range(CHUNK_BLOCKS):
                    found = shard.block(chain, chunk, block)
                    if found:
                        yield chunk, block, found

    def stored(self, layers):
        """(layer, chunk, block, location, stored length, crc) of all stored blocks of these layers, in their order."""
        for layer in layers:
            for chunk in self.chunks.get(layer, ()):
                leaf = self.leaves[layer, chunk]
                for block in range(CHUNK_BLOCKS):
                    location, stored, crc = leaf.get(block)
                    if location > ZEROES:
                        yield layer, chunk, block, location, stored, crc

    def is_encrypted(self, layer):
        return layer in self.layers and self.layers[layer].key != 0

    def fetch(self, layer, location, stored, crc):
        """The 4,096 bytes of a block."""
        data = self.reader.device.read(location * UNIT, (stored & 15) * UNIT)
        require(crc32c(data) == crc, "its sum is wrong")
        require(not self.is_encrypted(layer), "it is encrypted", Unreadable)
        codec = stored >> 4
        if codec == 0:
            return data
        require(codec == 1, f"it is compressed with {CODECS[codec]}, which Python's library cannot undo", Unreadable)
        length = int.from_bytes(data[:2], "little")
        require(length + 2 <= len(data) and all_zero(data[2 + length:]), "its compressed length is wrong")
        return lz4_decode(data[2:2 + length], BLOCK)

    def where(self, location):
        """Segment and offset in it of a unit of the device."""
        return divmod(location * UNIT - MIB, self.reader.superblock.segment_size)
