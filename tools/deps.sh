#!/bin/bash
# Installs from Debian what building and testing Cairn needs. What is there is left alone.
#   tools/deps.sh          all of it
#   tools/deps.sh build    what `make run` needs
set -eu

# The linker that Rust uses, how sources come here, and OpenSSL's libcrypto, which is linked in.
# protoc and what it includes, for the build of etcd's client.
packages=(build-essential ca-certificates git make libssl-dev pkg-config protobuf-compiler libprotobuf-dev)
tests=(
    # clients of the end-to-end tests
    fio libnbd-bin nbdkit python3-libnbd qemu-utils nvme-cli python3
    # what README.md uses besides, and a network of its own to run that in
    curl jq iproute2
    # the guest with the Linux kernel's NVMe/TCP initiator (tools/kernel-client)
    qemu-system-x86 e2fsprogs dpkg apt xz-utils zstd lz4
    # the boot loader of a disk that such a guest boots from
    syslinux mtools
    # the map in etcd, against a real one
    etcd-server
    # counting system calls and instructions
    strace valgrind
)
case "${1:-all}" in
    all) packages+=("${tests[@]}") ;;
    build) ;;
    *) echo "deps: $1 is neither 'build' nor nothing" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done

if [ ${#missing[@]} = 0 ]; then
    echo "deps: all ${#packages[@]} Debian packages are there"
else
    echo "deps: installing ${missing[*]}"
    as_root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo > /dev/null || { echo "deps: run 'make deps' as root, there is no sudo" >&2; exit 1; }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# fio's headers are of no package: our engine of fio is built with those of Debian's source of the fio that is here.
if [ "${1:-all}" = all ]; then
    echo "deps: the headers of fio $(dpkg-query -W -f '${Version}' fio), from Debian's source package, for tools/fio-engine"
    "$(dirname "$0")/libcairn.sh" headers
fi

# Rust is newer here than in Debian.
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
if ! command -v cargo > /dev/null; then
    echo "deps: Rust $wanted or newer is missing: install it as https://rustup.rs says" >&2
    exit 1
fi
found=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]; then
    echo "deps: Rust $found is here and $wanted or newer is needed: run 'rustup update stable'" >&2
    exit 1
fi
echo "deps: Rust $found"
