#!/bin/bash
# NBD as backup tools and virtual machines use it: snapshots as exports, block status, incremental copies, a guest that
# boots from a volume.
# Time: 300 s (one minute; the first run builds the guest from Debian packages)
. "$(dirname "$0")/lib.sh"

# nbdsh is a module of Debian's Python.
nbdsh() { PATH=/usr/bin:$PATH command nbdsh "$@"; }
export -f nbdsh

start_demo --device-size 4G --volume data:256M --volume copy:256M --volume model:64M --volume boot:1G
server=nbd://127.0.0.1:$nbd_port
data=$server/data

# json FILE EXPRESSION: a statement about what FILE holds, in Python.
json() { python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); exec(sys.argv[2])' "$@"; }
# quietly FILE COMMAND...: with its standard output in FILE.
quietly() { local to=$1; shift; "$@" > "$to"; }

if need nbdsh nbdsh; then
    check "libnbd: status, contexts, snapshots, zeroes and errors are what a model says" \
        env CAIRN="$cairn" SERVER="$server" VOLUME=model PATH="/usr/bin:$PATH" nbdsh -c "exec(open('$root/e2e/nbd-session.py').read())"
fi

# 16 MiB of noise, a hole of 48, 8 of noise at the end of the first half; then some of it anew.
head -c 16M /dev/urandom > "$work/first.raw"
truncate -s 120M "$work/first.raw" && head -c 8M /dev/urandom >> "$work/first.raw" && truncate -s 256M "$work/first.raw"
cp --sparse=always "$work/first.raw" "$work/second.raw"
head -c 1M /dev/urandom | dd of="$work/second.raw" bs=1M seek=3 conv=notrunc status=none
dd if=/dev/zero of="$work/second.raw" bs=1M seek=8 count=2 conv=notrunc status=none
head -c 4096 /dev/urandom | dd of="$work/second.raw" bs=4096 seek=50000 conv=notrunc status=none

if need nbdcopy nbdcopy nbdinfo; then
    check "nbdcopy into a volume, sparse" nbdcopy "$work/first.raw" "$data"
    check "cairn snapshot create data@one" "$cairn" snapshot create data@one
    # Byte by byte the second state, each change in the way its client has.
    check "qemu-io writes, zeroes and writes a block" qemu-io -f raw "$data" \
        -c "write -s $work/second.raw 0 4k" -c "write -z -u 8M 2M" -c "flush"
    check "nbdcopy of what is new" bash -c 'dd if="$1/second.raw" of="$1/part" bs=1M skip=3 count=1 status=none &&
        nbdsh -u "$2" -c "h.pwrite(open(\"$1/part\", \"rb\").read(), 3 << 20)" \
            -c "f = open(\"$1/second.raw\", \"rb\"); f.seek(50000 * 4096); h.pwrite(f.read(4096), 50000 * 4096)"' - "$work" "$data"
    check "cairn snapshot create data@two" "$cairn" snapshot create data@two
    check "nbdcopy out of the first snapshot" nbdcopy "$data@one" "$work/one.out"
    check "it is what it was" cmp "$work/first.raw" "$work/one.out"
    check "and as sparse: at most 25 MiB of 256" sh -c '[ "$(du -m "$1" | cut -f1)" -le 25 ]' - "$work/one.out"
    check "nbdcopy out of the second one" nbdcopy "$data@two" "$work/two.out"
    check "it is what it became" cmp "$work/second.raw" "$work/two.out"
    check "nbdcopy from a snapshot to a volume" nbdcopy "$data@two" "$server/copy"
    check "nbdinfo --map of both" sh -c 'nbdinfo --map --json "$1" > "$3/a" && nbdinfo --map --json "$2" > "$3/b"' - "$data@two" "$server/copy" "$work"
    check "is the same, hole by hole" cmp "$work/a" "$work/b"
    check "and has holes where there are: 24 MiB less 2, and a block, are data" json "$work/a" \
        'assert sum(e["length"] for e in j if not e["type"] & 1) == (22 << 20) + 4096, j'
    check "nbdinfo --map=cairn:dirty:one" quietly "$work/dirty" nbdinfo --map=cairn:dirty:one --json "$data@two"
    check "tells exactly what was touched" json "$work/dirty" \
        'd = [(e["offset"], e["length"]) for e in j if e["type"] & 1]; assert d == [(0, 4096), (3 << 20, 1 << 20), (8 << 20, 2 << 20), (50000 * 4096, 4096)], d'
    check "nbdinfo --list names the snapshots" sh -c \
        'nbdinfo --list --json "$1" | python3 -c "import json, sys; n = {e[\"export-name\"]: e for e in json.load(sys.stdin)[\"exports\"]}; assert n[\"data@one\"][\"is_read_only\"] and not n[\"data\"][\"is_read_only\"], n"' - "$server"
    check "a snapshot that is not there is told as such" sh -c 'LIBNBD_DEBUG=1 nbdinfo "$1" 2>&1 | grep -q "no snapshot named none"' - "$data@none"
fi

if need qemu-img qemu-img qemu-io; then
    check "qemu-img info" sh -c 'qemu-img info --output=json "$1" | grep -q "\"virtual-size\": 268435456"' - "$data@one"
    check "qemu-img map" quietly "$work/map" qemu-img map -f raw --output=json "$data@one"
    check "tells holes and data" json "$work/map" \
        'assert [(e["start"], e["length"]) for e in j if e["data"]] == [(0, 16 << 20), (120 << 20, 8 << 20)], j'
    check "qemu-img map with x-dirty-bitmap" quietly "$work/map" qemu-img map --output=json --image-opts \
        "driver=nbd,host=127.0.0.1,port=$nbd_port,export=data@two,x-dirty-bitmap=cairn:dirty:one"
    # QEMU shows the flags as those of an allocation: dirty is no data.
    check "tells what is dirty" json "$work/map" \
        'd = [(e["start"], e["length"]) for e in j if not e["data"]]; assert d == [(0, 4096), (3 << 20, 1 << 20), (8 << 20, 2 << 20), (50000 * 4096, 4096)], d'
    # An incremental backup into a qcow2 over the full one: only what is dirty is read.
    check "qemu-img: a full backup" qemu-img convert -f raw -O qcow2 "$data@one" "$work/full.qcow2"
    check "qemu-img: an empty one over it" qemu-img create -q -f qcow2 -b full.qcow2 -F qcow2 "$work/inc.qcow2"
    cat > "$work/inc.py" << 'PYTHON'
import json, subprocess, sys
work, uri = sys.argv[1:]
for extent in json.load(open(f"{work}/map")):
    if extent["data"]:
        continue
    at, left = extent["start"], extent["length"]
    while left:
        step = min(left, 1 << 20)
        subprocess.run(["qemu-img", "dd", "-f", "raw", "-O", "raw", "bs=4096", f"skip={at // 4096}",
                        f"count={(at + step) // 4096}", f"if={uri}", f"of={work}/piece"], check=True)
        subprocess.run(["qemu-io", "-f", "qcow2", "-c", f"write -q -s {work}/piece {at} {step}", f"{work}/inc.qcow2"], check=True)
        at, left = at + step, left - step
PYTHON
    check "qemu-img dd and qemu-io carry over what is dirty" python3 "$work/inc.py" "$work" "$data@two"
    check "qemu-img compare: both together are the second snapshot" qemu-img compare -f qcow2 -F raw "$work/inc.qcow2" "$data@two"
    check "qemu-img convert of a snapshot" qemu-img convert -f raw -O raw "$data@two" "$work/qemu.raw"
    check "is what it holds" cmp "$work/second.raw" "$work/qemu.raw"
    check "qemu-io: patterns, zeroes with and without space, discard" qemu-io -f raw "$server/copy" \
        -c "write -q -P 0x5a 200M 1M" -c "read -q -P 0x5a 200M 1M" -c "write -q -z 200M 64k" -c "read -q -P 0 200M 64k" \
        -c "write -q -z -u 201M 64k" -c "discard -q 200512k 64k" -c "read -q -P 0 200512k 64k" -c "flush"
    check "zeroes that keep their space are allocated, the others are not" sh -c \
        'qemu-img map -f raw --output=json "$1" > "$2/map"' - "$server/copy" "$work"
    check "as the map tells" json "$work/map" \
        'a = [e for e in j if e["start"] <= 200 << 20 < e["start"] + e["length"]]; b = [e for e in j if e["start"] <= 200512 << 10 < e["start"] + e["length"]]; assert a[0]["data"] and not b[0]["data"], j'
    check "qemu-io is refused to write to a snapshot" sh -c '! qemu-io -f raw -c "write 0 4k" "$1"' - "$data@one"
fi

if need nbdkit nbdkit; then
    check "nbdkit's nbd plugin passes status and data on" nbdkit -U - nbd "uri=$data@two" \
        --run "nbdinfo --map --json \$uri > $work/b && nbdcopy \$uri $work/kit.out"
    check "the map is the same" cmp "$work/a" "$work/b"
    check "the data is" cmp "$work/second.raw" "$work/kit.out"
fi

if need fio fio; then
    check "fio reads a snapshot at random" fio --name=snapshot --ioengine=nbd --uri="$data@one" --rw=randread --bs=4k --iodepth=32 \
        --size=64M --eta=never --output="$work/fio.out"
    check "fio writes 32 MiB at random, verified" fio --name=write --ioengine=nbd --uri="$server/copy" --rw=randwrite --bs=4k \
        --iodepth=16 --size=32M --verify=crc32c --verify_fatal=1 --do_verify=1 --eta=never --output="$work/fio.out"
    check "fio trims them" fio --name=trim --ioengine=nbd --uri="$server/copy" --rw=randtrim --bs=4k --iodepth=16 --size=32M \
        --eta=never --output="$work/fio.out"
    check "which leaves a hole" sh -c 'nbdinfo --map --json "$1" > "$2/map"' - "$server/copy" "$work"
    check "of 32 MiB, seen at once" json "$work/map" 'assert j[0]["type"] == 3 and j[0]["length"] >= 32 << 20, j[0]'
fi

# Encrypted: there is nothing to open before the volume is unlocked.
head -c 64 /dev/urandom > "$work/key"
"$cairn" volume create secret --size 64M --encrypt --key-file "$work/key" > /dev/null
check "an encrypted volume gets a snapshot" sh -c 'nbdcopy "$3/part" "$2/secret" && "$1" snapshot create secret@s' - "$cairn" "$server" "$work"
check "locked" "$cairn" volume lock secret
check "its snapshot is no export, and says why" sh -c 'LIBNBD_DEBUG=1 nbdinfo "$1" 2>&1 | grep -q "secret is locked"' - "$server/secret@s"
check "unlocked" "$cairn" volume unlock secret --key-file "$work/key"
check "it reads as it was" sh -c 'nbdcopy "$1/secret@s" "$2/secret.out" && cmp -n 1048576 "$2/part" "$2/secret.out"' - "$server" "$work"

if need guest qemu-system-x86_64 qemu-img syslinux mformat mcopy debugfs dpkg-deb apt-get; then
    kernel_client=$root/tools/kernel-client/kernel-client
    check "a disk is made: boot loader, kernel, initramfs, root" "$kernel_client" disk "$work/disk.raw"
    guest() { # guest NAME ARGS...: boots from the export and shows what the guest says
        local name=$1; shift
        mkdir -p "$work/$name"
        "$kernel_client" run --timeout 200 --boot "$server/boot" --out "$work/$name" \
            "$root/e2e/guest/nbd-root.sh" "$@" > "$work/$name.out" 2> "$work/$name.err"
        local status=$?
        sed 's/^/      /' "$work/$name.out"
        passed=$((passed + $(grep -c '^PASS:' "$work/$name.out"))) failed=$((failed + $(grep -c '^FAIL:' "$work/$name.out")))
        [ $status = 0 ] && pass "guest: $name" || { fail "guest: $name (exit status $status)"; tail -n 8 "$work/$name.err"; }
    }
    check "qemu-img puts it onto a volume" qemu-img convert -n -f raw -O raw "$work/disk.raw" "$server/boot"
    rm "$work/disk.raw"
    guest first first
    check "a snapshot of the machine's disk" "$cairn" snapshot create boot@first
    stop_demo
    start_demo
    server=nbd://127.0.0.1:$nbd_port
    guest again again "$(cat "$work/first/sum")"
    # The second partition, which has all that is not the boot loader's 65 MiB.
    check "the host finds the guest's file in the snapshot" sh -c 'nbdcopy "$1/boot@first" "$2/disk.raw" &&
        dd if="$2/disk.raw" of="$2/boot.raw" bs=1M skip=65 conv=sparse status=none &&
        debugfs -R "dump /root/noise $2/noise" "$2/boot.raw" && [ "$(sha256sum < "$2/noise")" = "$(cat "$2/first/sum")  -" ]' - "$server" "$work"
    check "and a file system without a fault" e2fsck -fn "$work/boot.raw"
fi

check "the cluster is healthy" sh -c '"$1" status -o json | grep -q "\"health\": \"healthy\""' - "$cairn"
stop_demo
finish
