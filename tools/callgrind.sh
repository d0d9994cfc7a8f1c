#!/bin/bash
# Instructions per 4 KiB request, counted by callgrind: `cairn demo` on one core, its device file in memory, requests in
# waves of 32. Start, warm-up and end are the same in a short and a long run; the difference is the requests alone.
# Only instructions in user space are counted: the kernel's (TCP, tmpfs) are not among them.
#   tools/callgrind.sh            prints the table of docs/performance.md
set -eu
cd "$(dirname "$0")/.."
command -v valgrind > /dev/null || { echo "callgrind: valgrind is missing: run 'make deps'" >&2; exit 1; }
depth=32 short=2000 long=12000

target=${CARGO_TARGET_DIR:-$PWD/target}
[ -n "${CAIRN_BIN:-}" ] || cargo build --release --bin cairn
cargo build --release -p cairn-e2e --example requests
binary=${CAIRN_BIN:-$target/release/cairn}
work=$(mktemp -d "${TMPDIR:-/tmp}/cairn-callgrind.XXXXXX")
trap 'rm -rf "$work"' EXIT

cc -O2 -shared -fPIC -o "$work/enter.so" tools/callgrind-enter.c
# What `requests` starts in place of cairn.
cat > "$work/cairn" << END
#!/bin/bash
LD_PRELOAD="$work/enter.so" exec valgrind -q --tool=callgrind --callgrind-out-file="$work/out" "$binary" "\$@"
END
chmod +x "$work/cairn"

# instructions DOOR KIND COUNT: of the whole process, from start to end.
instructions() {
    CAIRN_BIN=$work/cairn "$target/release/examples/requests" "$1" "$2" "$depth" "$3" > "$work/log" 2>&1 ||
        { cat "$work/log" >&2; return 1; }
    sed -n 's/^\(summary\|totals\): *//p' "$work/out" | tail -n 1
}

echo "| door | request | instructions |"
echo "|---|---|---|"
for door in nvme nbd; do
    for kind in read write; do
        few=$(instructions $door $kind $short)
        many=$(instructions $door $kind $long)
        echo "| $door | 4 KiB $kind | $(((many - few) / (long - short))) |"
    done
done
