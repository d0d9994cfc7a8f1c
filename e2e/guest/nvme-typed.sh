#!/bin/bash
# In the guest: the commands of nvme-cli that a person types to look around, each of which must be answered; and those
# for what Cairn does not have, each of which must be refused as such and harm nobody.
#   nvme-typed.sh ADDRESS PORT NQN NSID
set -u
[ $# = 4 ] || { sed -n 2,4p "$0"; exit 2; }
address=$1 port=$2 nqn=$3 nsid=$4
failures=0
check() {
    local what=$1; shift
    if "$@" > /tmp/check.out 2>&1; then echo "PASS: $what"; else
        echo "FAIL: $what (exit status $?)"; head -n 20 /tmp/check.out | sed 's/^/    /'
        failures=$((failures + 1)); return 1
    fi
}
answered() { check "nvme $*" nvme "$@"; }
says() { # says WORDS COMMAND...
    local words=$1; shift
    answered "$@" && mv /tmp/check.out /tmp/said && check "nvme $1 says '$words'" grep -q -- "$words" /tmp/said
}
refused() { # refused COMMAND...: by the controller, with a status of NVMe
    nvme "$@" > /tmp/refused 2>&1
    check "nvme $1 is refused: $(grep -i 'status\|invalid' /tmp/refused | head -n 1)" \
        grep -qi 'invalid field\|invalid opcode\|invalid command opcode\|invalid log page' /tmp/refused
    sed 's/^/    /' /tmp/refused | head -n 3
}
state() { grep -q live "/sys/class/nvme/${controller##*/}/state"; }
live() { local try; for try in $(seq 100); do state && return; sleep 0.1; done; return 1; }

modprobe nvme-tcp
host=(-t tcp -a "$address" -s "$port")
says "$nqn" discover "${host[@]}"
says "$nqn" discover "${host[@]}" -o json
answered connect "${host[@]}" -n "$nqn" || exit 1
# The device of a namespace has any number, whichever is found first.
shopt -s extglob
for try in $(seq 100); do
    for device in /sys/block/nvme+([0-9])n*; do
        [ "$(cat "$device/nsid" 2> /dev/null)" = "$nsid" ] && break 2
    done
    sleep 0.1
done
device=/dev/${device##*/}
controller=$(basename "$(dirname "$(grep -lxF "$nqn" /sys/class/nvme/nvme*/subsysnqn | head -n 1)")")
controller=/dev/$controller
says Cairn list
says Cairn list -v
says "$device" list -o json
says "$nqn" list-subsys
says live list-subsys "$device"
says "^\[" list-ns "$controller"
says Cairn id-ctrl "$controller"
says 'Fused Compare and Write Supported' id-ctrl -H "$controller"
says nguid id-ns "$device"
says 'in use' id-ns -H "$device"
answered id-ns "$controller" -n "$nsid" -o json
says nguid ns-descs "$device"
says "$nsid" get-ns-id "$device"
answered nvm-id-ctrl "$controller"
answered cmdset-ind-id-ns "$controller" -n "$nsid"
answered id-iocs "$controller"
says critical_warning smart-log "$controller"
answered smart-log "$device"
answered smart-log -o json "$controller"
answered error-log "$controller"
answered error-log "$controller" -e 4 -o json
answered ana-log "$controller"
answered ana-log "$controller" -o json
says "NVM Command Set" effects-log "$controller" -c 0
answered effects-log "$controller" -H
answered changed-ns-list-log "$controller"
answered fw-log "$controller"
answered supported-log-pages "$controller"
for feature in 1 4 5 7 11 15 22; do
    for select in 0 1 3; do answered get-feature "$controller" -f $feature -s $select; done
done
answered get-feature "$controller" -f 0x0b -H
answered set-feature "$controller" -f 0x0b -v 0x900
# Not `show-regs`: nvme-cli 2.3 gives up at the first register that fabrics do not have and prints memory it has freed.
for offset in 0 8 0x14 0x1c; do answered get-property "$controller" --offset=$offset; done
answered show-hostnqn
answered ns-rescan "$controller"
answered flush "$device" -n "$nsid"
answered dsm "$device" -n "$nsid" --ad --blocks=8 --slbs=0
answered write-zeroes "$device" -n "$nsid" --start-block=0 --block-count=7
answered admin-passthru "$controller" --opcode=0x06 --cdw10=1 --data-len=4096 -r
answered io-passthru "$device" --opcode=0x02 --namespace-id="$nsid" --data-len=4096 --read --cdw12=0

refused get-log "$controller" --log-id=0xc0 --log-len=512
refused get-property "$controller" --offset=0xc
refused get-feature "$controller" -f 0x7f
# There is no volatile write cache to be asked about, nor are namespaces made this way.
refused get-feature "$controller" -f 6
refused list-ns "$controller" --all
refused list-ctrl "$controller"
refused format "$device" --lbaf=0 --force
refused create-ns "$controller" --nsze=8 --ncap=8 --flbas=0
refused delete-ns "$controller" -n "$nsid"
refused attach-ns "$controller" -n "$nsid" -c 1
refused sanitize "$controller" -a 2
refused device-self-test "$controller" -n 1 -s 1
refused security-recv "$controller" --size=512 --secp=1 --spsp=0 --al=512
refused fw-commit "$controller" -s 1 -a 1
refused resv-report "$device" -n "$nsid"
refused write-uncor "$device" -n "$nsid" --start-block=0 --block-count=0
refused admin-passthru "$controller" --opcode=0xc1

check "the controller is still live" state
answered reset "$controller"
check "it is live after the reset" live
check "and its device reads" dd if="$device" of=/dev/null bs=1M count=1 iflag=direct status=none
answered disconnect -d "${controller##*/}"
answered connect-all "${host[@]}" --persistent
answered list-subsys
answered disconnect-all
check "no controller is left" sh -c '! ls /sys/class/nvme/nvme* > /dev/null 2>&1'
check "connect with many queues of small depth" nvme connect "${host[@]}" -n "$nqn" -i 8 -Q 16 -k 10
answered disconnect -n "$nqn"
if dmesg | grep -E 'I/O error|Oops|BUG:|WARNING:|hung|nvme.*timeout' > /tmp/bad; then
    echo "FAIL: the kernel's log is clean"; head -n 10 /tmp/bad | sed 's/^/    /'; exit 1
fi
echo "PASS: the kernel's log is clean"
[ $failures = 0 ]
