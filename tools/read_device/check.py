"""Reading everything."""

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
    records = entries = 0
    for shard in contents.shards:
        judge = Judge(contents.reader, shard)
        for segment, below in shard.segments:
            found = judge.segment(segment, below)
            records += len(found)
            entries += sum(len(record.entries) for record in found)
        judge.end()
    return records, entries


class Judge:
    """All records of a shard. What is not right is damage only if it was durable: if a later record of the same life of the
    store says so. Everything else is what a crash leaves."""

    def __init__(self, reader, shard):
        self.reader, self.shard = reader, shard
        self.durable, self.suspects = {}, []
        self.known = {(damage.segment, damage.offset) for damage in reader.damage}

    def segment(self, segment, below):
        """Reads one; records at or behind `below` were written again in the next one."""
        found, gaps = self.reader.walk(segment)
        for record in found:
            self.durable[record.incarnation] = max(record.durable, self.durable.get(record.incarnation, 0))
            if record.sequence < below:
                self.reader.check_data(record, lambda at, what, record=record: self.suspect(
                    record, at - self.reader.place_of(segment.number, 0), f"record {record.sequence}: {what}"))
        for start, end, _, why in gaps:
            behind = next((record for record in found if record.offset >= end), None)
            before = next((record for record in reversed(found) if record.offset < start), None)
            one_life = behind and (before is None or before.incarnation == behind.incarnation)
            if one_life and behind.sequence < below:
                self.suspect(behind, start, f"no valid record in {end - start} bytes ({why}), and there are more behind")
        last = self.shard.sealed.get((segment.number, segment.generation))
        if last and (not found or found[-1].sequence < last):
            end = found[-1].offset + found[-1].length if found else self.reader.block
            self.reader.damaged(segment.number, end, f"no record {last}, with which this segment ends")
        return found

    def suspect(self, record, offset, what):
        if (record.segment.number, offset) not in self.known:
            self.suspects.append((record, offset, what))

    def end(self):
        for record, offset, what in self.suspects:
            if record.sequence <= self.durable[record.incarnation]:
                self.reader.damaged(record.segment.number, offset, what)
            else:
                self.reader.notes.append(f"segment {record.segment.number} offset {offset}: {what}; it was never acknowledged")
