//! What status says when the store that holds the map has lost a member, and goes on with the others; and when it does not answer.

use super::health_types::{AtRisk, Doing, Finding, Severity};
use super::types::{Health, Status};
use crate::control::ControlError;
use cluster::Members;
use cluster::health::WorkKind;

/// Adds what there is to say, if anything.
pub(super) fn tell(status: &mut Status, members: &Members) {
    of(members).into_iter().for_each(|finding| add(status, finding));
}

/// Adds that it does not answer at all.
pub(super) fn tell_silence(status: &mut Status, error: &ControlError) {
    add(status, of_silence(error));
}

fn add(status: &mut Status, finding: Finding) {
    status.health = status.health.max(Health::Degraded);
    status.reasons.push(format!("{}: {} `{}`", finding.cause, finding.advice, finding.command));
    status.at_risk.extend(finding.at_risk.iter().cloned());
    status.doing.extend(finding.doing.clone());
    // Of what is as urgent it comes first: the rest waits for it.
    status.findings.insert(0, finding);
    status.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
}

fn of_silence(error: &ControlError) -> Finding {
    let text = "one more loss of any node stops what it has a copy of, until the map answers: no group goes on without a copy, \
                and no node takes another's place";
    let risk = AtRisk { text: text.to_owned(), loses_data: false, of: Vec::new(), groups: 0, volumes: Vec::new() };
    Finding {
        severity: Severity::AtRisk,
        cause: format!(
            "the cluster map does not answer ({error}): I/O goes on where no copy is gone, the rest waits; nothing is moved"
        ),
        at_risk: vec![risk],
        doing: Some(waits("nothing is moved and nobody given up; it is asked again and again", "it answers")),
        advice: "look whether etcd is up where node.toml says it is; nodes find it again by themselves".to_owned(),
        command: "cairn status --watch".to_owned(),
    }
}

/// Nothing can be done but wait, until this has happened.
fn waits(text: &str, until: &str) -> Doing {
    Doing {
        kind: WorkKind::Wait.name().to_owned(),
        subject: String::new(),
        text: text.to_owned(),
        groups_left: 0,
        bytes_left: 0,
        bytes_per_second: None,
        ends: format!("when {until}"),
        ends_at: None,
        command: String::new(),
    }
}

/// A store with less than a majority does not answer at all, which is told otherwise.
fn of(members: &Members) -> Option<Finding> {
    let (there, silent) = (&members.there, &members.silent);
    let all = there.len() + silent.len();
    let spare = there.len().checked_sub(all / 2 + 1)?;
    let lost = silent.first()?;
    let losses = if spare == 0 { "one more loss".to_owned() } else { format!("the loss of {} more", spare + 1) };
    let risk = AtRisk {
        text: format!(
            "{losses} of {} stops all changes of the map: I/O goes on where no copy is gone, nothing is moved, and no node \
             takes another's place",
            there.join(" or ")
        ),
        loses_data: false,
        of: there.clone(),
        groups: 0,
        volumes: Vec::new(),
    };
    let cause = format!(
        "the cluster map has lost a member: etcd at {} does not answer, {} of {all} do",
        silent.join(", "),
        there.len()
    );
    let advice = "start etcd there again; if that machine is lost for good, put another member in its place, and name it in \
                  each node's node.toml; what etcd says of it:";
    Some(Finding {
        severity: if spare == 0 { Severity::AtRisk } else { Severity::Degraded },
        cause,
        at_risk: vec![risk],
        doing: Some(waits("nothing by itself: the other members go on, and all I/O", "that member answers again")),
        advice: advice.to_owned(),
        command: format!("etcdctl --endpoints={lost} endpoint health"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(there: usize, silent: usize) -> Option<Finding> {
        let names = |range: std::ops::Range<usize>| range.map(|one| format!("http://etcd-{one}:2379")).collect();
        of(&Members { there: names(0..there), silent: names(there..there + silent) })
    }

    #[test]
    fn a_map_that_does_not_answer_says_what_that_puts_at_risk_and_what_to_do() {
        let finding = of_silence(&ControlError::Unavailable("nobody answers".to_owned()));
        assert!(finding.cause.starts_with("the cluster map does not answer ("), "{}", finding.cause);
        assert_eq!(finding.severity, Severity::AtRisk);
        assert!(finding.at_risk[0].text.starts_with("one more loss of any node stops "), "{:?}", finding.at_risk);
        assert!(finding.advice.contains("etcd") && !finding.command.is_empty());
        assert!(finding.doing.is_some_and(|doing| !doing.text.is_empty() && doing.ends == "when it answers"));
    }

    #[test]
    fn a_member_that_is_lost_is_named_with_what_one_more_loss_does() {
        let finding = told(2, 1).expect("one is lost");
        assert_eq!(finding.severity, Severity::AtRisk);
        assert!(finding.cause.contains("etcd at http://etcd-2:2379 does not answer, 2 of 3 do"), "{}", finding.cause);
        let risk = &finding.at_risk[0].text;
        assert!(risk.starts_with("one more loss of http://etcd-0:2379 or http://etcd-1:2379 stops"), "{risk}");
        assert_eq!(finding.command, "etcdctl --endpoints=http://etcd-2:2379 endpoint health");
    }

    #[test]
    fn what_bears_another_loss_is_said_to_and_what_is_whole_is_not_mentioned() {
        let finding = told(4, 1).expect("one is lost");
        assert_eq!(finding.severity, Severity::Degraded);
        assert!(finding.at_risk[0].text.starts_with("the loss of 2 more of "), "{:?}", finding.at_risk);
        assert_eq!((told(3, 0), told(0, 0), told(1, 2)), (None, None, None));
    }
}
