//! What another node is to do that has just died: node 1 is asked, nodes 2 and 3 have a session.

use super::*;
use crate::control::Unanswered;
use crate::pools::PoolRequest;
use std::collections::VecDeque;
use std::sync::Mutex;
use types::NodeId;
use volume::{Message, PeerNode};

/// The nodes that are to be asked, in this order, each with the status that it answers.
type Script = Arc<Mutex<VecDeque<(u32, Result<u16, Unanswered>)>>>;

fn not_there() -> Result<u16, Unanswered> {
    Err(Unanswered::NotDone("it cannot be reached".to_owned()))
}

fn silent() -> Result<u16, Unanswered> {
    Err(Unanswered::Unknown("the connection ended".to_owned()))
}

fn volume(id: u64, name: &str, head: u32) -> VolumeInfo {
    let (limits, hosts) = (volume::Limits::default(), HostAccess::Unset);
    let new = NewVolume { name: name.to_owned(), size_bytes: 1 << 20, block_size_bytes: 512, limits, hosts };
    VolumeInfo { head: NodeId(head), ..info(id, &new) }
}

fn peer(number: u32) -> PeerNode {
    let (node, address) = (NodeId(number), "127.0.0.1:1".to_owned());
    let (nbd, admin, release) = (address.clone(), address.clone(), cluster::NodeRelease::default());
    let doors = cluster::DoorsRecord { node, nvme: address, nbd, admin, pid: 1, release };
    PeerNode { node, doors: Some(doors), has_ended: false, is_silent: false }
}

/// Volume `far` is served by node 2, and by node 3 as soon as nobody has heard of node 2; `near` by this node.
async fn core_of_one(mut requests: CrossReceiver<Request>, script: Script) {
    let mut volumes = vec![volume(1, "far", 2), volume(2, "near", 1), volume(3, "also-near", 1)];
    while let Ok(request) = requests.recv().await {
        match request {
            Request::Peers(reply) => drop(reply.send(vec![peer(2), peer(3)])),
            Request::ListVolumes(reply) => drop(reply.send(volumes.clone())),
            Request::CatchUp(reply) => drop(reply.send(Ok(()))),
            Request::Pools(PoolRequest::HomeFor(_, reply)) => drop(reply.send(Ok(NodeId(1)))),
            Request::CreateVolume(new, _, reply) => drop(reply.send(Ok(info(4, &new)))),
            Request::AskAbove(node, _, reply) => {
                let (expected, answer) = script.lock().unwrap().pop_front().expect("nobody is to be asked any more");
                assert_eq!(node, NodeId(expected));
                volumes[0].head = if answer.is_err() { NodeId(3) } else { volumes[0].head };
                let message = |status| Message {
                    head: json!({"status": status, "content_type": "application/json"}).to_string().into_bytes(),
                    body: b"{}".to_vec(),
                };
                let _ = reply.send(answer.map(message));
            }
            other => unreachable!("{other:?}"),
        }
    }
}

/// The status of a request whose `script` was gone through, and what it said.
fn answered(method: &str, path: &str, body: Option<Value>, script: &[(u32, Result<u16, Unanswered>)]) -> (u16, Value) {
    let script: Script = Arc::new(Mutex::new(script.iter().cloned().collect()));
    let (of_core, mut answer) = (script.clone(), None);
    let told = &mut answer;
    let client = move |at| async move { *told = Some(ask(at, method, path, body).await) };
    with_core((true, |requests| core_of_one(requests, of_core)), FilePath::new("node.toml"), client);
    assert_eq!(script.lock().unwrap().len(), 0, "all of them were asked");
    answer.expect("it was answered")
}

#[test]
fn a_volume_is_made_by_another_than_a_node_that_is_not_there() {
    let make = || Some(json!({"name": "new", "size_bytes": 1 << 20}));
    let made = |script: &[_]| answered("POST", "/v1/volumes", make(), script);
    assert_eq!(made(&[(3, Ok(201))]).0, 201, "node 3 serves nothing");
    assert_eq!(made(&[(3, not_there()), (2, Ok(201))]).0, 201);
    let (status, here) = made(&[(3, not_there()), (2, not_there())]);
    assert_eq!((status, &here["name"]), (201, &json!("new")));
    let (status, told) = made(&[(3, silent())]);
    assert_eq!(status, 503, "it may be made there: nobody makes another");
    assert!(told["error"]["message"].as_str().is_some_and(|text| text.ends_with("it may be done all the same")));
}

#[test]
fn what_a_head_is_asked_its_successor_does_unless_it_may_be_done() {
    const SNAPSHOT: &str = "/v1/volumes/far/snapshots/x";
    let deleted = |script: &[_]| answered("DELETE", SNAPSHOT, None, script);
    assert_eq!(deleted(&[(2, Ok(200))]).0, 200);
    assert_eq!(deleted(&[(2, not_there()), (3, not_there()), (3, Ok(200))]).0, 200);
    let (status, told) = deleted(&[(2, silent())]);
    assert_eq!(status, 503);
    assert!(told["error"]["message"].as_str().is_some_and(|text| text.ends_with("it may be done all the same")));
    let listed = answered("GET", "/v1/volumes/far/snapshots", None, &[(2, silent()), (3, Ok(200))]);
    assert_eq!(listed.0, 200, "what changes nothing may be asked again");
}
