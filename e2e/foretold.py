"""Whether what an order foretold is, by and large, what came: for lib.sh's `as_foretold`.

    python3 e2e/foretold.py BEFORE ORDER BEGUN     devices before and what the order said, as JSON; when it was given, s since 1970

Devices as they are by now are read from standard input. Bytes are compared by what devices hold more that give nothing away: half
to twice as many as were foretold, and NOT_SAID. It may take a tenth to ten times as long, and a minute in any case: the machine may
be busy, and who looks whether it is over does so now and then.
"""

import json
import sys
import time

# A node says what groups hold within a 64th of a device, here of 1 GiB.
NOT_SAID = 16 << 20


def live(devices):
    return {device["store_id"]: device["live_bytes"] for device in devices}


def main():
    took = time.time() - float(open(sys.argv[3], encoding="utf-8").read())
    before, order = (json.load(open(name, encoding="utf-8")) for name in sys.argv[1:3])
    before, after, order = live(before), live(json.load(sys.stdin)), order.get("share", order)
    gets, gives = ({of["store_id"]: of["bytes"] for of in order.get(name, [])} for name in ("gets", "gives"))
    # `cairn join` tells of the devices that come with it alone.
    gets = gets or {store: order["bytes"] for store in after.keys() - before.keys()}
    stores = gets.keys() - gives.keys()
    said, moved = sum(gets[store] for store in stores), sum(after[store] - before.get(store, 0) for store in stores)
    print(f"{order['groups']} groups; {len(stores)} devices get {moved >> 20} MiB, foretold {said >> 20}; {took:.1f} s, foretold {order['seconds']}")
    assert order["groups"] > 0 and stores and sum(gets.values()) == order["bytes"], order
    assert moved <= 2 * said + NOT_SAID and said <= 2 * moved + NOT_SAID, "bytes"
    assert took <= max(10 * order["seconds"], 60) and order["seconds"] <= 10 * took, "seconds"


main()
