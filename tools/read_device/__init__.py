"""What read-device.py is made of.

    bad, sums, lz4     errors; crc32c; a decoder
    formats            each structure of docs/formats.md
    device             bytes, superblocks, segments, records, and the damage found in them
    shard              the log of one shard: pass, gaps, replay
    contents, check    all shards together; reading everything
"""
