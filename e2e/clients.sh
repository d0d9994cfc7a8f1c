#!/bin/bash
# NBD as its everyday clients speak it: fio, libnbd, QEMU, against `cairn demo` in a directory of its own.
# What is written is read back verified, also after a restart.
# Time: 150 s.
. "$(dirname "$0")/lib.sh"

start_demo --device-size 2G --volume small:256M --volume big:512M:4096
small=$(field small nbd_uri) big=$(field big nbd_uri)

fio_verify() { # fio_verify NAME URI BLOCKSIZE DEPTH SIZE RW OPTIONS...
    local name=$1 uri=$2 block=$3 depth=$4 size=$5 rw=$6; shift 6
    check "fio $name: $rw of $block at depth $depth, verified" \
        fio --name="$name" --ioengine=nbd --uri="$uri" --rw="$rw" --bs="$block" --iodepth="$depth" --size="$size" \
        --verify=crc32c --verify_fatal=1 --do_verify=1 --eta=never --output="$work/fio.out" "$@" || cat "$work/fio.out"
}

if need fio fio; then
    for uri in "$small" "$big"; do
        fio_verify "${uri##*/}" "$uri" 512 1 512k randwrite
        fio_verify "${uri##*/}" "$uri" 4k 1 4m randwrite
        fio_verify "${uri##*/}" "$uri" 4k 16 32m randwrite
        fio_verify "${uri##*/}" "$uri" 512 128 4m randwrite
        fio_verify "${uri##*/}" "$uri" 4k 128 64m randwrite
        fio_verify "${uri##*/}" "$uri" 64k 32 128m randwrite
        fio_verify "${uri##*/}" "$uri" 1M 1 64m write
        fio_verify "${uri##*/}" "$uri" 1M 128 192m randwrite
    done
    fio_verify mixed "$small" 4k 128 64m randrw --bsrange=512-1M --bs_unaligned=0 --blockalign=512
fi

if need nbdinfo nbdinfo; then
    check "nbdinfo tells the size" sh -c '[ "$(nbdinfo --size "$1")" = 268435456 ]' - "$small"
    check "nbdinfo --list names both volumes" sh -c \
        'nbdinfo --list --json "$1" | python3 -c "import json, sys; names = {e[\"export-name\"] for e in json.load(sys.stdin)[\"exports\"]}; assert {\"small\", \"big\"} <= names, names"' \
        - "${small%/*}"
    check "nbdinfo tells block sizes and flags" sh -c \
        'nbdinfo --json "$1" | python3 -c "
import json, sys
e = json.load(sys.stdin)[\"exports\"][0]
assert (e[\"block_size_minimum\"], e[\"block_size_preferred\"], e[\"block_size_maximum\"]) == (1, 4096, 33554432), e
for flag in (\"can_flush\", \"can_fua\", \"can_multi_conn\", \"can_trim\", \"can_zero\"):
    assert e[flag], flag
assert not e[\"is_read_only\"]
"' - "$small"
    check "nbdinfo refuses a volume that is not there" sh -c '! nbdinfo "$1/none"' - "${small%/*}"
fi

if need nbdcopy nbdcopy; then
    head -c 100000000 /dev/urandom > "$work/in.raw"
    truncate -s 256M "$work/in.raw"
    check "nbdcopy into a volume" nbdcopy --flush "$work/in.raw" "$small"
    check "nbdcopy out of it" nbdcopy "$small" "$work/out.raw"
    check "nothing differs" cmp "$work/in.raw" "$work/out.raw"
    rm -f "$work/out.raw"
fi

if need qemu-img qemu-img; then
    head -c 200000000 /dev/urandom > "$work/qemu.raw"
    truncate -s 512M "$work/qemu.raw"
    check "qemu-img convert into a volume" qemu-img convert -n -f raw -O raw "$work/qemu.raw" "$big"
    check "qemu-img compare finds nothing" qemu-img compare -f raw -F raw "$work/qemu.raw" "$big"
    check "qemu-img convert out of it as qcow2" qemu-img convert -f raw -O qcow2 "$big" "$work/copy.qcow2"
    check "and that is the same" qemu-img compare -f raw -F qcow2 "$big" "$work/copy.qcow2"
fi

stop_demo
start_demo
small=$(field small nbd_uri) big=$(field big nbd_uri)
if [ -s "$work/in.raw" ]; then
    check "after a restart nbdcopy reads it" nbdcopy "$small" "$work/out.raw"
    check "after a restart nothing differs" cmp "$work/in.raw" "$work/out.raw"
fi
if [ -s "$work/qemu.raw" ]; then
    check "after a restart qemu-img compare finds nothing" qemu-img compare -f raw -F raw "$work/qemu.raw" "$big"
fi
check "the cluster is healthy" sh -c '"$1" status -o json | grep -q "\"health\": \"healthy\""' - "$cairn"
stop_demo
finish
