//! How a connection begins: both sides show that they know the cluster's key (see `wire::key`), and until then nothing else is
//! looked at.

use super::link::{Frames, Link};
use super::{CoreGroups, Shared};
use crate::wire::{
    Agreed, Envelope, FRAME_HEADER_BYTES, Frame, Hello, HelloRefused, NONCE_BYTES, NodeMessage, Protocol, Said,
    encode_node, same_proof,
};
use runtime::{DetachedStream, IoBuf, SharedBuf, TcpListener, TcpStream};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use types::{Mutant, NodeId, mutant};

/// Who connects says hello within this, and who is connected to answers.
pub(super) const HELLO_PATIENCE: Duration = Duration::from_secs(2);

/// Connections that have not shown yet who makes them: all cores of some dozen nodes that come back at once.
const GREETINGS_MAX: usize = 1024;

/// Takes connections of other nodes, for ever.
pub(super) async fn accept(core: Rc<CoreGroups>, listener: TcpListener) {
    let greetings = Rc::new(Cell::new(0));
    loop {
        match listener.accept().await {
            Ok(stream) if greetings.get() >= GREETINGS_MAX => {
                log::warn!("{}: too many connections begin at once: this one is ended", stream.peer_address());
            }
            Ok(stream) => {
                let (core, greetings) = (core.clone(), greetings.clone());
                greetings.set(greetings.get() + 1);
                runtime::spawn(async move {
                    let _ = runtime::timeout(HELLO_PATIENCE, greet(core, stream)).await;
                    greetings.set(greetings.get() - 1);
                });
            }
            Err(error) => {
                log::error!("connections of other nodes cannot be taken: {error}");
                runtime::sleep(HELLO_PATIENCE).await;
            }
        }
    }
}

/// Who connects says who it is and shows that it knows the cluster's key; only then is it listened to, on the core that it means.
async fn greet(core: Rc<CoreGroups>, stream: TcpStream) {
    let peer = stream.peer_address();
    let mut frames = Frames::of_stranger(&stream);
    let hello = match frames.next().await {
        Ok(Some(Frame { said: Said::Node(NodeMessage::Hello(hello)), .. })) => hello,
        Ok(Some(_)) => return log::error!("{peer}: it begins with no hello"),
        Ok(None) => return,
        Err(error) => return log::error!("{peer}: it is no node: {error}"),
    };
    if let Some(reason) = refuse(&core, &hello) {
        log::error!("{peer}: {reason}");
        return part(&stream, reason).await;
    }
    let shared = &core.shared;
    let mut answer = Hello { core: hello.to_core, to_core: hello.core, ..shared.hello() };
    answer.proof = shared.key.answerer(&hello, &answer);
    if say(&stream, &NodeMessage::HelloAnswer(answer)).await.is_err() {
        return;
    }
    let knows_key = match frames.next().await {
        Ok(Some(Frame { said: Said::Node(NodeMessage::HelloProof(proof)), .. })) => {
            same_proof(&proof, &shared.key.opener(&hello, &answer)) || mutant(Mutant::StrangerHeard)
        }
        Ok(Some(_)) | Err(_) => mutant(Mutant::StrangerHeard),
        Ok(None) => return,
    };
    if !knows_key {
        let reason = format!("{peer} says that it is node {} and does not know this cluster's key", hello.node);
        log::error!("{reason}");
        return part(&stream, reason).await;
    }
    let Some(agreed) = core.agree(hello.node, &hello.speaks) else { return };
    // What came together with the proof.
    let rest = frames.into_rest();
    if hello.to_core == 0 {
        return core.adopt((stream, rest), (hello.node, hello.core), agreed);
    }
    let (detached, rest): (DetachedStream, Vec<u8>) = (stream.detach(), rest.to_vec());
    core.tell(hello.to_core, move |core| {
        core.adopt((detached.attach(), IoBuf::copy_of(&rest).freeze()), (hello.node, hello.core), agreed);
    });
}

/// Says why there is nothing to say to each other, and leaves the end to the other side: a connection that is ended while something
/// that came on it is unread is reset, and what was said last may be lost with it.
async fn part(stream: &TcpStream, reason: String) {
    if say(stream, &NodeMessage::HelloRefused(HelloRefused { reason })).await.is_ok() {
        while stream.recv().await.is_ok_and(|more| !more.is_empty()) {}
    }
}

/// Sends what begins a connection.
async fn say(stream: &TcpStream, message: &NodeMessage) -> Result<(), String> {
    let mut bytes = Vec::with_capacity(2 * FRAME_HEADER_BYTES);
    encode_node(&Envelope::default(), message, &mut bytes).map_err(|error| error.to_string())?;
    stream.send(&mut vec![IoBuf::copy_of(&bytes).freeze()]).await.map_err(|error| error.to_string())
}

impl Shared {
    /// What this node says of itself on a new connection.
    fn hello(&self) -> Hello {
        let mut nonce = [0; NONCE_BYTES];
        nonce.chunks_mut(8).for_each(|part| part.copy_from_slice(&runtime::random_u64().to_le_bytes()));
        Hello {
            cluster: self.cluster,
            node: self.node,
            incarnation: self.incarnation,
            speaks: self.protocol,
            nonce,
            ..Hello::default()
        }
    }
}

impl CoreGroups {
    /// What is agreed on with another node, that has shown that it is one. Where that is nothing, it is remembered, and told once.
    fn agree(&self, node: NodeId, speaks: &Protocol) -> Option<Agreed> {
        let (this, agreed) = (&self.shared, self.shared.protocol.agree(speaks));
        // All others have a connection with the first core: that one remembers.
        let mut apart = self.apart.borrow_mut();
        match agreed {
            Ok(agreed) => {
                apart.remove(&node);
                Some(agreed)
            }
            Err(why) => {
                let text = why.between(this.node, node);
                if self.core == 0 && apart.get(&node) != Some(&text) {
                    log::error!("no connection with node-{node}: {text}");
                    apart.insert(node, text);
                }
                None
            }
        }
    }
}

/// Why there is nothing to say to each other.
fn refuse(core: &CoreGroups, hello: &Hello) -> Option<String> {
    let Shared { cluster, lines, .. } = &*core.shared;
    if hello.cluster != *cluster {
        return Some(format!("this node is of cluster {cluster}, and the one that connects is of {}", hello.cluster));
    }
    if usize::from(hello.to_core) >= lines.len() {
        return Some(format!("this node has {} cores, and core {} is asked for", lines.len(), hello.to_core));
    }
    None
}

/// Connects, and shows that this node knows the cluster's key to one that does. What came behind its answer comes along.
pub(super) async fn introduce(
    core: &CoreGroups,
    link: &Link,
    address: SocketAddr,
) -> Result<(TcpStream, SharedBuf, Agreed), String> {
    let shared = &core.shared;
    let hello = Hello { core: core.core, to_core: link.core, ..shared.hello() };
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    say(&stream, &NodeMessage::Hello(hello)).await?;
    let mut frames = Frames::of_stranger(&stream);
    let answer = frames.next().await.map_err(|error| error.to_string())?;
    let answer = match answer.map(|frame| frame.said) {
        Some(Said::Node(NodeMessage::HelloAnswer(answer))) => answer,
        Some(Said::Node(NodeMessage::HelloRefused(refused))) => return Err(refused.reason),
        Some(_) => return Err("it answers a hello with something else".to_owned()),
        None => return Err("it ended the connection".to_owned()),
    };
    if answer.node != link.node {
        return Err(format!("it is node {}", answer.node));
    }
    if !same_proof(&answer.proof, &shared.key.answerer(&hello, &answer)) {
        return Err("it does not know this cluster's key".to_owned());
    }
    // The other side, too, has to know who it has nothing in common with.
    say(&stream, &NodeMessage::HelloProof(shared.key.opener(&hello, &answer))).await?;
    let agreed = core.agree(link.node, &answer.speaks).ok_or("it speaks no version that this node does")?;
    let rest = frames.into_rest();
    Ok((stream, rest, agreed))
}
