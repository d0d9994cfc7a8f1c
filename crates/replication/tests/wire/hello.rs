//! Hellos, and the proof that they came as they were sent.

use super::*;

/// Made by Python's `hashlib.blake2s`, of the hellos of `wire-golden.txt`.
#[test]
fn a_proof_is_of_both_hellos_and_of_who_speaks() {
    let hello_of = |name| {
        let sample = samples().into_iter().find(|(is, ..)| *is == name).expect("there is one");
        match sample.2 {
            Said::Node(NodeMessage::Hello(hello) | NodeMessage::HelloAnswer(hello)) => hello,
            other => panic!("{other:?}"),
        }
    };
    let (hello, answer) = (hello_of("hello"), hello_of("hello-answer"));
    let key = ClusterKey(std::array::from_fn(|index| index as u8));
    let is = |proof: [u8; 32], hex: &str| {
        let digits: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
    };
    is(key.answerer(&hello, &answer), "3cb818894316f694759473d28e4395d978ee8e28707e2a0b1bda839b566f43ca");
    is(key.opener(&hello, &answer), "80bbb24b219a17af2c60cd43b8618b40f1f29f093cfb668a3476689a37e9e270");
    let opener = key.opener(&hello, &answer);
    for bit in 0..256 {
        let mut other = opener;
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(!same_proof(&opener, &other));
    }
    assert!(same_proof(&opener, &opener.clone()));
}

/// Whoever changes a hello on its way so that it says something else has no proof for it.
#[test]
fn no_field_of_a_hello_can_be_changed() {
    let key = ClusterKey([3; 32]);
    let hello_in = |frame: &[u8]| match first_frame(frame).expect("good").expect("whole").said {
        Said::Node(NodeMessage::Hello(hello) | NodeMessage::HelloAnswer(hello)) => hello,
        other => panic!("{other:?}"),
    };
    let (hello, answer) = (hello_in(&sample("hello")), hello_in(&sample("hello-answer")));
    let (answerer, opener) = (key.answerer(&hello, &answer), key.opener(&hello, &answer));
    let mut changed = 0;
    for bit in 16..8 * 120 {
        let other = |name| hello_in(&with_meta(name, |meta| meta[bit / 8] ^= 1 << (bit % 8)));
        let (other_hello, other_answer) = (other("hello"), other("hello-answer"));
        if other_hello == hello {
            continue;
        }
        changed += 1;
        assert_ne!(key.opener(&other_hello, &answer), opener, "bit {bit} of the hello");
        assert_ne!(key.opener(&hello, &other_answer), opener, "bit {bit} of the answer");
        assert_ne!(key.answerer(&other_hello, &answer), answerer, "bit {bit} of the hello");
        let is_proof = (80..112).contains(&(bit / 8));
        assert_eq!(key.answerer(&hello, &other_answer) == answerer, is_proof, "bit {bit} of the answer");
    }
    // All but the length and what is zero.
    assert_eq!(changed, 8 * (120 - 2 - 2 - 2));
}
