//! What is decided by the header of a frame, and what another version may say.

use super::*;

/// From the header alone: nothing of the body has come, nothing is kept for it.
#[test]
fn lengths_beyond_all_bounds_are_refused_before_the_body() {
    for kind in Kind::ALL {
        let (name, ..) = samples()
            .into_iter()
            .find(|(name, ..)| {
                FrameHeader::decode(&sample(name)).is_ok_and(|header| header.is_some_and(|header| header.kind == kind))
            })
            .expect("a sample of each kind");
        for (at, most) in [(8, kind.meta_bytes_max()), (12, kind.blocks_bytes_max())] {
            for found in [most + 1, u32::MAX] {
                let header = with_header(name, at, &found.to_le_bytes());
                match FrameHeader::decode(&header[..FRAME_HEADER_BYTES]) {
                    Err(WireError::TooLong { kind: of, found: told, most: allowed, .. }) => {
                        assert_eq!((of, told, allowed), (kind, found, most));
                    }
                    other => panic!("{kind:?}: {other:?}"),
                }
            }
        }
        let whole = kind.meta_bytes_max() as usize + kind.blocks_bytes_max() as usize;
        assert!(whole <= MAX_BODY_BYTES && MAX_BODY_BYTES <= (1 << 20) + (512 << 10));
    }
}

#[test]
fn what_this_build_does_not_know_is_refused_and_says_what_to_do() {
    let mut http = b"GET / HTTP/1.1\r\n".to_vec();
    assert_eq!(refused(&http), WireError::Magic);
    http.truncate(1);
    assert_eq!(refused(&http), WireError::Magic, "at the first byte");
    let mut later = sample("ask");
    later[4] = 4;
    let version = WireError::Version { found: 4, supported: WIRE_VERSION };
    assert_eq!((refused(&later), refused(&later[..6])), (version.clone(), version), "whatever the rest is");
    assert_eq!(refused(&with_header("ask", 6, &[99])), WireError::Kind { found: 99 });
    assert!(WireError::Kind { found: 99 }.to_string().contains("upgrade it"));
    assert_eq!(refused(&with_header("ask", 16, &[0, 4])), WireError::Features { bits: 1 << 10 });
    assert!(matches!(refused(&with_header("ask", 7, &[3])), WireError::Field { field: "class", found: 3, .. }));
    assert!(matches!(refused(&with_header("beat", 80, &[1])), WireError::Field { .. }), "a beat is of no group");
    let tenant = first_frame(&with_header("ask", 90, &[1])).expect("a reader need not know it");
    assert!(tenant.is_some());
}

/// A later version appends fields to the fixed part and lists behind the others.
#[test]
fn what_a_later_version_appends_is_skipped() {
    for (name, envelope, said) in samples() {
        let later = with_meta(name, |meta| {
            let fixed = usize::from(u16::from_le_bytes([meta[0], meta[1]]));
            meta[..2].copy_from_slice(&(fixed as u16 + 16).to_le_bytes());
            meta.splice(fixed..fixed, [0xee; 16]);
            meta.extend([0xdd; 24]);
        });
        // Who knows the later version reads what it appends.
        let agreed = if name.ends_with("rehearsed") { Features::KNOWN } else { Features::NONE };
        let frame = Receiver::of(agreed).frame(&shared(&later));
        let frame = frame.unwrap_or_else(|why| panic!("{name}: {why}")).expect("whole");
        let header = FrameHeader { envelope, ..frame.header };
        assert!(is_same(&frame, &Frame { header, said }), "{name}: {frame:?}");
    }
}

/// What a rehearsed release has beyond this one: its field behind a beat is skipped, its kind of frame refused, by who has not agreed
/// on it.
#[test]
fn what_was_not_agreed_on_is_not_taken() {
    let plain = |name| Receiver::new().frame(&shared(&sample(name)));
    let Ok(Some(Frame { said: Said::Node(NodeMessage::Beat(beat)), .. })) = plain("beat-rehearsed") else {
        panic!("a beat");
    };
    assert_eq!((beat.count, beat.stores.len(), beat.sent_ns), (None, 1, 5), "the stores behind the field are found");
    let refused_as = WireError::NotAgreed { kind: Kind::Rehearsed };
    assert_eq!(plain("rehearsed").map(drop), Err(refused_as.clone()));
    let frame = sample("rehearsed");
    let header = FrameHeader::decode(&frame).expect("good").expect("whole");
    assert_eq!(Receiver::of(Features(1)).judge(&header), Err(refused_as), "before there is a body");
    let needs = refused(&with_header("ping", 16, &Features::REHEARSAL.0.to_le_bytes()));
    assert!(matches!(needs, WireError::Field { field: "features that the reader must have", .. }), "{needs}");
}

/// Blocks that are received where the header says can be written to a device from there.
#[test]
fn blocks_lie_aligned_in_the_buffer_they_are_received_in() {
    let sent = sample("prepare-with-blocks");
    let header = FrameHeader::decode(&sent).expect("good").expect("whole");
    let at = header.body_at_bytes();
    let mut buffer = IoBuf::new(at + header.body_bytes());
    buffer[at..].copy_from_slice(&sent[FRAME_HEADER_BYTES..]);
    let buffer = buffer.freeze();
    let Ok(Said::Group(_, entries)) = Receiver::new().decode(&header, &buffer.slice(at..buffer.len())) else {
        panic!("a good body");
    };
    let inside = buffer.as_ptr_range();
    let mut found = 0;
    for entry in &entries {
        match &entry.kind {
            EntryKind::Write { bytes, coding: _, range } => {
                assert!(inside.contains(&bytes.as_ptr()), "no copy");
                assert!(range.first != 3 || bytes.as_ptr().addr().is_multiple_of(runtime::buf::ALIGNMENT));
                found += 1;
            }
            EntryKind::GroupRecord { record } => assert!(inside.contains(&record.as_ptr()), "no copy"),
            _ => {}
        }
    }
    assert_eq!(found, 2);
}
