#!/bin/bash
# Prints where promtool is: the one that is installed, else one taken out of Debian's package, of which nothing else is
# installed (the package would start a server).
set -eu
if command -v promtool; then exit 0; fi
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${CARGO_TARGET_DIR:-$root/target}/promtool
if [ ! -x "$cache/usr/bin/promtool" ]; then
    rm -rf "$cache" && mkdir -p "$cache"
    echo "promtool: taking it out of Debian's package prometheus" >&2
    (cd "$cache" && apt-get download -qq -o APT::Sandbox::User=root prometheus > download.log 2>&1) ||
        { cat "$cache/download.log" >&2; exit 1; }
    dpkg-deb --fsys-tarfile "$cache"/prometheus_*.deb | tar -x -C "$cache" ./usr/bin/promtool
    rm "$cache"/prometheus_*.deb
fi
echo "$cache/usr/bin/promtool"
