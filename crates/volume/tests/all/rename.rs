//! A volume gets another name while it is used: whoever has it goes on, whoever comes uses the new name.

use crate::common::{Machine, new_volume, payload};
use volume::{IoError, VolumeChange, VolumeError};

const SIZE: u64 = 8 << 20;

/// Large enough for two shards: one on each core.
const DISK_BYTES: u64 = 4 << 30;

#[test]
fn who_has_it_open_goes_on_and_the_old_name_is_free() {
    let machine = Machine::with_disk(1, 2, DISK_BYTES);
    let assembly = machine.start();
    machine.run({
        let assembly = assembly.clone();
        async move {
            let made = assembly.create_volume(new_volume("old", SIZE)).await.expect("made");
            assembly.create_volume(new_volume("taken", SIZE)).await.expect("made");
            let directory = assembly.directory();
            let open = directory.by_name("old").expect("served");
            open.write(0, payload(&[1; 4096])).await.expect("written");
            assembly.create_snapshot("old", "s").await.expect("taken");
            assembly.clone_volume("old", "s", "copy").await.expect("made");

            let taken = assembly.change_volume("old", &VolumeChange::name("taken")).await;
            assert!(matches!(taken, Err(VolumeError::Exists(there)) if there.name == "taken"));
            let bad = assembly.change_volume("old", &VolumeChange::name("No")).await;
            assert!(matches!(bad, Err(VolumeError::BadName(_))), "{bad:?}");
            let missing = assembly.change_volume("none", &VolumeChange::name("x")).await;
            assert!(matches!(missing, Err(VolumeError::NotFound(_))), "{missing:?}");

            let seen = directory.generation();
            // Behind all others in the order of names: the list is sorted anew.
            let renamed = assembly.change_volume("old", &VolumeChange::name("zebra")).await.expect("renamed");
            assert_eq!((renamed.id, renamed.nsid, renamed.nguid), (made.id, made.nsid, made.nguid));
            assert_ne!(directory.generation(), seen, "who watches the list is told");
            assert!(directory.by_name("old").is_none());
            let again = assembly.change_volume("zebra", &VolumeChange::name("zebra")).await.expect("nothing to do");
            assert_eq!(again.name, "zebra");

            open.write(4096, payload(&[2; 4096])).await.expect("an open volume goes on");
            assert_eq!((open.name(), open.info().name), ("zebra".to_owned(), "zebra".to_owned()));
            let by_new = directory.by_name("zebra").expect("served");
            assert_eq!(by_new.read(4096, 4096).await.expect("readable").bytes[0], 2);
            let snapshot = by_new.snapshot("s").expect("its snapshots are its own");
            assert_eq!(snapshot.info().name, "zebra@s");
            assert_eq!(snapshot.read(4096, 4096).await.expect("readable").bytes[0], 0);
            let names: Vec<String> = directory.list().iter().map(|volume| volume.name()).collect();
            assert_eq!(names, ["copy", "taken", "zebra"]);
            assert_eq!(assembly.volumes().iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), names);

            let other = assembly.create_volume(new_volume("old", SIZE)).await.expect("its name is free");
            assert_ne!(other.id, made.id);
            assembly.stop().await;
        }
    });
    drop(assembly);
    machine.crash();
    let assembly = machine.start();
    machine.run(async move {
        let names: Vec<String> = assembly.volumes().into_iter().map(|info| info.name).collect();
        assert_eq!(names, ["copy", "old", "taken", "zebra"]);
        let volume = assembly.directory().by_name("zebra").expect("served");
        assert_eq!(volume.read(4096, 4096).await.expect("readable").bytes[0], 2);
        assert_eq!(assembly.snapshots("zebra").await.expect("listed").len(), 1);
        // All at once, or nothing: the name is taken, so the size stays.
        let both = VolumeChange { size_bytes: Some(2 * SIZE), ..VolumeChange::name("taken") };
        assert!(assembly.change_volume("zebra", &both).await.is_err());
        assert_eq!(volume.size_bytes(), SIZE);
    });
}

#[test]
fn on_every_core_and_through_the_trash() {
    let machine = Machine::with_disk(2, 2, DISK_BYTES);
    let assembly = machine.start();
    machine.run(async move {
        let made = assembly.create_volume(new_volume("old", SIZE)).await.expect("made");
        assembly.change_volume("old", &VolumeChange::name("new")).await.expect("renamed");
        let (tell, mut told) = runtime::channel::cross(1);
        assembly.spawn_on(1, move |directory| async move {
            let found = (directory.by_name("old").is_some(), directory.by_name("new").is_some());
            tell.send(found).await.expect("somebody waits");
        });
        assert_eq!(told.recv().await, Ok((false, true)));
        let open = assembly.directory().by_name("new").expect("served");
        assembly.trash_volume("new").await.expect("deleted");
        let gone = open.read(0, 4096).await.map(drop);
        assert!(matches!(&gone, Err(IoError::Gone(why)) if why.contains("volume new")), "{gone:?}");
        assert_eq!(assembly.trash()[0].info.name, "new");
        let restored = assembly.restore_volume(made.id, None).await.expect("restored");
        assert_eq!(restored.name, "new");
        assembly.change_volume("new", &VolumeChange::name("old")).await.expect("renamed back");
        assembly.delete_volume("old").await.expect("deleted");
        assert!(assembly.volumes().is_empty());
    });
}
