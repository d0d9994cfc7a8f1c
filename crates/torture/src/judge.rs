//! Judges histories in a thread of its own, as they come, and keeps them if it is told to.

use crate::file::{self, Record};
use crate::finding::Finding;
use checker::check;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// All that is wrong with a history: what was wrong by itself, and the first answer that no order of operations explains.
pub fn judge(record: &Record) -> Vec<Finding> {
    let mut findings = record.wrong.clone();
    if let Err(violation) = check(&record.history) {
        findings.push(Finding::of(&violation, &record.history, &record.layout));
    }
    findings
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Judged {
    /// All that is wrong.
    pub findings: Vec<Finding>,
    /// Histories, one after the other.
    pub histories: u64,
    /// Operations of all of them.
    pub operations: u64,
    /// Why they could not be kept.
    pub not_kept: Option<String>,
}

impl Judged {
    /// One more history.
    pub fn add(&mut self, record: &Record) {
        self.histories += 1;
        self.operations += record.history.operations().len() as u64;
        self.findings.extend(judge(record));
    }
}

/// A thread that judges what it is sent.
pub struct Judge {
    sender: Sender<Record>,
    thread: JoinHandle<Judged>,
}

impl Judge {
    /// Begins; `keep`: a file that the histories go to.
    pub fn start(keep: Option<File>) -> Self {
        let (sender, receiver) = channel::<Record>();
        let run = move || {
            let mut judged = Judged::default();
            let mut keep = keep.map(BufWriter::new);
            for record in receiver {
                judged.add(&record);
                if let Some(file) = &mut keep
                    && let Err(error) = file::write(&record, file).and_then(|()| file.flush())
                {
                    judged.not_kept.get_or_insert(error.to_string());
                }
            }
            judged
        };
        Self { sender, thread: std::thread::spawn(run) }
    }

    /// Where histories are sent to; it ends when nobody has one of these any more.
    pub fn sender(&self) -> Sender<Record> {
        self.sender.clone()
    }

    /// Waits for the verdict.
    pub fn finish(self) -> Judged {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|_| panic!("the judge's thread failed: see above"))
    }
}
