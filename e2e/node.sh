#!/bin/bash
# A node from its file: devices are formatted by hand and by nobody else, one is added while it serves, all is found again.
# Time: 120 s.
. "$(dirname "$0")/lib.sh"

need node losetup mkfs.ext4 mount umount fio python3 || finish

device() { truncate -s "${2:-512M}" "$work/$1"; "$cairn" device format "$work/$1"; }
status() { "$cairn" status -o json | python3 -c "import json, sys; s = json.load(sys.stdin); $1"; }

start_node() {
    : > "$work/ready"
    "$cairn" node run --config "$work/node.toml" > "$work/ready" 2>> "$work/demo.log" &
    demo_pid=$!
    local tries
    for tries in $(seq 300); do
        grep -q '^ready' "$work/ready" && break
        kill -0 "$demo_pid" 2> /dev/null || break
        sleep 0.1
    done
    export CAIRN_ADMIN=$(sed -n 's/^ready.* admin=\([^ ]*\).*/\1/p' "$work/ready")
    grep -q '^ready' "$work/ready"
}

write_and_verify() {
    fio --name="$1" --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=randwrite --bs=64k --iodepth=8 --size=64M \
        --verify=crc32c --verify_fatal=1 --do_verify=1 --eta=never
}
verify() {
    fio --name="$1" --ioengine=nbd --uri="$(field "$1" nbd_uri)" --rw=randwrite --bs=64k --iodepth=8 --size=64M \
        --verify=crc32c --verify_fatal=1 --verify_only=1 --eta=never
}

truncate -s 0 "$work/empty"
check "an empty file is not formatted" refused "truncate -s" "$cairn" device format "$work/empty"
check "a directory is not formatted" refused "neither a block device" "$cairn" device format "$work"
truncate -s 512M "$work/ext4" && mkfs.ext4 -q -F "$work/ext4"
check "a file system is not formatted, and named" refused "an ext file system" "$cairn" device format "$work/ext4"
truncate -s 512M "$work/tail" && printf x | dd of="$work/tail" bs=1 seek=$((512 * 1048576 - 9)) conv=notrunc 2> /dev/null
check "a byte at the end is somebody's" refused "last MiB" "$cairn" device format "$work/tail"
check "with --force it is nobody's" "$cairn" device format "$work/tail" --force
check "a Cairn store is not formatted again" refused "a Cairn store" "$cairn" device format "$work/tail"
check "but by --force" "$cairn" device format "$work/tail" --force
loop=$(losetup --find --show "$work/ext4")
trap 'umount "$work/mnt"; losetup --detach "$loop"; cleanup' EXIT
check "what a loop device uses is not formatted, whatever is said" \
    refused "loop device" "$cairn" device format "$work/ext4" --force
mkdir "$work/mnt" && mount "$loop" "$work/mnt"
check "what is mounted is not formatted, whatever is said" refused "the mount at" "$cairn" device format "$loop" --force
umount "$work/mnt"; losetup --detach "$loop"
trap cleanup EXIT

truncate -s 512M "$work/blank"
ports='nvme_port = 0
nbd_port = 0
admin_port = 0
cores = 2'
printf '%s\n[[device]]\npath = "blank"\n' "$ports" > "$work/node.toml"
check "a node does not format" refused "cairn device format" "$cairn" node run --config "$work/node.toml"
printf '%s\nlisten = 5\n[[device]]\npath = "one"\n' "$ports" > "$work/node.toml"
check "an error in the file has its line" refused "line 5" "$cairn" node run --config "$work/node.toml"

check "a device is formatted" device one
printf '# By hand.\n%s\n[[device]]\npath = "one"\n' "$ports" > "$work/node.toml"
check "a node is started with it" start_node
check "what a node serves is not formatted" refused "in use" "$cairn" device format "$work/one" --force
"$cairn" volume create before --size 256M > /dev/null
if need fio fio; then check "a volume is written, verified" write_and_verify before; fi
check "a blank device is not added" refused "cairn device format" "$cairn" device add "$work/blank"
check "a second device is formatted" device two 1G
check "it is added while the node serves" "$cairn" device add "$work/two"
check "once only" refused "serves already" "$cairn" device add "$work/two"
check "both are listed" sh -c '[ "$("$1" device ls | wc -l)" = 3 ]' - "$cairn"
check "the cluster is healthy, with twice the groups" status 'assert s["health"] == "healthy" and s["groups"] == 200, s'
"$cairn" volume create after --size 256M > /dev/null
if need fio fio; then check "a volume made now is written, verified" write_and_verify after; fi
check "it lies on both devices, more of it where there is more room" status \
    'a, b = (d["live_bytes"] for d in s["devices"]); assert b > 32 << 20 and a > 64 << 20, (a, b)'
stop_demo
check "the file names the new device and keeps what was written by hand" sh -c \
    'grep -q "^# By hand" "$1" && grep -q "/two\"" "$1"' - "$work/node.toml"
check "the node is started again, with both" start_node
check "the cluster is healthy" status 'assert s["health"] == "healthy" and s["groups_serving"] == 200, s'
if need fio fio; then
    check "what was written before is there" verify before
    check "what was written after is there" verify after
fi
stop_demo
mv "$work/two" "$work/two.kept" && truncate -s 1G "$work/two" && "$cairn" device format "$work/two" > /dev/null
check "another device in the place of one with data is refused" \
    refused "newly formatted" "$cairn" node run --config "$work/node.toml"
finish
