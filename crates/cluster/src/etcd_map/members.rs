//! Which members of etcd answer: the map does with most of them, and nobody would see that it has lost one.

use super::reach::Reach;
use crate::map::Members;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// One that is busy for a moment is not lost.
const MISSES: u32 = 2;

/// Asks each that the options name, again and again, and notes it; if there are several. Ends with the runtime.
pub(super) async fn look(reach: Arc<Reach>, noted: Arc<Mutex<Members>>) {
    let endpoints = reach.endpoints();
    let mut missed = vec![0; endpoints.len()];
    while endpoints.len() > 1 {
        for (endpoint, missed) in endpoints.iter().zip(&mut missed) {
            *missed = if reach.answers(endpoint).await { 0 } else { *missed + 1 };
        }
        let (there, silent) = endpoints.iter().zip(&missed).partition::<Vec<_>, _>(|(_, missed)| **missed < MISSES);
        let names = |those: Vec<(&String, &u32)>| those.into_iter().map(|(endpoint, _)| endpoint.clone()).collect();
        *noted.lock().unwrap_or_else(PoisonError::into_inner) = Members { there: names(there), silent: names(silent) };
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
