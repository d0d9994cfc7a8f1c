//! What a fuzzer calls: each takes any bytes, must not panic, and checks that what was decoded encodes to the same bytes.
