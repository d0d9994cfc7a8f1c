//! Commands under a volume's limit, counted in virtual time.

use super::{Machine, new_volume, payload};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use volume::{Assembly, Cost, IoError, LimitChange, Limits, NewVolume, Volume, VolumeChange};

const BLOCK: u64 = 4096;
/// Large enough for two shards: one on each core.
const DISK_BYTES: u64 = 4 << 30;
/// Clients on each core: enough that one always waits.
const DEPTH: usize = 16;

pub fn limited(name: &str, limits: Limits) -> NewVolume {
    NewVolume { limits, ..new_volume(name, 8 << 20) }
}

pub fn iops(iops: u64) -> Limits {
    Limits { iops: Some(iops), ..Limits::default() }
}

pub fn set_iops(iops: Option<u64>) -> VolumeChange {
    VolumeChange::limits(LimitChange { iops: Some(iops), ..LimitChange::default() })
}

/// A command as a door does it: in turn, then called.
pub async fn write_in_turn(volume: &Volume, offset: u64) -> Result<(), IoError> {
    if let Some(turn) = volume.hold(Cost::of(BLOCK), || || false) {
        turn.await;
    }
    volume.write(offset, payload(&[1; BLOCK as usize])).await
}

/// Writes of a volume, from several clients on each core, until it is gone.
pub fn load(assembly: &Assembly, cores: usize, name: &'static str) -> Arc<AtomicU64> {
    let done = Arc::new(AtomicU64::new(0));
    for core in 0..cores {
        let done = done.clone();
        assembly.spawn_on(core, move |directory| async move {
            let volume = directory.by_name(name).expect("served");
            for client in 0..DEPTH {
                let (volume, done) = (volume.clone(), done.clone());
                runtime::spawn(async move {
                    while write_in_turn(&volume, (core * DEPTH + client) as u64 * BLOCK).await.is_ok() {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
    }
    done
}

/// How many more there are after a while.
pub async fn in_time(done: &AtomicU64, time: Duration) -> u64 {
    let before = done.load(Ordering::Relaxed);
    runtime::sleep(time).await;
    done.load(Ordering::Relaxed) - before
}

pub fn start(seed: u64, cores: usize) -> (Machine, Assembly) {
    let machine = Machine::with_disk(seed, cores, DISK_BYTES);
    let assembly = machine.start();
    (machine, assembly)
}

/// Commands that wait under a limit of one in a minute go on when it is raised. `Err`: how many did in a second.
pub fn check_live_change(seed: u64) -> Result<(), u64> {
    let (machine, assembly) = start(seed, 2);
    machine.run(async move {
        // Three in a second, and a wait that the old limit had made long.
        assembly
            .create_volume(limited("v", Limits { bytes_per_second: Some(64 << 10), ..Limits::default() }))
            .await
            .expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        let long = volume.hold(Cost::of(16 << 20), || || false);
        drop(long); // taken, and not given back: whoever comes next waits for minutes
        let done = load(&assembly, 2, "v");
        runtime::sleep(Duration::from_secs(2)).await;
        let change = LimitChange { iops: Some(Some(500)), bytes_per_second: Some(None), ..LimitChange::default() };
        assembly.change_volume("v", &VolumeChange::limits(change)).await.expect("changed");
        let done = in_time(&done, Duration::from_secs(1)).await;
        if done >= 400 { Ok(()) } else { Err(done) }
    })
}
