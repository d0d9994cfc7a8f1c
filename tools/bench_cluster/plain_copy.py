"""What a plain copy gives of the way that recovery goes: from a device over loopback TCP to another device, each part alone and all of it.

Alone, for nobody is to pay for two: the medium, by fio, in order, through one file like a device's, with a flush behind each write as a store has
one behind each record; TCP, from one process to another. Then both at once: a process reads a file and sends, another receives, writes and
flushes. Each of these processes does one thing at a time, as a node with one reactor does, and all may use all cores, as nodes may.
"""

import json
import mmap
import multiprocessing
import os
import socket
import struct
import time

from clusters import new_folder, whole_file
from machine import MIB, run

# Files are gone over again and again: larger than what a processor keeps near.
FILE_BYTES = 512 * MIB
BLOCK = MIB
DEPTH = 4
SECONDS = 2


def measure(media):
    """MiB/s of each: `read` and `write` of the medium, `tcp`, and `copy`, which is all of it."""
    folder = new_folder(media)
    paths = [os.path.join(folder, name) for name in ("from.img", "to.img")]
    try:
        for path in paths:
            whole_file(path, FILE_BYTES, media)
        return {"read": medium(paths[0], "read"), "write": medium(paths[1], "write"), "tcp": over_tcp(SECONDS), "copy": over_tcp(SECONDS, *paths)}
    finally:
        for path in paths:
            if os.path.exists(path):
                os.remove(path)
        os.rmdir(folder)


def slower(gives):
    """What the slower of disk and network gives; the disk is read on one side and written on the other."""
    return min(gives["read"], gives["write"], gives["tcp"])


def medium(path, rw):
    flush = ["--fdatasync=1"] if rw == "write" else []
    out = run(["fio", "--output-format=json", "--name=medium", f"--filename={path}", f"--rw={rw}", f"--bs={BLOCK}", f"--size={FILE_BYTES}",
               "--ioengine=io_uring", f"--iodepth={DEPTH}", "--direct=1", "--time_based", "--ramp_time=0.5", f"--runtime={SECONDS}", *flush])
    return json.loads(out[out.index("{"):])["jobs"][0][rw]["bw_bytes"] / MIB


def over_tcp(seconds, source=None, sink=None):
    """MiB/s from another process to this one, from a file and into one if they are named."""
    block, count = mmap.mmap(-1, BLOCK), 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = multiprocessing.get_context("fork").Process(target=send, args=(listener.getsockname(), seconds, source))
        sender.start()
        try:
            listener.settimeout(seconds_max(seconds))
            stream, _ = listener.accept()
            with stream, Blocks(sink, os.O_WRONLY) as file:
                # The kernel's own timeout: with Python's a socket does not wait for all of a block.
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds_max(seconds), 0))
                began = time.monotonic()
                while stream.recv_into(block, BLOCK, socket.MSG_WAITALL) == BLOCK:
                    file.write(block)
                    count += 1
                took = time.monotonic() - began
        finally:
            sender.join(timeout=seconds_max(0))
            sender.kill()
    if count == 0:
        raise RuntimeError(f"nothing was copied from {source or 'memory'}")
    return count * BLOCK / MIB / took


def seconds_max(seconds):
    """What ends so late has failed."""
    return int(seconds) + 10


def send(address, seconds, source):
    """Blocks, from the file if there is one, for so long."""
    block = mmap.mmap(-1, BLOCK)
    with socket.create_connection(address) as stream, Blocks(source, os.O_RDONLY) as file:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            file.read(block)
            stream.sendall(block)


class Blocks:
    """A file, block after block and from its beginning again; without a path nothing is done."""

    def __init__(self, path, flags):
        self.file, self.at, self.size = None, 0, FILE_BYTES
        if path:
            self.file = opened(path, flags)
            self.size = os.fstat(self.file).st_size // BLOCK * BLOCK

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.file is not None:
            os.close(self.file)

    def read(self, block):
        if self.file is not None:
            self.went(os.preadv(self.file, [block], self.at))

    def write(self, block):
        if self.file is not None:
            self.went(os.pwritev(self.file, [block], self.at))
            os.fdatasync(self.file)

    def went(self, count):
        if count != BLOCK:
            raise RuntimeError(f"{count} of {BLOCK} bytes went at {self.at}")
        self.at = (self.at + BLOCK) % self.size


def opened(path, flags):
    """Past the page cache, where the file system can."""
    try:
        return os.open(path, flags | os.O_DIRECT)
    except OSError:
        return os.open(path, flags)
