//! A device hangs: what waits for its groups is answered, and holds its place until it is known what became of it.

use super::hanging::Scene;
use super::payload;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{IoError, Session, Standing, Volume, VolumeError};

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

/// Whoever takes a volume, or a snapshot, away does not wait for a group that does not serve: nor does a client of it whose
/// session waits for anything else.
pub fn what_is_gone_is_not_waited_for(seed: u64) {
    let in_time = Duration::from_secs(3);
    let stopped = Stopped::new(seed);
    stopped.scene.places[0].0.set_hanging(false);
    let (assembly, machine) = (stopped.scene.assembly.clone(), &stopped.scene.machine);
    let (taking, old) = (assembly.clone(), stopped.volume.clone());
    let snapshot = machine.run(async move {
        taking.create_snapshot("v", "s").await.expect("taken");
        old.snapshot("s").expect("told")
    });
    stopped.scene.places[0].0.set_hanging(true);
    let (answer, offset) = (Answer::default(), stopped.scene.places[0].1 * CHUNK_BYTES);
    let (told, deleting) = (answer.clone(), assembly.clone());
    let deleted = machine.run(async move {
        let reader = snapshot.of_session(&Session::that_waits());
        runtime::spawn(async move { drop(told.replace(Some(reader.read(offset, 4096).await.map(drop)))) });
        runtime::sleep(Duration::from_millis(100)).await;
        runtime::timeout(in_time, deleting.delete_snapshot("v", "s")).await
    });
    assert!(matches!(deleted, Ok(Ok(()))), "{deleted:?}");
    assert!(matches!(&*answer.borrow(), Some(Err(IoError::Gone(_)))), "{answer:?}");

    let answers = [true, false].map(|patient| stopped.write(0, 7, patient));
    stopped.pass(Duration::from_millis(100));
    let deleted = machine.run(async move { runtime::timeout(in_time, assembly.delete_volume("v")).await });
    assert!(matches!(deleted, Ok(Ok(()))), "{deleted:?}");
    for answer in answers {
        assert!(matches!(&*answer.borrow(), Some(Err(IoError::Gone(_)))), "{answer:?}");
    }
}

/// What is changed of one volume waits for nothing of another.
pub fn one_volumes_change_is_no_others_business(seed: u64) {
    let stopped = Stopped::new(seed);
    let written = stopped.write(0, 7, true);
    let assembly = stopped.scene.assembly.clone();
    let (renamed, waits) = stopped.scene.machine.run(async move {
        let is_over = Rc::new(Cell::new(false));
        let (deleting, over) = (assembly.clone(), is_over.clone());
        runtime::spawn(async move {
            deleting.delete_volume("v").await.expect("deleted");
            over.set(true);
        });
        runtime::sleep(Duration::from_millis(50)).await;
        assembly.create_volume(super::new_volume("w", 1 << 20)).await.expect("made");
        let change = cluster::VolumeChange { name: Some("u".to_owned()), ..cluster::VolumeChange::default() };
        let renamed = runtime::timeout(Duration::from_millis(500), assembly.change_volume("w", &change)).await;
        (renamed.is_ok_and(|renamed| renamed.is_ok()), !is_over.get())
    });
    assert!(renamed, "it waits for another volume's commands");
    assert!(waits && written.borrow().is_none(), "the other one is not deleted yet");
}

/// While nobody knows what becomes of a command there is no instant: it would be before it for one reader, and after it for
/// the next.
pub fn what_has_no_outcome_is_in_no_snapshot(seed: u64) {
    let stopped = Stopped::new(seed);
    stopped.scene.places[0].0.set_hanging(false);
    let (assembly, machine) = (stopped.scene.assembly.clone(), &stopped.scene.machine);
    let snapshot = |name: &'static str| {
        let assembly = assembly.clone();
        machine.run(async move { runtime::timeout(Duration::from_secs(5), assembly.create_snapshot("v", name)).await })
    };
    assert!(matches!(snapshot("before"), Ok(Ok(_))));
    stopped.pass(Duration::from_secs(2));
    stopped.scene.places[0].0.set_hanging(true);
    let written = stopped.write(0, 7, false);
    stopped.pass(Duration::from_secs(11));
    assert!(is_stopped(&written), "{written:?}");
    let taken = snapshot("meanwhile");
    assert!(matches!(taken, Ok(Err(VolumeError::NotQuiet { .. }))), "{taken:?}");
    stopped.scene.places[0].0.set_hanging(false);
    stopped.pass(Duration::from_secs(5));
    assert!(matches!(snapshot("after"), Ok(Ok(_))));
}
