//! How two nodes show each other, at the begin of a connection, that they know the cluster's key, without saying it.
//!
//! ```text
//!   opener                                     answerer
//!     │ Hello, with a number drawn for it ──────► │
//!     │ ◄── HelloAnswer, with its own number, and a proof over both hellos
//!     │ HelloProof: over both and that proof ────► │   nothing else of the opener is read before
//! ```
//!
//! A proof is a keyed BLAKE2s (RFC 7693) of 32 bytes over who speaks and all that was said so far: so none can be used again, on
//! another connection, or in the other direction, and nobody on the way makes two nodes speak an older version, or without a feature,
//! that both have: these are in the hellos. What follows on the connection is summed against accidents and not against
//! somebody on the way who changes it: that is for a network of the cluster's own, or IPsec, WireGuard.

use super::Protocol;
use super::hello::Hello;
use blake2::Blake2sMac;
use blake2::digest::consts::U32;
use blake2::digest::{FixedOutput, Update};
use std::fmt;
use types::{Mutant, mutant};

/// Length of a proof.
pub const PROOF_BYTES: usize = 32;
/// Length of the number that is drawn for a hello.
pub const NONCE_BYTES: usize = 32;

const ANSWERER: &[u8] = b"cairn hello: answerer\0";
const OPENER: &[u8] = b"cairn hello: opener\0";

/// What all nodes of a cluster know, and nobody else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClusterKey(pub [u8; 32]);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

impl ClusterKey {
    /// The answerer's proof: `answer` as it is without one.
    pub fn answerer(&self, hello: &Hello, answer: &Hello) -> [u8; PROOF_BYTES] {
        self.proof(ANSWERER, hello, &Hello { proof: [0; PROOF_BYTES], ..*answer })
    }

    /// The opener's proof: `answer` with its own.
    pub fn opener(&self, hello: &Hello, answer: &Hello) -> [u8; PROOF_BYTES] {
        self.proof(OPENER, hello, answer)
    }

    fn proof(&self, who: &[u8], hello: &Hello, answer: &Hello) -> [u8; PROOF_BYTES] {
        let mut mac =
            Blake2sMac::<U32>::new_with_salt_and_personal(&self.0, &[], &[]).expect("a key of 32 bytes is allowed");
        mac.update(who);
        let mut said = Vec::with_capacity(2 * Hello::FIXED_BYTES);
        for said_by in [hello, answer] {
            let speaks = if mutant(Mutant::DowngradeUnseen) { Protocol::default() } else { said_by.speaks };
            Hello { speaks, ..*said_by }.encode(&mut said);
        }
        mac.update(&said);
        mac.finalize_fixed().into()
    }
}

/// Whether two proofs are the same, in a time that does not tell where they differ.
pub fn same_proof(left: &[u8; PROOF_BYTES], right: &[u8; PROOF_BYTES]) -> bool {
    left.iter().zip(right).fold(0, |differs, (left, right)| differs | (left ^ right)) == 0
}
