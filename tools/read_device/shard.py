"""What the log of one shard comes to: groups, layers, and where every block is."""

import struct
from bisect import bisect_left, insort

from .bad import Bad, require
from .device import Damage
from .formats import (
    ABSENT, CHECKPOINT, CHUNK_BLOCKS, EPOCH_START, FOREVER, GROUP_STATE, INSTALL, INSTALL_BEGIN, INSTALL_END, INSTALL_LAYER, INSTALL_ZERO, LAYER, LAYER_DELETE, LAYER_STATE, LEAF, LOG,
    MEMBER_STATE, MERGE, MERGE_STATE, MOVED, OPENING, PASS_END, SEGMENTS, SKIP, UNIT, WRITE, ZERO, ZEROES, Leaf, chunks_of,
    group_state_from, layer_from, leaf_from, sums_of,
)
from .sums import crc32c


MEMBER = MEMBER_STATE, INSTALL_BEGIN, INSTALL, INSTALL_ZERO, INSTALL_END, INSTALL_LAYER, SKIP


class Group:
    def __init__(self):
        self.committed, self.epochs, self.volumes, self.prepared = 0, {}, {}, 0
        # Of the commit numbers, what the log has said so far.
        self.said = 0
        # (a, b) of sequences behind a and up to b that the member never had, and the newest epoch where it went on.
        self.skipped, self.epoch_of_skip = [], 0
        # What the member keeps for itself, with its number.
        self.member_state = 0, b""


class Shard:
    """What the log of one shard comes to."""

    def __init__(self, reader, number):
        self.reader, self.number, self.root = reader, number, reader.superblock.roots[number]
        self.groups, self.leaves, self.layers, self.merged, self.ended = {}, {}, {}, {}, {}
        self.sealed, self.segments = {}, reader.segments_of(number)
        self.records, self.gaps, self.accepted = self.gather()

    # -- records

    def gather(self):
        root, records, gaps = self.root, {}, []
        needed_from = min(root.first.sequence, root.replay.sequence) if root.checkpoint else 1
        for segment, below in self.segments:
            if below <= needed_from:
                continue
            found, between = self.reader.walk(segment)
            for record in found:
                held = records.get(record.sequence)
                if record.sequence < below and not (held and held.segment.generation > segment.generation):
                    records[record.sequence] = record
            gaps += [(segment, below, *gap) for gap in between]
        openings = self.drop_void(records)
        accepted = [gap for opening in openings for gap in opening]
        return records, gaps, accepted

    def drop_void(self, records):
        """Drops void records, those of the latest opening first: what a void opening says counts for nothing."""
        named = []
        openings = [record for record in records.values() if record.kind == OPENING]
        for opening in sorted(openings, key=lambda record: record.incarnation, reverse=True):
            if records.get(opening.sequence) is not opening:
                continue
            (entry,) = opening.entries
            begins, before, void_from, count = struct.unpack_from("<QQQI", entry.payload)
            ranges = [struct.unpack_from("<QQ", entry.payload, 32 + 16 * index) for index in range(count)]
            ranges.append((void_from, opening.sequence - 1))
            for record in list(records.values()):
                if record.incarnation < begins and (record.sequence >= void_from or
                                                    any(a <= record.sequence <= b for a, b in ranges)):
                    del records[record.sequence]
            named.append(ranges)
        return named

    def log(self):
        """The records from the replay start on that count, in order."""
        start = self.root.replay.sequence if self.root.checkpoint else 1
        durable = max([self.root.last.sequence] + [record.durable for record in self.records.values()])
        holes = []
        for sequence in sorted(self.records):
            if sequence > durable and not self.reader.check_data(self.records[sequence], lambda *_: None):
                holes.append(sequence)
        for sequence in holes:
            record = self.records.pop(sequence)
            self.reader.notes.append(f"shard {self.number}: record {sequence} in segment {record.segment.number} at "
                                     f"offset {record.offset} is torn; it was never acknowledged")
        self.lost_records(start, durable)
        return [self.records[sequence] for sequence in sorted(self.records) if sequence >= start]

    def lost_records(self, start, durable):
        expected, self.lost = start, 0
        for sequence in [s for s in sorted(self.records) if start <= s <= durable] + [durable + 1]:
            missing = [s for s in range(expected, sequence) if not any(a <= s <= b for a, b in self.accepted)]
            for lost in missing:
                self.lost += 1
                self.report_lost(lost)
            expected = sequence + 1

    def report_lost(self, sequence):
        what = f"record {sequence} of shard {self.number} is lost"
        places = [gap for gap in self.gaps if gap[4] == sequence] or [
            gap for gap in self.gaps if gap[0].first <= sequence < gap[1] and gap[5] != "all zero"]
        if len(places) == 1:
            segment, _, offset, _, _, why = places[0]
            self.reader.damaged(segment.number, offset, f"{what} ({why}): what was written with it is not in the index")
        else:
            self.reader.damage.append(Damage(f"{what}, its place is not known: what was written with it is not in the index"))

    # -- checkpoint

    def load_pass(self):
        root = self.root
        if not root.checkpoint:
            return
        counts = dict.fromkeys((LEAF, GROUP_STATE, LAYER_STATE, MERGE_STATE), 0)
        named_segments, end = 0, None
        for sequence in sorted(s for s in self.records if root.first.sequence <= s <= root.last.sequence):
            record = self.records[sequence]
            for entry in record.entries if record.kind == CHECKPOINT else ():
                if entry.sequence != root.checkpoint:
                    continue
                if entry.kind in counts:
                    counts[entry.kind] += 1
                named_segments += self.load_entry(record, entry)
                if entry.kind == PASS_END:
                    end = struct.unpack_from("<QQQQQ", entry.payload, 24)
        found = (*counts.values(), named_segments)
        if end != found:
            self.reader.damage.append(Damage(
                f"checkpoint pass {root.checkpoint} of shard {self.number} is not whole: leaves, groups, layers, merges and "
                f"segments are {found}, and should be {end or 'said by a record that is lost'}"))

    def load_entry(self, record, entry):
        if entry.kind == LEAF:
            self.load_leaf(record, entry)
        elif entry.kind == GROUP_STATE:
            self.load_group(entry)
        elif entry.kind == MERGE_STATE:
            ends, takes, gone, parent = struct.unpack_from("<QQQQ", entry.payload)
            self.merged[ends] = takes
            # It is its own parent where that is not known.
            if gone and parent != ends:
                self.ended[ends] = parent
        elif entry.kind == SEGMENTS:
            for at in range(0, len(entry.payload), 32):
                segment, _, sealed, generation, _, last = struct.unpack_from("<IBB2xQQQ", entry.payload, at)
                if sealed:
                    self.sealed[segment, generation] = last
            return len(entry.payload) // 32
        return 0

    def load_leaf(self, record, entry):
        length, crc = struct.unpack("<II", entry.payload)
        data = self.reader.device.read(entry.data, length)
        try:
            require(crc32c(data) == crc, "its sum is wrong")
            self.leaves[entry.layer, entry.chunk] = leaf_from(data)
            self.leaves[entry.layer, entry.chunk].since = record.sequence
        except Bad as bad:
            offset = record.offset + entry.data - self.reader.place_of(record.segment.number, record.offset)
            self.reader.damaged(record.segment.number, offset,
                                f"leaf of chunk {entry.chunk}, layer {entry.layer}: {bad}; where its blocks are is lost")

    def load_group(self, entry):
        state, group = group_state_from(entry.payload), self.groups.setdefault(entry.group, Group())
        group.committed = max(group.committed, state.committed)
        self.learn_group(group, state)
        if state.member:
            group.member_state = max(group.member_state, (int.from_bytes(state.member[:8], "little"), state.member[8:]))

    def learn_group(self, group, state):
        group.epochs.update(state.epochs)
        for volume, volume_epoch in state.volumes:
            group.volumes[volume] = max(volume_epoch, group.volumes.get(volume, 0))

    # -- replay

    def replay(self, committed_only=False):
        """The log, on top of the pass. What is committed is decided first; then everything happens in the log's order:
        so a move finds the place that its block had when it was moved."""
        log = self.log()
        self.load_pass()
        counted = self.counted(log, committed_only)
        # Of groups with installs, what is not yet known to be committed: an install comes before it. And of groups with
        # entries that were carried: those come later in the log than others that are behind them.
        self.waiting = {entry.group: [] for record in log for entry in record.entries if entry.kind in MEMBER or entry.carried}
        # What the pass says of layers is younger than what the log said before it and older than what comes behind.
        for record in log:
            for entry in record.entries:
                if entry.kind == MOVED:
                    self.move(record, entry)
                elif entry.kind in MEMBER:
                    self.apply_waiting(entry.group, entry.commit)
                    self.of_member(record, entry)
                elif entry.kind == GROUP_STATE:
                    self.apply_waiting(entry.group, int.from_bytes(entry.payload[:8], "little"))
                elif entry.kind == LAYER_STATE and entry.sequence == self.root.checkpoint:
                    self.add_layer(entry)
                elif record.kind == LOG and (entry.group, entry.sequence) in counted \
                        and counted[entry.group, entry.sequence] is entry:
                    if entry.group in self.waiting:
                        insort(self.waiting[entry.group], entry, key=lambda one: one.sequence)
                        self.apply_waiting(entry.group, entry.commit)
                    else:
                        self.apply(entry)
        for group in self.waiting:
            self.apply_waiting(group, FOREVER)

    def apply_waiting(self, group, through):
        waiting = self.waiting.get(group, ())
        while waiting and waiting[0].sequence <= through:
            self.apply(waiting.pop(0))

    def counted(self, log, committed_only):
        """The entries that are committed, or prepared: {(group, sequence): entry}."""
        kept, epoch_of_pass = {}, {}
        for record in log:
            for entry in record.entries:
                if entry.kind == GROUP_STATE and entry.sequence == self.root.checkpoint:
                    epoch_of_pass[entry.group] = max(self.groups[entry.group].epochs, default=0)
                elif entry.kind in MEMBER:
                    self.hear(entry)
                    if entry.kind == SKIP:
                        self.skip(entry, kept.setdefault(entry.group, []))
                elif record.kind == LOG:
                    self.place(entry, kept.setdefault(entry.group, []), epoch_of_pass)
        counted = {}
        for number, entries in kept.items():
            if entries:
                counted.update(self.counted_of(number, {entry.sequence: entry for entry in entries}, committed_only))
        return counted

    def hear(self, entry):
        """What an entry says of commits."""
        group = self.groups.setdefault(entry.group, Group())
        group.said = max(group.said, entry.commit)
        group.committed = max(group.committed, entry.commit)

    def skip(self, entry, kept):
        """The member went on behind what it lacked: what was not applied by then is void."""
        state, group = group_state_from(entry.payload), self.groups[entry.group]
        group.epoch_of_skip = max([group.epoch_of_skip] + [epoch for epoch, _ in state.epochs])
        if state.committed <= entry.commit:
            return
        while kept and kept[-1].sequence > group.said:
            kept.pop()
        group.skipped.append((entry.commit, state.committed))
        group.said = max(group.said, state.committed)
        group.committed = max(group.committed, state.committed)

    def place(self, entry, kept, epoch_of_pass):
        """Puts an entry into its group's order: what was not committed and has its sequence or a higher one, or a newer
        epoch, is void."""
        group = self.groups.setdefault(entry.group, Group())
        committed = next((one.epoch for one in reversed(kept) if one.sequence <= group.said), 0)
        if entry.epoch < max(committed, epoch_of_pass.get(entry.group, 0), group.epoch_of_skip):
            return
        if entry.carried:
            return self.place_carried(entry, kept, group)
        while kept and kept[-1].sequence > group.said and (kept[-1].sequence >= entry.sequence or kept[-1].epoch > entry.epoch):
            kept.pop()
        self.hear(entry)
        kept.append(entry)

    def place_carried(self, entry, kept, group):
        """An entry that was in the order when it was written once more: it takes the place of its first, or where that
        would be."""
        self.hear(entry)
        at = bisect_left(kept, entry.sequence, key=lambda one: one.sequence)
        is_there = at < len(kept) and kept[at].sequence == entry.sequence
        if entry.sequence > group.said and is_there and kept[at].epoch == entry.epoch:
            kept[at] = entry
        elif entry.sequence > group.said:
            del kept[at:len(kept) if is_there else at]
            kept.insert(at, entry)

    def counted_of(self, number, entries, committed_only):
        group = self.groups[number]
        missing = [s for s in range(min(entries), min(group.committed, max(entries)) + 1)
                   if s not in entries and not any(a < s <= b for a, b in group.skipped)]
        if missing:
            self.reader.damage.append(Damage(
                f"group {number}: {len(missing)} entries that were committed are lost, from sequence {missing[0]}"))
        group.prepared = group.committed
        # Behind a hole nothing counts, but where records were lost it may be the damage and not a hole: then all is taken.
        while group.prepared < max(entries) and (group.prepared + 1 in entries or self.lost):
            group.prepared += 1
        through = group.committed if committed_only else group.prepared
        return {(number, s): entry for s, entry in entries.items() if s <= through}

    def leaf(self, layer, chunk):
        key = layer, chunk
        if key not in self.leaves:
            self.leaves[key] = Leaf()
        return self.leaves[key]

    def apply(self, entry):
        if entry.kind in (WRITE, ZERO):
            leaf = self.leaf(entry.layer, entry.chunk)
            if entry.sequence <= leaf.last_sequence:
                return
            leaf.last_sequence = entry.sequence
            if not leaf.untrusted:
                self.put_blocks(leaf, entry)
        elif entry.kind == EPOCH_START:
            self.groups[entry.group].epochs[entry.epoch] = entry.sequence
        elif entry.kind == LAYER:
            self.add_layer(entry)
        elif entry.kind == MERGE:
            self.merge(entry)
        elif entry.kind == LAYER_DELETE:
            for chunk in chunks_of(entry):
                self.leaves.pop((entry.layer, chunk), None)
            if not chunks_of(entry):
                self.end_layer(entry.layer)

    def put_blocks(self, leaf, entry):
        """What a write, a zero or an install says of its blocks."""
        if entry.kind in (ZERO, INSTALL_ZERO):
            for block in range(entry.first, entry.first + entry.blocks):
                leaf.put(block, ZEROES if entry.hides_below else ABSENT, 0, 0)
            return
        location = entry.data // UNIT
        for index, (crc, stored) in enumerate(sums_of(entry)):
            leaf.put(entry.first + index, location, stored, crc)
            location += stored & 15

    def of_member(self, record, entry):
        """An entry outside the order: in the log's order, unless the leaf comes from a later record."""
        if entry.kind == MEMBER_STATE:
            group = self.groups.setdefault(entry.group, Group())
            group.member_state = max(group.member_state, (entry.sequence, entry.payload))
            return
        if entry.kind == SKIP:
            self.learn_group(self.groups[entry.group], group_state_from(entry.payload))
            return
        if entry.kind == INSTALL_LAYER:
            if not any(entry.layer in known for known in (self.layers, self.merged, self.ended)):
                self.add_layer(entry)
            return
        key = entry.layer, entry.chunk
        leaf = self.leaves.get(key)
        if leaf and record.sequence < leaf.since:
            return
        if entry.kind == INSTALL_BEGIN:
            if not entry.keeps or leaf is None:
                self.leaves[key] = Leaf()
            self.leaves[key].untrusted, self.leaves[key].last_sequence = True, 0
        elif leaf is None or not leaf.untrusted:
            return
        elif entry.kind != INSTALL_END:
            self.put_blocks(leaf, entry)
        elif leaf.last_sequence <= (last := int.from_bytes(entry.payload, "little")):
            if last:
                leaf.last_sequence, leaf.untrusted = last, False
            elif not any(leaf.places):
                del self.leaves[key]

    def holder(self, layer, chunk):
        """The leaf that has the layer's blocks by now: its own, or that of the layer it was merged into."""
        for _ in range(len(self.merged) + 1):
            if (layer, chunk) in self.leaves or layer not in self.merged:
                return self.leaves.get((layer, chunk))
            layer = self.merged[layer]
        return None

    def move(self, record, entry):
        leaf, old = self.holder(entry.layer, entry.chunk), entry.payload[5 * entry.blocks:]
        if leaf is None or record.sequence < leaf.since:
            return
        location = entry.data // UNIT
        for index, (crc, stored) in enumerate(sums_of(entry)):
            block = entry.first + index
            if leaf.get(block)[0] == int.from_bytes(old[5 * index:5 * index + 5], "little"):
                leaf.put(block, location, stored, crc)
            location += stored & 15

    def merge(self, entry):
        """Each chunk named: what the taking layer does not have it has from the one that ends, whose leaf goes."""
        takes = int.from_bytes(entry.payload[:8], "little")
        self.merged[entry.layer] = takes
        for chunk in chunks_of(entry):
            source, target = self.leaves.pop((entry.layer, chunk), None), self.leaf(takes, chunk)
            if entry.sequence <= target.last_sequence:
                continue
            target.last_sequence = entry.sequence
            if target.untrusted:
                continue
            target.untrusted = bool(source and source.untrusted)
            for block in range(CHUNK_BLOCKS):
                if source and target.get(block)[0] == ABSENT:
                    target.put(block, *source.get(block))
                if not entry.hides_below and target.get(block)[0] == ZEROES:
                    target.put(block, ABSENT, 0, 0)

    # -- layers

    def add_layer(self, entry):
        layer = layer_from(entry.payload)
        if layer.layer in self.ended:
            # A pass that was under way when it ended names it once more.
            self.ended[layer.layer] = layer.parent
        else:
            self.layers[layer.layer] = layer

    def end_layer(self, layer):
        """Nothing is left of it. Who had it as parent has its parent. Each of its groups says so."""
        if layer in self.ended:
            return
        record = self.layers.pop(layer, None)
        self.ended[layer] = record.parent if record else 0

    def parent(self, layer):
        parent = self.layers[layer].parent if layer in self.layers else 0
        while parent in self.ended:
            parent = self.ended[parent]
        return parent

    def chain(self, layer):
        """The layer and its parents: whoever says something of a block first, is right."""
        chain = []
        while layer and layer not in chain:
            chain.append(layer)
            layer = self.parent(layer)
        return chain

    def block(self, chain, chunk, block):
        """(layer, location, stored length, crc) of a block, or None if it is zeroes."""
        for layer in chain:
            leaf = self.leaves.get((layer, chunk))
            location, stored, crc = leaf.get(block) if leaf else (ABSENT, 0, 0)
            if location == ZEROES:
                return None
            if location != ABSENT:
                return layer, location, stored, crc
        return None
