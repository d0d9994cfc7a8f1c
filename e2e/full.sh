#!/bin/bash
# A full device as fio sees it: "No space left on device", overwrites that go on, and room again after a deletion.
# Time: 120 s.
. "$(dirname "$0")/lib.sh"

start_demo --device-size 512M --volume data:1G
uri=$(field data nbd_uri)

status() { "$cairn" status -o json | python3 -c "import json, sys; s = json.load(sys.stdin); $1"; }

# fill NAME URI: writes until it is refused; fio then says so and ends with an error.
fill() {
    fio --name="$1" --ioengine=nbd --uri="$2" --rw=write --bs=1M --iodepth=4 --size=1G --eta=never --output="$work/fio.out" \
        > /dev/null 2>&1
    grep -q 'No space left on device' "$work/fio.out"
}

if need fio fio; then
    check "nothing is promised or used in excess at first: used 0, overcommit above 200 %" status \
        'assert s["capacity"]["used_bytes"] < 1 << 20 and s["capacity"]["overcommit_percent"] > 200, s'
    check "fio fills the device and is told that there is no space left" fill data "$uri"
    check "status says that it is full, and what to do" status \
        'assert s["health"] == "degraded" and "full" in s["reasons"][0] and "volume delete" in s["reasons"][0], s'
    check "overwrites go on, verified" fio --name=overwrite --ioengine=nbd --uri="$uri" --rw=randwrite --bs=64k --iodepth=8 \
        --size=128M --io_size=256M --verify=crc32c --verify_fatal=1 --do_verify=1 --eta=never
    check "volume delete puts it into the trash" "$cairn" volume delete data
    check "where it takes its space" status 'assert s["capacity"]["used_bytes"] > 256 << 20 and s["trash"], s'
    check "status names the trash" status 'assert "trash" in s["reasons"][0], s'
    "$cairn" volume create again --size 1G > /dev/null
    again=$(field again nbd_uri)
    check "a new volume is refused new blocks meanwhile" fill again "$again"
    check "restoring it and deleting it for good" sh -c '"$1" trash restore data && "$1" volume delete data --now' - "$cairn"
    given_back() {
        local tries
        for tries in $(seq 600); do
            status 'sys.exit(s["volumes_deleting"] > 0 or s["capacity"]["used_bytes"] > 64 << 20)' && return 0
            sleep 0.1
        done
        return 1
    }
    check "its space comes back" given_back
    check "the new volume takes new blocks, verified" fio --name=again --ioengine=nbd --uri="$again" --rw=randwrite --bs=64k \
        --iodepth=8 --size=128M --verify=crc32c --verify_fatal=1 --do_verify=1 --eta=never
    check "the cluster is healthy again" status 'assert s["health"] == "healthy", s'
fi
stop_demo
finish
