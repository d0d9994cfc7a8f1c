//! Frames as they were decided, bytes that changed, and bytes that nobody sent.

use super::*;

/// `xx*n` is n times that byte.
fn golden(text: &str) -> Vec<u8> {
    let byte = |pair: &str| u8::from_str_radix(pair, 16).expect("hexadecimal");
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        match word.split_once('*') {
            Some((value, count)) => bytes.resize(bytes.len() + count.parse::<usize>().expect("a number"), byte(value)),
            None => bytes.extend((0..word.len()).step_by(2).map(|at| byte(&word[at..at + 2]))),
        }
    }
    bytes
}

/// The file was made from the tables in the documentation, by other means than the code that is tested.
#[test]
fn golden_bytes() {
    let mut lines = include_str!("../wire-golden.txt").lines().filter(|line| !line.starts_with('#'));
    let mut check = |name: String, sent: &[u8]| {
        let header = FrameHeader::decode(sent).expect("good").expect("whole");
        let sent = &sent[..FRAME_HEADER_BYTES + header.meta_bytes as usize];
        let (golden_name, text) = lines.next().and_then(|line| line.split_once(": ")).expect("a line per sample");
        assert_eq!((golden_name, golden(text).as_slice()), (name.as_str(), sent), "{sent:02x?}");
    };
    for (name, envelope, said) in samples() {
        check(name.to_owned(), &encode(&mut Sender::new(), &envelope, &said));
    }
    for (name, envelope, said) in samples() {
        let has_record = ["prepare", "prepare-with-blocks", "ask", "fetch", "refused"].contains(&name);
        if has_record {
            let mut sender = Sender::new();
            let ask = Said::Group(Message::Ask { record: record().into() }, Vec::new());
            encode(&mut sender, &ENVELOPE, &ask);
            check(format!("/{name}"), &encode(&mut sender, &envelope, &said));
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn every_kind_says_what_was_said() {
    let mut kinds = Vec::new();
    for (name, envelope, said) in samples() {
        let sent = encode(&mut Sender::new(), &envelope, &said);
        let frame = first_frame(&sent).expect("good").expect("whole");
        assert_eq!((frame.header.envelope, frame.header.frame_bytes()), (envelope, sent.len()), "{name}");
        assert!(is_same(&frame, &Frame { header: frame.header, said }), "{name}: {frame:?}");
        kinds.push(frame.header.kind);
    }
    assert!(Kind::ALL.iter().all(|kind| kinds.contains(kind)), "a sample of each kind");
}

#[test]
fn one_changed_byte_is_refused_wherever_it_is() {
    for (name, frame) in sample_frames().into_iter().filter(|(name, _)| !name.starts_with("all")) {
        for at in 0..frame.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = frame.clone();
                bytes[at] ^= change;
                if let Ok(taken) = first_frame(&bytes) {
                    panic!("{name}: byte {at} ^ {change:#x}: {taken:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_not_all_there_is_waited_for() {
    for (name, frame) in sample_frames().into_iter().filter(|(name, _)| !name.starts_with("all")) {
        for length in 0..frame.len() {
            assert!(matches!(first_frame(&frame[..length]), Ok(None)), "{name}: {length} of {} bytes", frame.len());
        }
    }
}

/// With sums put right, so that what lies behind them decides: refused, or taken and then sent again as the same.
#[test]
fn no_byte_makes_a_decoder_panic() {
    let samples = sample_frames();
    for (_, frame) in &samples {
        for at in 0..frame.len().min(1200) {
            for value in [0x00, 0x01, 0x28, 0x7f, 0x80, 0xff] {
                let mut bytes = frame.clone();
                bytes[at] = value;
                fuzz::frames(&bytes);
            }
        }
    }
    let mut random = Random(5);
    for _ in 0..20_000 {
        let mut bytes = samples[random.below(samples.len() as u64) as usize].1.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len().min(1200) as u64) as usize;
            bytes[at] = random.number() as u8;
        }
        if random.below(8) == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        fuzz::frames(&bytes);
    }
}
