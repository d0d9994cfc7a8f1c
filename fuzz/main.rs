//! One target for libFuzzer, named by `CAIRN_FUZZ_TARGET`: see `tools/fuzz.sh`.
#![no_main]

mod targets;

use std::sync::OnceLock;

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("CAIRN_FUZZ_TARGET").expect("CAIRN_FUZZ_TARGET names a target");
        let found = targets::TARGETS.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("there is no target {name}: see fuzz/targets.rs")).1
    });
    target(bytes);
});
