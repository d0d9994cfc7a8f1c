"""Reading everything."""

from .device import Damage
from .formats import UNIT
from .sums import crc32c


def check_index(contents):
    """Reads every block that the index names. Returns how many there are."""
    count = 0
    for layer, chunk, block, location, stored, crc in contents.stored(sorted(contents.chunks)):
        count += 1
        data = contents.reader.device.read(location * UNIT, (stored & 15) * UNIT)
        if crc32c(data) != crc:
            contents.reader.damaged(*contents.where(location),
                                    f"block {block} of chunk {chunk}, layer {layer}, is lost: its sum is wrong")
    return count


def check_records(contents):
    """Reads every record of every segment with its data. Returns their number and the number of their entries."""
    reader, records, entries = contents.reader, 0, 0
    known = {(damage.segment, damage.offset) for damage in reader.damage}
    for shard in contents.shards:
        counted = set((record.segment.number, record.offset) for record in shard.records.values())
        for segment, _ in shard.segments:
            found, gaps = reader.walk(segment)
            for record in found:
                records, entries = records + 1, entries + len(record.entries)
                check_one(reader, shard, record, counted, known)
            for start, end, claimed, why in gaps:
                check_gap(reader, shard, segment, found, (start, end, claimed, why), known)
            last = shard.sealed.get((segment.number, segment.generation))
            if last and (not found or found[-1].sequence < last):
                reader.damage.append(Damage(f"segment {segment.number} ends with record "
                                            f"{found[-1].sequence if found else 'none'}, and should with {last}"))
    return records, entries


def check_one(reader, shard, record, counted, known):
    def report(device_offset, what):
        offset = device_offset - reader.place_of(record.segment.number, 0)
        # A record that does not count may be torn: it was void, or never acknowledged.
        if (record.segment.number, record.offset) in counted or record.sequence < shard.root.replay.sequence:
            if (record.segment.number, offset) not in known:
                reader.damaged(record.segment.number, offset, f"record {record.sequence}: {what}")
        else:
            reader.notes.append(f"segment {record.segment.number} offset {offset}: {what}, in a record that does not count")
    reader.check_data(record, report)


def check_gap(reader, shard, segment, found, gap, known):
    """What lies between two records of a segment without being one."""
    start, end, claimed, why = gap
    behind = [record for record in found if record.offset >= end]
    before = [record for record in found if record.offset < start]
    if (segment.number, start) in known:
        return
    if behind and (not before or before[-1].incarnation == behind[0].incarnation):
        reader.damaged(segment.number, start, f"no valid record in {end - start} bytes ({why}), and there are more behind")
    elif why != "all zero" and claimed is not None:
        reader.notes.append(f"segment {segment.number} offset {start}: the beginning of a record ({why}): what a crash or an "
                            "earlier use left behind")
