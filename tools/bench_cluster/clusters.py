"""The contestants: three processes of Cairn with an etcd, and Ceph; both on files in memory or on a disk, made and removed here."""

import json
import mmap
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from machine import CAIRN, ENGINE, GIB, MIB, children, run

MEMORY = "/dev/shm"
NODES = (1, 2, 3)
READY_S = 60
PEER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "peers", "ceph", "ceph")
CEPH_PORT = 17300


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(what, is_so, seconds=READY_S, every=0.1):
    """Seconds that it took."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > seconds:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(every)
    return time.monotonic() - began


def whole_file(path, size, media):
    """A file that holds something everywhere: no load pays for its allocation."""
    if media == "memory":
        run(["fallocate", "--length", size, path])
        with open(path, "rb") as file:
            mmap.mmap(file.fileno(), size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ).close()
        return
    with open(path, "wb") as file:
        for _ in range(size // (4 * MIB)):
            file.write(bytes(4 * MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def new_folder(media):
    """On tmpfs, or on what `out` lies on."""
    parent = MEMORY if media == "memory" else os.path.abspath("out")
    os.makedirs(parent, exist_ok=True)
    return tempfile.mkdtemp(dir=parent, prefix="cairn-cluster-")


class Etcd:
    """One member, its files beside those of the nodes."""

    def __init__(self, folder):
        self.url, peers = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        self.data = os.path.join(folder, "etcd")
        with open(os.path.join(folder, "etcd.log"), "wb") as log:
            self.process = subprocess.Popen(
                ["etcd", "--name", "e", "--data-dir", self.data, "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                 "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"e={peers}",
                 "--quota-backend-bytes", str(8 * GIB)],
                stdout=log, stderr=log)
        wait_until("etcd answers", self.answers)

    def answers(self):
        port = int(self.url.rpartition(":")[2])
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    def stop(self):
        self.process.kill()
        self.process.wait()


class Cairn:
    """Three `cairn node run`, one reactor each, a device each, and etcd."""

    def __init__(self, media, device_bytes):
        self.folder, self.nodes, self.admins = new_folder(media), {}, {}
        self.log = open(os.path.join(self.folder, "nodes.log"), "wb")
        self.etcd = None
        try:
            self.etcd = Etcd(self.folder)
            for number in NODES:
                device = os.path.join(self.folder, f"device-{number}.img")
                whole_file(device, device_bytes, media)
                run([CAIRN, "init" if number == 1 else "join", "--etcd", self.etcd.url, "--listen", "127.0.0.1", "--device", device,
                     "--dir", self.home(number), "--nvme-port", "0", "--nbd-port", "0", "--admin-port", "0",
                     "--peers-port", str(free_port()), "--cores", "1"])
            for number in NODES:
                self.start(number, waits=False)
            for number in NODES:
                self.ready(number)
            wait_until("the cluster is whole", self.is_whole)
        except BaseException:
            self.stop()
            raise

    def home(self, number):
        return os.path.join(self.folder, f"node-{number}")

    def start(self, number, waits=True):
        self.nodes[number] = subprocess.Popen([CAIRN, "node", "run", "--config", os.path.join(self.home(number), "node.toml")],
                                              stdout=subprocess.PIPE, stderr=self.log, text=True)
        if waits:
            self.ready(number)

    def ready(self, number):
        for line in self.nodes[number].stdout:
            if line.startswith("ready"):
                self.admins[number] = re.search(r"admin=(\S+)", line)[1]
                return
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            raise RuntimeError(f"node {number} ended before it was ready; its log ends with:\n{file.read()[-2000:]}")

    def stop_node(self, number):
        self.nodes[number].terminate()
        if self.nodes[number].wait(timeout=READY_S) != 0:
            raise RuntimeError(f"node {number} did not stop in order")

    def ask(self, *words, node=1):
        out = run([CAIRN, "--admin", self.admins[node], *words])
        return json.loads(out) if "json" in words else out

    def is_whole(self, node=1):
        # Not by `cairn`: beside a load that is measured, a process for each look is a load, too.
        try:
            with urllib.request.urlopen(f"{self.admins[node]}/v1/status", timeout=10) as answer:
                status = json.load(answer)
        except OSError:
            return False
        return status["health"] == "healthy" and status["groups_serving"] == status["groups"] >= 100

    def create(self, name, size, placement):
        """For any NVMe host, too."""
        self.ask("volume", "create", name, "--size", str(size), "--placement", placement, "--any-host")

    def head(self, name):
        """The node that serves it; None as long as none does, or a program has it."""
        head = self.ask("volume", "info", name, "-o", "json").get("head") or ""
        return head if head.startswith("node-") else None

    def namespace(self, name):
        """It as `cairn-bench nvme` names it, at its head, once a node is that: after a program had it, that takes a moment."""
        wait_until("a node is the volume's head", lambda: self.head(name))
        info = self.ask("volume", "info", name, "-o", "json")
        return ["nvme", info["nvme_addresses"][0], info["nqn"], info["nsid"]]

    def volume(self, name, size, placement):
        """Its target for fio, written from end to end; its head."""
        self.create(name, size, placement)
        wait_until("the volume has a head", lambda: self.head(name))
        info = self.ask("volume", "info", name, "-o", "json")
        target = ["--ioengine=nbd", f"--uri={info['nbd_uri']}"]
        run(["fio", "--name=fill", *target, "--rw=write", "--bs=256k", "--iodepth=8", f"--size={size}"])
        return target, int(info["head"].rpartition("-")[2])

    def program(self, name):
        """The target of fio's engine over libcairn for a volume that is there."""
        conf = os.path.join(self.folder, "client.toml")
        with open(conf, "w", encoding="utf-8") as file:
            file.write(f'[map]\netcd = ["{self.etcd.url}"]\n')
        return [f"--ioengine=external:{ENGINE}", f"--uri=cairn:{name}?conf={conf}"]

    def processes(self):
        """Workers of the nodes, and etcd."""
        workers = {f"node {number}": children(node.pid)[0] for number, node in self.nodes.items() if node.poll() is None}
        return {**workers, "etcd": self.etcd.process.pid}

    def stop(self):
        for node in self.nodes.values():
            if node.poll() is None:
                node.terminate()
        for node in self.nodes.values():
            try:
                node.wait(timeout=READY_S)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        if self.etcd:
            self.etcd.stop()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Ceph:
    """Three OSDs by tools/peers/ceph; its image is written from end to end."""

    def __init__(self, media, device_bytes, size):
        self.folder = tempfile.mkdtemp(prefix="ceph-", dir=os.path.abspath("out")) if media == "disk" else tempfile.mkdtemp(prefix="ceph-")
        os.rmdir(self.folder)
        out = self.runner("up", "--media", "mem" if media == "memory" else "disk", "--osd-size", f"{device_bytes // MIB}M", "--osd-memory", "1G",
                          "--image", f"bench:{size // MIB}M", "--port", str(CEPH_PORT))
        os.environ["CEPH_CONF"] = re.search(r"^conf: (\S+)", out, re.M)[1]
        self.target = ["--ioengine=rbd", "--clientname=admin", "--pool=rbd", "--rbdname=bench"]
        run(["fio", "--name=fill", *self.target, "--rw=write", "--bs=4M", "--iodepth=16", f"--size={size}"])

    def runner(self, command, *words):
        return run([sys.executable, PEER, command, "--dir", self.folder, *words], timeout=600)

    def processes(self):
        return {name: one["pid"] for name, one in json.loads(self.runner("cpu"))["processes"].items()}

    def stop(self):
        self.runner("down")
        os.environ.pop("CEPH_CONF", None)
