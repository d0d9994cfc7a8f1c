"""A decoder of LZ4 blocks."""

from .bad import Bad, require


def lz4_decode(data, size):
    """An LZ4 block of `size` decoded bytes."""
    out, at = bytearray(), 0

    def length_from(nibble):
        nonlocal at
        length = nibble
        while nibble == 15:
            length += data[at]
            at += 1
            if data[at - 1] != 255:
                break
        return length

    try:
        while at < len(data):
            token = data[at]
            at += 1
            literals = length_from(token >> 4)
            require(at + literals <= len(data), "lz4: literals run over the end")
            out += data[at:at + literals]
            at += literals
            if at == len(data):
                break
            back = data[at] | data[at + 1] << 8
            at += 2
            length = length_from(token & 15) + 4
            require(0 < back <= len(out) and len(out) + length <= size, "lz4: a match outside of the block")
            start = len(out) - back
            for index in range(start, start + length):
                out.append(out[index])
    except IndexError:
        raise Bad("lz4: it ends in the middle") from None
    require(len(out) == size, f"lz4: {len(out)} bytes, not {size}")
    return bytes(out)
