#!/usr/bin/env python3
"""Runs every command of README.md, in order, and compares what README says that they print.

    readme.py run README CAIRN KERNEL_CLIENT    all of it, in the working directory; the network must be its own
    readme.py guest README PLACE FIRST LAST     in the guest: the commands of these lines (called by `run`)

What is run: each line of each ```sh block, and each `inline` one of the text that begins with a program of PROGRAMS.
One shell lives from the first to the last, so a variable that a line sets is there for the next. A block without a
language, after the first commands, is what the server that runs printed. Behind `name=$(…)` a comment of one word is
the value.

    make X                  is asked whether it knows X (`make -n X`); `make run` ends in the server, which is started
    cairn demo, node run    serve: the next command follows when they are ready
    with a WORD in capitals as argument (inline), or a bare server: `--help` behind it, so words and flags must be known

An HTML comment before a block or paragraph says where and after what it runs:

    <!-- e2e: guest -->             in a guest with a Linux kernel, as root; this machine's ports are the guest's
    <!-- e2e: disks -->             in such a guest that has three NVMe disks of its own, each time anew
    <!-- e2e: stopped -->           while the server is stopped
    <!-- e2e: first COMMAND -->     this command goes before
Exit status: 0; 1 with a line `FAIL  README.md:LINE: …` at the first command that is not as README says.
"""

import collections
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

PROGRAMS = ("cairn", "curl", "nbdcopy", "nbdinfo", "apt")
SERVERS = ("cairn demo", "cairn node run")
COMMAND_TIME_MAX = 240
READY_TIME_MAX = 30
PORTS = (4420, 10809, 8420)
PLACES = ("host", "guest", "disks", "stopped")
# `first` has the number of the line that it stands before.
Item = collections.namedtuple("Item", "line place kind text")


class Wrong(Exception):
    """Something is not as README says."""


def parse(text):
    """README as Items in order; kinds: command, inline, shown (text: the whole block)."""
    items, place, lines, n = [], "host", text.split("\n"), 0
    while n < len(lines):
        line = lines[n]
        mark = re.fullmatch(r"<!-- e2e: (\w+) ?(.*?) ?-->", line)
        if mark and mark[1] == "first":
            items.append(Item(n + 1, place, "command", mark[2]))
        elif mark:
            if mark[1] not in PLACES or mark[2]:
                raise Wrong(f"README.md:{n + 1}: what is the mark {line}?")
            place = mark[1]
        elif line.startswith("<!-- e2e"):
            raise Wrong(f"README.md:{n + 1}: what is the mark {line}?")
        elif line.startswith("```"):
            language, first, n = line[3:], n + 1, n + 1
            while lines[n] != "```":
                n += 1
            if language == "sh":
                items += commands(lines[first:n], first + 1, place)
            elif language == "" and items:
                items.append(Item(first + 1, place, "shown", "\n".join(lines[first:n])))
            elif language != "":
                raise Wrong(f"README.md:{first}: a block in the language {language!r} is not run")
            place = "host"
        elif line:
            first = n
            while n + 1 < len(lines) and lines[n + 1] and not lines[n + 1].startswith(("```", "<!-- e2e")):
                n += 1
            items += inline(lines[first:n + 1], first + 1, place)
            place = "host"
        n += 1
    return items


def inline(lines, number, place):
    """The commands in a paragraph; one may be broken over two lines."""
    items, text = [], "\n".join(lines)
    for span in re.finditer(r"`([^`]+)`", text):
        words = span[1].split()
        if len(words) > 1 and words[0] in PROGRAMS:
            line = number + text.count("\n", 0, span.start())
            items.append(Item(line, place, "inline", span[1].replace("\n", " ")))
    return items


def commands(lines, number, place):
    """The commands of a block; a line that ends in a backslash goes on."""
    items, begun = [], None
    for offset, line in enumerate(lines):
        begun = (number + offset, line) if begun is None else (begun[0], begun[1] + "\n" + line)
        if not line.endswith("\\"):
            if begun[1].strip() and not begun[1].startswith("#"):
                # What asks for root wants the kernel.
                items.append(Item(begun[0], "guest" if line.startswith("sudo ") else place, "command", begun[1]))
            begun = None
    return items


class Shell:
    """A bash that lives from the first command to the last."""

    def __init__(self, environment):
        control, self.write_end = os.pipe()
        self.told, done = os.pipe()
        with open("shell.out", "wb") as out:
            self.process = subprocess.Popen(["bash", "--norc"], stdin=control, stdout=out, stderr=out, env=environment,
                                            pass_fds=(done,), start_new_session=True)
        self.done = done
        os.close(control)
        self.server, self.served, self.ready = None, None, ""

    def run(self, text, seconds=COMMAND_TIME_MAX):
        """Exit status and output of one command, run in this shell itself: `cd`, variables and `export` stay."""
        with open("shell.out", "r+b") as out:
            out.truncate(0)
        # The braces end on a line of their own: a comment may stand behind the command.
        line = f"{{ {text}\n}} < /dev/null >> shell.out 2>&1 {self.done}>&-; echo $? >&{self.done}\n"
        os.write(self.write_end, line.encode())
        status, until = b"", time.monotonic() + seconds
        while not status.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0:
                raise Wrong(f"it did not end within {seconds} s")
            if not select.select([self.told], [], [], left)[0]:
                continue
            status += os.read(self.told, 64)
        with open("shell.out", "rb") as out:
            return int(status), out.read().decode("utf-8", "replace").strip("\0")

    def serve(self, text):
        """Starts a server behind the shell and waits for the line by which it says that it serves."""
        self.stop()
        self.served = text
        open("server.out", "w").close()
        status, said = self.run(f"{without_comment(text)} > server.out 2> server.log & echo $! > server.pid", 10)
        if status:
            raise Wrong(said)
        with open("server.pid", encoding="ascii") as file:
            self.server = int(file.read())
        for _ in range(READY_TIME_MAX * 10):
            with open("server.out", encoding="utf-8") as file:
                self.ready = file.read()
            if self.ready.startswith("ready") and self.ready.endswith("\n"):
                return
            if not os.path.exists(f"/proc/{self.server}"):
                break
            time.sleep(0.1)
        with open("server.log", encoding="utf-8") as log:
            raise Wrong(f"it does not say that it is ready: {log.read()[-1500:]}")

    def stop(self):
        """SIGTERM for the server, which must then end well."""
        if self.server is None:
            return
        server, self.server = self.server, None
        status, _ = self.run(f"kill -TERM {server} && wait {server}", 30)
        if status:
            raise Wrong(f"the server ended with {status} on SIGTERM")

    def close(self):
        """Ends everything that was started from it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def without_comment(text):
    return re.sub(r"\s+#.*", "", text, flags=re.DOTALL).strip()


def is_server(text):
    return without_comment(text).startswith(SERVERS) and "--help" not in text


class Runner:
    """Runs items on this side: on the machine, or in the guest."""

    def __init__(self, shell, words):
        self.shell, self.words = shell, words

    def command(self, item):
        text, line = item.text, without_comment(item.text)
        for word, value in self.words.items():
            text = re.sub(rf"(?<![\w$]){word}(?![\w=])", lambda _: value(), text)
        if line.startswith("apt install "):
            text = line.replace("apt install", "apt-get --simulate install")
        elif line.startswith("make "):
            text = f"make -n {line.removeprefix('make ')}"
        unfinished = line in SERVERS or re.search(r" [A-Z]{2,}\b", line)
        if item.kind == "inline" and line.startswith("cairn ") and unfinished:
            text = f"{without_comment(text)} --help"
        elif is_server(line):
            return self.shell.serve(line)
        if item.kind == "inline":
            # The text may name a command before the block that says where it is found.
            text = f"(PATH=$PATH:$PWD/target/release; {text})"
        status, said = self.shell.run(text)
        if status:
            raise Wrong(f"exit status {status}: {said[-1500:]}")
        if line == "make run":
            # What it would do in the end, it does.
            self.shell.serve(said.strip().split("\n")[-1])
        self.value(item.text)
        return None

    def value(self, text):
        """`name=$(…)   # VALUE`: it must be that."""
        given = re.match(r"(\w+)=\$\(.*\)\s+#\s+(\S+)$", text)
        if given:
            _, said = self.shell.run(f'printf %s "${given[1]}"')
            if said != given[2]:
                raise Wrong(f"{given[1]} is {said!r} and not {given[2]!r}")

    def shown(self, item):
        if item.text.strip() != self.shell.ready.strip():
            raise Wrong(f"README shows {item.text.strip()!r}, printed was {self.shell.ready.strip()!r}")

    def run(self, item):
        try:
            self.shown(item) if item.kind == "shown" else self.command(item)
        except Wrong as wrong:
            raise Wrong(f"README.md:{item.line}: {item.text.splitlines()[0]}: {wrong}") from None
        print(f"ok    README.md:{item.line}: {without_comment(item.text).splitlines()[0]}", flush=True)


def run_all(readme, cairn, kernel_client):
    """All of README, in the working directory, with this machine's part of it here and the rest in guests."""
    with open(readme, encoding="utf-8") as file:
        items = parse(file.read())
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("CAIRN_", "CARGO_"))}
    environment["HOME"] = os.getcwd()
    shell = Shell(environment)
    device = os.path.join(environment["HOME"], ".local/share/cairn/demo/node-1/device-1.img")

    def layer():
        done = subprocess.run(["tools/read-device.py", "list", "--json", device], stdout=subprocess.PIPE, check=True)
        return str(max(json.loads(done.stdout)["layers"], key=lambda layer: layer["chunks"])["layer"])

    runner = Runner(shell, {"PATH": lambda: device, "ID": layer, "FILE": lambda: "extracted.raw",
                            "ADDRESS": lambda: "0.0.0.0", "NAME": lambda: "demo"})
    try:
        n = 0
        while n < len(items):
            place, first = items[n].place, n
            while n < len(items) and items[n].place == place:
                n += 1
            if place in ("guest", "disks"):
                in_guest(kernel_client, readme, cairn, place, items[first].line, items[n - 1].line)
                continue
            if place == "stopped":
                shell.stop()
            elif shell.served and not shell.server:
                shell.serve(shell.served)
            for item in items[first:n]:
                runner.run(item)
        shell.stop()
    finally:
        shell.close()


def in_guest(kernel_client, readme, cairn, place, first, last):
    """The items of these lines, by this program, in a guest."""
    options = []
    if place == "disks":
        for number in range(3):
            with open(f"disk{number}", "wb") as disk:
                disk.truncate(1 << 30)
            options += [f"-drive file=disk{number},format=raw,if=none,id=d{number}",
                        f"-device nvme,serial=d{number},drive=d{number}"]
    done = subprocess.run(
        [kernel_client, "run", "--timeout", "180", "--qemu-args", " ".join(options),
         "--file", f"{readme}=README.md", "--file", f"{cairn}=cairn",
         os.path.abspath(__file__), "guest", "/host/in/README.md", place, str(first), str(last)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    print("".join(f"{line}\n" for line in done.stdout.splitlines() if line.startswith("ok ")), end="", flush=True)
    if done.returncode:
        failed = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
        raise Wrong("\n".join(failed).removeprefix("FAIL  ") or f"README.md:{first}: the guest: {done.stderr[-1500:]}")


def forward(port):
    """This machine's port is, in the guest too, a port of its 127.0.0.1."""
    listener = socket.create_server(("127.0.0.1", port))

    def pump(source, sink):
        while data := source.recv(1 << 18):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

    def accept():
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("10.0.2.2", port))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def run_guest(readme, place, first, last):
    """In the guest: what `in_guest` asks for."""
    with open(readme, encoding="utf-8") as file:
        items = [item for item in parse(file.read()) if item.place == place and first <= item.line <= last]
    os.chdir("/root")
    os.makedirs("/run/bin")
    shutil.copy("/host/in/cairn", "/run/bin/cairn")
    with open("/run/bin/sudo", "w", encoding="ascii") as sudo:
        sudo.write('#!/bin/sh\nexec "$@"\n')
    os.chmod("/run/bin/sudo", 0o755)
    if place == "guest":
        for port in PORTS:
            forward(port)
    else:
        # A machine with such disks has loaded this at its start.
        subprocess.run(["modprobe", "nvme"], check=True)
        while not os.path.exists("/dev/nvme2n1"):
            time.sleep(0.1)
    shell = Shell(dict(os.environ, PATH=f"/run/bin:{os.environ['PATH']}"))
    try:
        for item in items:
            Runner(shell, {}).run(item)
        shell.stop()
    finally:
        shell.close()


def main():
    # What was started ends too when this is told to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if sys.argv[1:2] == ["run"] and len(sys.argv) == 5:
            run_all(*(os.path.abspath(path) for path in sys.argv[2:]))
        elif sys.argv[1:2] == ["guest"] and len(sys.argv) == 6:
            run_guest(*sys.argv[2:4], *map(int, sys.argv[4:]))
        else:
            sys.exit(__doc__)
    except Wrong as wrong:
        print(f"FAIL  {wrong}")
        sys.exit(1)


main()
