//! A device hangs: what waits for its groups is answered, and holds its place until it is known what became of it.

use super::hanging::Scene;
use super::payload;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{IoError, Session, Standing, Volume};

type Answer = Rc<RefCell<Option<Result<(), IoError>>>>;

/// Two devices, one of which hangs, and a volume on both.
pub struct Stopped {
    pub scene: Scene,
    pub volume: Volume,
}

impl Stopped {
    pub fn new(seed: u64) -> Self {
        let scene = Scene::new(seed);
        let volume = scene.assembly.directory().by_name("v").expect("served");
        scene.places[0].0.set_hanging(true);
        Self { scene, volume }
    }

    /// Begins to write the first block of the chunk on this device; `patient`: as NBD does.
    pub fn write(&self, device: usize, value: u8, patient: bool) -> Answer {
        let session = if patient { Session::that_waits() } else { Session::default() };
        let (volume, answer) = (self.volume.of_session(&session), Answer::default());
        let (offset, told) = (self.scene.places[device].1 * CHUNK_BYTES, answer.clone());
        self.scene.machine.run(async move {
            runtime::spawn(async move {
                let ask = || volume.write(offset, payload(&[value; 4096]));
                let result = if patient { volume.patiently(ask).await } else { ask().await };
                told.replace(Some(result));
            });
        });
        answer
    }

    pub fn read(&self, device: usize) -> Result<u8, IoError> {
        let (volume, offset) = (self.volume.clone(), self.scene.places[device].1 * CHUNK_BYTES);
        self.scene.machine.run(async move {
            let read = runtime::timeout(Duration::from_millis(100), volume.read(offset, 4096)).await;
            read.unwrap_or(Err(IoError::Abandoned)).map(|read| read.bytes[0])
        })
    }

    pub fn pass(&self, time: Duration) {
        self.scene.machine.world.run_for(time);
    }

    /// Entries that the devices have taken.
    pub fn entries(&self) -> u64 {
        let assembly = self.scene.assembly.clone();
        let status = self.scene.machine.run(async move { assembly.status().await });
        status.devices.iter().map(|device| device.entries).sum()
    }

    pub fn standing(&self) -> Standing {
        let volume = self.volume.clone();
        self.scene.machine.run(async move { volume.standing() })
    }
}

pub fn is_stopped(answer: &Answer) -> bool {
    matches!(&*answer.borrow(), Some(Err(IoError::Stopped(_))))
}

pub fn is_done(answer: &Answer) -> bool {
    matches!(&*answer.borrow(), Some(Ok(())))
}

/// H5: nothing that overlaps a command is executed before it is known what became of that, whatever its host was told.
pub fn what_was_given_up_holds_its_place(seed: u64) {
    let stopped = Stopped::new(seed);
    let written = stopped.write(0, 7, false);
    stopped.pass(Duration::from_secs(11));
    assert!(is_stopped(&written), "{written:?}");
    for _ in 0..6 {
        stopped.pass(Duration::from_secs(1));
        let read = stopped.read(0);
        assert!(read.is_err(), "it is read while a write has no outcome: {read:?}");
    }
    stopped.scene.places[0].0.set_hanging(false);
    stopped.pass(Duration::from_secs(5));
    assert_eq!((stopped.standing(), stopped.read(0)), (Standing::Here, Ok(7)));
}
