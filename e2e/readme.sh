#!/bin/bash
# Every command of README.md, executed: as a new user would, in an empty directory, on the default ports; what needs a
# kernel module or disks of one's own in a guest. Then READMEs with an error in them, each of which must be noticed.
# Time: 360 s (one and a half minutes; the first run builds the guest from Debian packages)
# A reader's make is no child of `make test`: that one would say which directories it enters.
unset MAKEFLAGS MFLAGS MAKELEVEL
# The default ports are free in a network of one's own, from which nothing is fetched: the guest is built before.
if [ -z "${README_NETWORK:-}" ]; then
    "$(dirname "$0")/../tools/kernel-client/kernel-client" build 2> /dev/null
    export README_NETWORK=1
    exec unshare --net "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
need readme ip unshare curl jq fio nbdinfo nbdcopy qemu-img make qemu-system-x86_64 mkfs.ext4 dpkg-deb apt-get || finish
ip link set lo up

kernel_client=$root/tools/kernel-client/kernel-client

# A directory as `git clone` and `make run` leave it, as far as the commands look at it, and two images of the reader's.
clone() { # clone NAME
    mkdir -p "$work/$1/target"
    ln -s "$(dirname "$(realpath "$cairn")")" "$work/$1/target/release"
    ln -s "$root/tools" "$root/Makefile" "$root/Cargo.toml" "$work/$1/"
    head -c 8M /dev/urandom > "$work/$1/disk.img"
    qemu-img convert -O qcow2 "$work/$1/disk.img" "$work/$1/disk.qcow2"
}
run_readme() { # run_readme README NAME
    clone "$2"
    # The guest's cache is where it was, whatever HOME says.
    (cd "$work/$2" && KERNEL_CLIENT_CACHE=${KERNEL_CLIENT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kernel-client} \
        python3 "$root/e2e/readme.py" run "$1" "$cairn" "$kernel_client" < /dev/null)
    local status=$?
    rm -rf "${work:?}/$2"
    return $status
}
# noticed WHAT SED WORDS: the README so changed fails, in the line that was changed, and says WORDS.
noticed() {
    local line
    sed "$2" "$root/README.md" > "$work/mutant.md"
    line=$(cmp "$root/README.md" "$work/mutant.md" | sed 's/.*line //')
    if [ -z "$line" ]; then fail "$1: '$2' changes nothing"; return; fi
    if ! run_readme "$work/mutant.md" mutant > "$work/mutant.out" 2>&1 &&
        grep -q "^FAIL  README.md:$line:.*$3" "$work/mutant.out"; then
        pass "$1 is noticed, in line $line"
    else
        fail "$1 in line $line is noticed: '$3'"; tail -n 5 "$work/mutant.out" | sed 's/^/      /'
    fi
}

run_readme "$root/README.md" readme > "$work/readme.out" 2>&1
status=$?
cat "$work/readme.out"
passed=$((passed + $(grep -c '^ok ' "$work/readme.out")))
[ $status = 0 ] || failed=$((failed + 1))
noticed "a target that the Makefile does not have" 's/^make test  /make tset  /' "make tset"
noticed "an output that is not what is printed" 's/^\(ready .*nbd=127.0.0.1:\)10809$/\110808/' "printed was"
noticed "an unknown flag" 's/^cairn volume create data --size/cairn volume create data --sise/' "sise"
noticed "an unknown command in the text" 's/`cairn demo --help`/`cairn deom --help`/' "deom"
noticed "a value that is another" 's|# nbd://127.0.0.1:10809/data$|# nbd://127.0.0.1:10809/date|' "and not"
noticed "a wrong flag of a command in the guest" 's/^nvme connect  -t tcp/nvme connect  --transprt tcp/' "transprt"
finish
