//! What a supervisor says to another node, on a connection of its own, when the kernel has told it that its worker is dead. Pure:
//! bytes in, bytes out.
//!
//! ```text
//!   supervisor of node N                         node M
//!     │ Hello: node N, core: none of it ────────► │
//!     │ ◄──────────────────────────── HelloAnswer │   both know the cluster's key
//!     │ HelloProof, Dead, Ping ─────────────────► │
//!     │ ◄─────────────────────────────────── Pong │   it has heard
//! ```

use crate::wire::{
    ClusterKey, Dead, Envelope, Features, Hello, NONCE_BYTES, NodeMessage, Protocol, Receiver, Said, encode_node,
    same_proof,
};
use runtime::IoBuf;
use types::{ClusterId, NodeId};

/// The core of a node that its supervisor speaks from: none that it has, so that nothing is sent there.
const SUPERVISOR: u16 = u16::MAX;

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// More has to come.
    Wait,
    /// This is to be sent.
    Send(Vec<u8>),
    /// The other node has heard.
    Told,
}

/// One conversation.
pub struct Obituary {
    key: ClusterKey,
    hello: Hello,
    to: NodeId,
    dead: Dead,
    come: Vec<u8>,
    has_said: bool,
}

impl Obituary {
    /// What is to be said to node `to`, and the bytes that begin it. `nonce`: drawn for this conversation.
    pub fn new(
        (cluster, key): (ClusterId, ClusterKey),
        node: NodeId,
        to: NodeId,
        dead: Dead,
        nonce: [u8; NONCE_BYTES],
    ) -> (Self, Vec<u8>) {
        // What it says needs no feature.
        let speaks = Protocol { features: Features::NONE, ..Protocol::of_this_build() };
        let hello = Hello { cluster, node, speaks, core: SUPERVISOR, nonce, ..Hello::default() };
        let begin = said(&[NodeMessage::Hello(hello)]);
        (Self { key, hello, to, dead, come: Vec::new(), has_said: false }, begin)
    }

    /// This has come.
    ///
    /// # Errors
    /// Why the other is not to be talked to.
    pub fn hear(&mut self, bytes: &[u8]) -> Result<Next, String> {
        self.come.extend_from_slice(bytes);
        let come = IoBuf::copy_of(&self.come).freeze();
        let Some(frame) = Receiver::new().frame(&come).map_err(|error| error.to_string())? else {
            return Ok(Next::Wait);
        };
        self.come.drain(..frame.header.frame_bytes());
        match frame.said {
            Said::Node(NodeMessage::HelloAnswer(answer)) if !self.has_said => {
                if answer.node != self.to {
                    return Err(format!("it is node {}", answer.node));
                }
                if !same_proof(&answer.proof, &self.key.answerer(&self.hello, &answer)) {
                    return Err("it does not know this cluster's key".to_owned());
                }
                let apart = |apart: crate::wire::Apart| apart.between(self.hello.node, self.to);
                self.hello.speaks.agree(&answer.speaks).map_err(apart)?;
                self.has_said = true;
                let proof = NodeMessage::HelloProof(self.key.opener(&self.hello, &answer));
                Ok(Next::Send(said(&[proof, NodeMessage::Dead(self.dead.clone()), NodeMessage::Ping])))
            }
            Said::Node(NodeMessage::HelloRefused(refused)) => Err(refused.reason),
            Said::Node(NodeMessage::Pong) if self.has_said => Ok(Next::Told),
            // It says other things to a node that it knows.
            _ if self.has_said => self.hear(&[]),
            _ => Err("it answers a hello with something else".to_owned()),
        }
    }
}

fn said(messages: &[NodeMessage]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let all_short = messages.iter().all(|message| encode_node(&Envelope::default(), message, &mut bytes).is_ok());
    assert!(all_short, "a node has no more stores than can be named");
    bytes
}
