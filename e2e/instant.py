"""Snapshots of two volumes at one instant, while both are written to: `python3 instant.py CAIRN URI-OF-A URI-OF-B ROUNDS`.

Each of some writers writes a number to a block of "a", then the same to a block of "b", each after the one before was
answered, again and again. In a snapshot of both, and in its clones, the two are the same, or "a" is one ahead: else one of
them is of an earlier instant than the other. NBD as the specification has it (doc/proto.md), without a library.
"""
import json
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse

BLOCK, WRITERS = 4096, 4


class Client:
    def __init__(self, uri):
        at = urllib.parse.urlparse(uri)
        self.socket = socket.create_connection((at.hostname, at.port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert self.take(16) == b"NBDMAGICIHAVEOPT"
        self.take(2)
        name = at.path[1:].encode()
        # Fixed newstyle without zeroes; NBD_OPT_EXPORT_NAME.
        self.socket.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, len(name)) + name)
        self.take(10)

    def take(self, count):
        got = b""
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            assert more, "the server ended the connection"
            got += more
        return got

    def ask(self, kind, offset, length, data=b""):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, 7, offset, length) + data)
        magic, error, _ = struct.unpack(">IIQ", self.take(16))
        assert magic == 0x67446698 and error == 0, f"error {error}"
        return self.take(length) if kind == 0 else b""

    def write(self, block, number):
        self.ask(1, block * BLOCK, BLOCK, struct.pack("<Q", number) * (BLOCK // 8))

    def read(self, block):
        data = self.ask(0, block * BLOCK, BLOCK)
        numbers = {number for number, in struct.iter_unpack("<Q", data)}
        assert len(numbers) == 1, f"a block that is written in part: {numbers}"
        return numbers.pop()


def main():
    cairn, (a, b), rounds = sys.argv[1], sys.argv[2:4], int(sys.argv[4])
    names = [urllib.parse.urlparse(uri).path[1:] for uri in (a, b)]
    ends, wrong, written = threading.Event(), [], [0] * WRITERS

    def work(writer):
        try:
            clients, number = (Client(a), Client(b)), 0
            while not ends.is_set():
                number += 1
                for client in clients:
                    # Blocks in chunks, and so in groups, of their own.
                    client.write(writer * 256 * 5, number)
                written[writer] = number
        except Exception as error:
            wrong.append(f"writer {writer}: {error!r}")

    def run(*args):
        done = subprocess.run([cairn, *args, "-o", "json"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{args}: {done.stderr}"
        return json.loads(done.stdout)

    def compare(uris, what):
        first, second = (Client(uri) for uri in uris)
        for writer in range(WRITERS):
            ahead, behind = first.read(writer * 256 * 5), second.read(writer * 256 * 5)
            assert ahead - behind in (0, 1), f"{what}: a has {ahead}, b has {behind}, which is no instant"
            seen.append(ahead)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(WRITERS)]
    [thread.start() for thread in threads]
    seen = []
    try:
        # What the volumes hold of before is no number.
        while not (all(written) or wrong):
            time.sleep(0.01)
        for n in range(rounds):
            before = list(written)
            taken = run("snapshot", "create", *(f"{name}@i{n}" for name in names))
            assert [(one["volume"], one["name"]) for one in taken] == [(name, f"i{n}") for name in names], taken
            assert taken[0]["created_at"] == taken[1]["created_at"], taken
            compare([f"{uri}@i{n}" for uri in (a, b)], f"snapshots {n}")
            assert all(was <= is_in for was, is_in in zip(before, seen[-WRITERS:])), "what had returned before is missing"
        last = rounds - 1
        clones = [run("clone", f"{name}@i{last}", f"{name}-clone")["nbd_uri"] for name in names]
        compare(clones, "clones")
    finally:
        ends.set()
        [thread.join() for thread in threads]
    assert not wrong, wrong
    assert len(set(seen)) > rounds, "nothing was written meanwhile"


main()
