#!/bin/bash
# Builds libcairn for C programs, and fio's engine over it, into target/release (or CARGO_TARGET_DIR's).
#   tools/libcairn.sh                  libcairn.so, libcairn.a, cairn.h, cairn.pc, which says where it will be with PREFIX=/usr/local
#   tools/libcairn.sh engine           those, and libcairn-fio.so for the fio of this machine
#   tools/libcairn.sh headers          fio's headers alone
#   tools/libcairn.sh install          puts the library to $DESTDIR$PREFIX
# LIBCAIRN_BUILT=1: a release build with libcairn in it has just been there.
# fio's headers are of no package: they come from Debian's source of the fio that is installed, and are kept in target/fio-headers.
set -eu
cd "$(dirname "$0")/.."
source=$PWD prefix=${PREFIX:-/usr/local} target=${CARGO_TARGET_DIR:-$PWD/target}
out=$target/release

library() {
    [ -n "${LIBCAIRN_BUILT:-}" ] || cargo build --release --package libcairn
    local version
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$source/Cargo.toml" | head -n 1)
    ln -sf libcairn.so "$out/libcairn.so.0"
    cp "$source/crates/libcairn/cairn.h" "$out/cairn.h"
    sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$source/crates/libcairn/cairn.pc.in" > "$out/cairn.pc"
    echo "libcairn: $out/libcairn.so, libcairn.a, cairn.h, cairn.pc"
}

# The directory with fio's headers, as its own build has them: Debian's source of exactly the fio that is installed.
headers() {
    local version upstream kept lists sources=()
    version=$(dpkg-query -W -f '${Version}' fio 2> /dev/null) || {
        echo "libcairn: fio is not installed as a package of Debian (apt install fio), so nobody knows which headers fit it" >&2
        exit 1
    }
    upstream=${version%-*}
    kept=$target/fio-headers/$version
    [ ! -e "$kept/done" ] || { echo "$kept/fio-$upstream"; return; }
    echo "libcairn: getting the source of fio $version from Debian, for its headers" >&2
    rm -rf "$kept"
    mkdir -p "$kept/lists/partial" "$kept/cache/archives/partial"
    # This machine's lists of packages stay as they are.
    . /etc/os-release
    printf 'deb-src http://deb.debian.org/debian %s main\n' "$VERSION_CODENAME" > "$kept/sources.list"
    lists=(-o "Dir::Etc::sourcelist=$kept/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$kept/lists"
        -o "Dir::Cache=$kept/cache" -o APT::Sandbox::User=root)
    (
        cd "$kept"
        apt-get -qq "${lists[@]}" update
        apt-get -qq "${lists[@]}" source --download-only "fio=$version"
        sources=(fio_*.orig.tar.*z)
        tar xf "${sources[0]}"
        cd "fio-$upstream"
        # config-host.h: what of the system's it includes.
        ./configure --disable-native > "$kept/configure.log"
    ) >&2 || { echo "libcairn: fio's headers did not come: see above" >&2; exit 1; }
    rm -rf "$kept/lists" "$kept/cache"
    touch "$kept/done"
    echo "$kept/fio-$upstream"
}

engine() {
    local fio
    fio=$(headers)
    cc -std=gnu11 -O2 -g -Wall -shared -fPIC -rdynamic -D_GNU_SOURCE -include "$fio/config-host.h" -I"$fio" -I"$out" \
        -o "$out/libcairn-fio.so" "$source/tools/fio-engine/cairn.c" -L"$out" -lcairn -Wl,-rpath,'$ORIGIN'
    echo "libcairn: $out/libcairn-fio.so, for $(fio --version): ioengine=external:$out/libcairn-fio.so"
}

case "${1:-library}" in
library) library ;;
headers) headers > /dev/null ;;
engine)
    library
    engine
    ;;
install)
    library
    install -D -m 644 "$out/cairn.h" "${DESTDIR:-}$prefix/include/cairn.h"
    install -D -m 644 "$out/libcairn.a" "${DESTDIR:-}$prefix/lib/libcairn.a"
    install -D -m 755 "$out/libcairn.so" "${DESTDIR:-}$prefix/lib/libcairn.so.0"
    ln -sf libcairn.so.0 "${DESTDIR:-}$prefix/lib/libcairn.so"
    install -D -m 644 "$out/cairn.pc" "${DESTDIR:-}$prefix/lib/pkgconfig/cairn.pc"
    echo "libcairn: in ${DESTDIR:-}$prefix"
    ;;
*)
    echo "usage: tools/libcairn.sh [headers | engine | install]" >&2
    exit 2
    ;;
esac
