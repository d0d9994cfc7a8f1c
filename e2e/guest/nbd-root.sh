#!/bin/bash
# In a guest that has booted from an NBD export, firmware first: `first` writes and notes what, `again` finds it after a
# restart.
# Arguments: first|again SHA256 (again).
failed=0
check() { # check WHAT COMMAND...
    local what=$1; shift
    if "$@"; then echo "PASS: $what"; else echo "FAIL: $what"; failed=1; fi
}
sum() { sha256sum "$1" | cut -d' ' -f1; }

# Only the boot loader adds this word: QEMU, which knows no kernel here, has run SeaBIOS, and that the export's loader.
check "the boot loader on the export has loaded the kernel" grep -q '^BOOT_IMAGE=vmlinuz ' /proc/cmdline
check "and the initramfs" grep -q ' initrd=initrd' /proc/cmdline
check "the root is the export's ext4" grep -q '^/dev/vda2 / ext4 rw' /proc/mounts
case $1 in
    first)
        check "64 MiB of noise are written" dd if=/dev/urandom of=/root/noise bs=1M count=64 conv=fsync status=none
        check "32 MiB more, and deleted" sh -c 'dd if=/dev/zero of=/root/gone bs=1M count=32 conv=fsync status=none && rm /root/gone'
        check "fstrim gives space back" fstrim /
        mkdir -p /root/many && for i in $(seq 200); do echo "file $i" > /root/many/$i; done
        sum /root/noise > "$KC_OUT/sum"
        ;;
    again)
        echo 3 > /proc/sys/vm/drop_caches
        check "what the first one wrote is there" [ "$(sum /root/noise)" = "$2" ]
        check "all its files are" [ "$(cat /root/many/* | sort | uniq | wc -l)" = 200 ]
        ;;
esac
sync
check "the root is put away clean" mount -o remount,ro /
exit $failed
