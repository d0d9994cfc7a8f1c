#!/usr/bin/env python3
"""Reads a Cairn device without Cairn: the rescue tool, and the proof that docs/formats.md is enough to write one.

    read-device.py list DEVICE            what is on it: superblocks, segments, groups, layers; where it is damaged
    read-device.py verify DEVICE          reads everything: every record's keyed hash, every block's crc32c
    read-device.py extract DEVICE --layer ID --out FILE [--size BYTES]
                                          a layer, and what it shows of its parents, as a sparse raw image
    read-device.py blocks DEVICE --layer ID
                                          every stored block of a layer: place, codec, whether its sum is right

DEVICE is a block device or a file; nothing is ever written to it. It must not be in use: a running store changes it
while it is read. Only Python's standard library is used, and nothing but docs/formats.md was read to write this. It goes
on where something is damaged and says what it could not read. Blocks under zstd (no decoder in the standard library) and
encrypted ones cannot be extracted, which one line says: `blocks` lists them.

Exit status: 0; 1 if anything is damaged or could not be read; 2 if it is not a Cairn device or the command line is wrong.
Speed: a core checks about 130 MB/s (crc32c by folding long integers); the index takes 12 bytes per block in memory.
"""

import argparse
import json
import sys

from read_device.bad import Bad, Unreadable
from read_device.check import check_index, check_records
from read_device.contents import Contents
from read_device.device import Damage, LeftOut, Reader
from read_device.formats import BLOCK, CHUNK_BLOCKS, CODECS, STREAMS, UNIT, ZEROES, NewerDevice
from read_device.sums import crc32c


def describe(contents):
    reader, superblock = contents.reader, contents.reader.superblock
    return {
        "superblocks": {f"S{slot}": verdict for slot, verdict in sorted(reader.slots.items())},
        "store": superblock.store[::-1].hex(), "cluster": superblock.cluster[::-1].hex(),
        "device_size": superblock.size, "device_block": superblock.block, "incarnation": superblock.incarnation,
        "segment_size": superblock.segment_size, "segments": superblock.segments, "segments_free": reader.free,
        "segments_used": [dict(segment._asdict(), stream=STREAMS[segment.stream]) for segment in reader.segments],
        "shards": [describe_shard(shard) for shard in contents.shards],
        "layers": [describe_layer(contents, layer) for layer in sorted(set(contents.chunks) | set(contents.layers))],
    }


def describe_shard(shard):
    return {
        "shard": shard.number, "checkpoint": shard.root.checkpoint, "replay_from": shard.root.replay.sequence,
        "last_record": max(shard.records, default=0), "records_read": len(shard.records),
        "accepted_gaps": [gap for gap in shard.accepted if gap[0] <= gap[1]],
        "stopped_at": shard.root.stop_sequence, "stops": shard.root.stops,
        "groups": [{"group": number, "committed": group.committed, "prepared": group.prepared,
                    "epochs": [(term >> 32, term & 0xFFFF_FFFF, first) for term, first in sorted(group.epochs.items())], "volumes": sorted(group.volumes.items())}
                   for number, group in sorted(shard.groups.items())],
    }


def describe_layer(contents, layer):
    codecs, stored_bytes = {}, 0
    for _, _, _, _, stored, _ in contents.stored([layer]):
        codecs[CODECS[stored >> 4]] = codecs.get(CODECS[stored >> 4], 0) + 1
        stored_bytes += (stored & 15) * UNIT
    record = contents.layers.get(layer)
    return {
        "layer": layer, "parent": max(shard.parent(layer) for shard in contents.shards) if record else None, "family": record.family if record else None,
        "encrypted": contents.is_encrypted(layer), "chunks": len(contents.chunks.get(layer, ())),
        "blocks": sum(codecs.values()), "codecs": codecs, "stored_bytes": stored_bytes,
        "seen_to": layer_end(contents, layer),
    }


def layer_end(contents, layer):
    """The byte behind the last block that the layer shows. How large its volume is stands in the cluster's map."""
    return max(((chunk * CHUNK_BLOCKS + block + 1) * BLOCK for chunk, block, _ in contents.shown(layer)), default=0)


# What was looked at where nothing was wrong: `list` reads no data.
NO_DAMAGE = {"list": "no damage found in superblocks and index; no data was read: `verify` reads all of it"}


def print_contents(found, show_segments):
    print(f"store {found['store']} of cluster {found['cluster']}, incarnation {found['incarnation']}")
    print(f"{found['device_size']} bytes, device block {found['device_block']}; superblocks: "
          + "; ".join(f"{slot} {verdict}" for slot, verdict in found["superblocks"].items()))
    print(f"{found['segments']} segments of {found['segment_size']} bytes, {len(found['segments_used'])} used, "
          f"{found['segments_free']} free")
    for segment in found["segments_used"] if show_segments else ():
        print("  segment {number}: generation {generation}, shard {shard}, {stream}, records from {first}".format(**segment))
    for shard in found["shards"]:
        print("shard {shard}: pass {checkpoint}, replay from record {replay_from}, last record {last_record}, "
              "{records_read} read".format(**shard))
        if shard["stops"]:
            print("  an assertion stopped it {stops} times at record {stopped_at}".format(**shard))
    print(f"{sum(len(shard['groups']) for shard in found['shards'])} groups, layers:")
    for layer in found["layers"]:
        codecs = ", ".join(f"{count} {codec}" for codec, count in sorted(layer["codecs"].items())) or "nothing"
        print(f"  layer {layer['layer']}: parent {layer['parent'] or 'none'}, {layer['chunks']} chunks, {codecs} in "
              f"{layer['stored_bytes']} bytes, shows something up to byte {layer['seen_to']}"
              + (", encrypted" if layer["encrypted"] else ""))


def list_command(reader, arguments):
    found = describe(Contents(reader, arguments.committed))
    if not arguments.json:
        print_contents(found, arguments.segments)
    return found


def verify_command(reader, arguments):
    contents = Contents(reader, arguments.committed)
    records, entries = check_records(contents)
    blocks = check_index(contents)
    if not arguments.json:
        print(f"{records} records with {entries} entries, and {blocks} blocks that the index names, were read")
    return {"records": records, "entries": entries, "blocks": blocks}


def layer_asked(contents, arguments):
    layer = arguments.layer
    if layer not in contents.chunks and layer not in contents.layers:
        known = ", ".join(map(str, sorted(set(contents.chunks) | set(contents.layers)))) or "none"
        raise Bad(f"there is no layer {layer}: there are {known}")
    return layer


def extract_command(reader, arguments):
    contents = Contents(reader, arguments.committed)
    layer = layer_asked(contents, arguments)
    size = layer_end(contents, layer) if arguments.size is None else arguments.size
    written = lost = 0
    unreadable = {}
    with open(arguments.out, "wb") as image:
        image.truncate(size)
        for chunk, block, found in contents.shown(layer):
            at = (chunk * CHUNK_BLOCKS + block) * BLOCK
            if at >= size:
                continue
            try:
                data = contents.fetch(*found)
            except Unreadable as reason:
                # Not damaged: its sum is right. A volume has millions of such blocks, and all for one reason.
                unreadable[str(reason)] = unreadable.get(str(reason), 0) + 1
                continue
            except Bad as bad:
                lost += 1
                reader.damaged(*contents.where(found[1]), f"block {block} of chunk {chunk}, layer {found[0]}, byte {at} of "
                               f"the image, is left out: {bad}")
                continue
            image.seek(at)
            image.write(data[:size - at])
            written += 1
    for reason, count in sorted(unreadable.items()):
        reader.damage.append(LeftOut(f"{count} blocks of layer {layer}, zeroes stand in their place: {reason}; what is "
                                     "stored of each is as its sum says"))
    left_out = sum(unreadable.values())
    if not arguments.json:
        print(f"{arguments.out}: {size} bytes, {written} blocks written, {lost + left_out} could not be")
    return {"layer": layer, "size": size, "blocks": written, "lost": lost, "left_out": left_out}


def blocks_command(reader, arguments):
    contents = Contents(reader, arguments.committed)
    rows = []
    for layer, chunk, block, location, stored, crc in contents.stored([layer_asked(contents, arguments)]):
        data = reader.device.read(location * UNIT, (stored & 15) * UNIT)
        segment, offset = contents.where(location)
        verdict = "good" if crc32c(data) == crc else "wrong"
        if verdict == "wrong":
            reader.damaged(segment, offset, f"block {block} of chunk {chunk}, layer {layer}: its sum is wrong")
        rows.append({"byte": (chunk * CHUNK_BLOCKS + block) * BLOCK, "device_offset": location * UNIT, "segment": segment,
                     "offset": offset, "length": (stored & 15) * UNIT, "codec": CODECS[stored >> 4],
                     "encrypted": contents.is_encrypted(layer), "crc32c": f"{crc:08x}", "verdict": verdict})
        if not arguments.json:
            print("{byte} at {device_offset} (segment {segment} offset {offset}), {length} bytes {codec}, crc32c {crc32c} "
                  "{verdict}".format(**rows[-1]))
    return {"blocks": rows}


def command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, run, text in (("list", list_command, "what is on it"), ("verify", verify_command, "read and check everything"),
                            ("extract", extract_command, "a layer as a sparse raw image"),
                            ("blocks", blocks_command, "every stored block of a layer")):
        command = commands.add_parser(name, help=text)
        command.set_defaults(run=run)
        command.add_argument("device")
        command.add_argument("--json", action="store_true", help="for programs")
        command.add_argument("--committed", action="store_true",
                             help="leave out what is written but not known committed (a client may have had its answer)")
        if name == "list":
            command.add_argument("--segments", action="store_true", help="each used segment")
        if name in ("extract", "blocks"):
            command.add_argument("--layer", type=int, required=True, help="its id, as `list` shows it")
        if name == "extract":
            command.add_argument("--out", required=True, metavar="FILE")
            command.add_argument("--size", type=int, metavar="BYTES", help="of the image [up to the last block that is there]")
    return parser.parse_args()


def main():
    arguments = command_line()
    try:
        reader = Reader(arguments.device)
        found = arguments.run(reader, arguments)
    except NewerDevice as newer:
        print(f"{arguments.device}: a newer Cairn's device ({newer}): use the tool that came with it", file=sys.stderr)
        return 2
    except (Bad, OSError) as error:
        print(f"{arguments.device}: {error}", file=sys.stderr)
        return 2
    reader.damage += [Damage(what, device_offset=offset) for offset, what in sorted(reader.device.unreadable.items())]
    if arguments.json:
        print(json.dumps(dict(found, damage=[damage.as_json() for damage in reader.damage], notes=reader.notes), indent=1))
    else:
        for note in reader.notes:
            print(f"note: {note}")
        for damage in reader.damage:
            print(f"{damage.LABEL} {damage}")
        damaged = sum(damage.LABEL == Damage.LABEL for damage in reader.damage)
        print(f"{damaged} damaged" if damaged else NO_DAMAGE.get(arguments.command, "no damage found"))
    return 1 if reader.damage else 0


if __name__ == "__main__":
    sys.exit(main())
