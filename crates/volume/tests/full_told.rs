//! What the log says of a device that is full: when it begins to refuse new blocks, and when it takes them again.

mod common;
#[path = "../../nvme/tests/serve/logs.rs"]
mod logs;

use common::{Machine, Random, new_volume, payload};
use std::time::Duration;
use volume::IoError;

#[test]
fn a_full_device_is_told_at_once_and_when_it_takes_new_blocks_again() {
    logs::keep();
    let machine = Machine::new(1, 1);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("a", 1 << 30)).await.expect("made");
        let volume = assembly.directory().by_name("a").expect("served");
        let bytes = Random::new(1).bytes(1 << 20);
        let mut round = 0;
        let mut stored = 0;
        loop {
            // Until one is refused: the line is there before the next look at the fill, five seconds later.
            let refused = loop {
                match volume.write(stored << 20, payload(&bytes)).await {
                    Ok(()) => stored += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(refused, IoError::NoSpace(_)), "{refused}");
            runtime::yield_now().await;
            logs::assert_logged(&["/disk is", "new blocks are refused", "delete or discard"]);
            assert_eq!(logs::count("are refused"), 1, "told once");
            // A sixteenth of it goes: more than the slack, less than what a warning ends at.
            let kept = stored - stored / 16;
            volume.discard(kept << 20, (stored - kept) << 20).await.expect("giving back works");
            stored = kept;
            runtime::sleep(Duration::from_secs(6)).await;
            logs::assert_logged(&["/disk is", "new blocks are taken again"]);
            logs::keep();
            round += 1;
            if round == 2 {
                return;
            }
        }
    });
}
