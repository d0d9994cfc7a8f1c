//! What a status that is not green must say: each finding by itself, and those of one failure.

use serde_json::Value;

/// What a finding that is not green leaves open, of: why, what is at risk or out of service, what is being done, when that ends, and the
/// command to run with what leads up to it. Where nothing is at risk or to be done, that is said in words.
pub fn lacks(finding: &Value) -> impl Iterator<Item = &'static str> {
    let doing = &finding["doing"];
    let ends = text(&doing["ends"]);
    let says_all =
        |risks: &[&str]| !risks.is_empty() && finding["at_risk"].as_array().map(Vec::len) == Some(risks.len());
    let missing = [
        (text(&finding["cause"]).is_empty(), "a cause"),
        (!says_all(&risks(finding)), RISK),
        (text(&doing["text"]).is_empty(), "what is being done"),
        (!(ends.starts_with("when ") || ends.starts_with("in about ")), "when it ends"),
        (text(&finding["advice"]).is_empty(), "what leads up to the command"),
        (!COMMANDS.iter().any(|program| text(&finding["command"]).starts_with(program)), "the command to run"),
    ];
    missing.into_iter().filter_map(|(is_missing, what)| is_missing.then_some(what))
}

const RISK: &str = "what is at risk or out of service";

/// Programs that people are told to run.
const COMMANDS: [&str; 2] = ["cairn ", "etcdctl "];

/// Whether it says in these words what is wrong with a device of a node, of which volumes or nodes something is at risk or out of
/// service, what is done about it and until when, and what to run.
pub fn of_device(finding: &Value, node: usize, words: &str) -> bool {
    let cause = text(&finding["cause"]);
    cause.contains(&format!("node-{node}/device-"))
        && cause.contains(words)
        && (finding["severity"] == "at-risk" || finding["severity"] == "stopped")
        && risks(finding).iter().any(|risk| risk.contains("volume") || risk.contains("node-"))
        && text(&finding["command"]).starts_with("cairn ")
        && lacks(finding).next().is_none()
}

/// Whether it says that a node is away, or has not caught up, and all that goes with that.
pub fn of_node(finding: &Value, node: usize) -> bool {
    let is_its = text(&finding["cause"]).contains(&format!("node-{node} has "));
    is_its && finding["severity"] != "ok" && lacks(finding).next().is_none()
}

/// Whether it says how far something of this kind is that somebody ordered, when that ends, and how to take it back. Nothing is at risk
/// from what is as it was ordered.
pub fn of_order(finding: &Value, kind: &str) -> bool {
    finding["doing"]["kind"] == kind && lacks(finding).all(|what| what == RISK)
}

/// Whether it says that this etcd is lost, what one more loss would do, and how to see what is the matter there.
pub fn of_map_member(finding: &Value, name: &str) -> bool {
    text(&finding["cause"]).contains(&format!("lost a member: etcd at {name} does not answer, 2 of 3 do"))
        && finding["severity"] == "at-risk"
        && risks(finding)
            .iter()
            .any(|risk| risk.starts_with("one more loss of ") && !risk.contains(&format!("{name} ")))
        && !text(&finding["advice"]).is_empty()
        && text(&finding["command"]) == format!("etcdctl --endpoints={name} endpoint health")
}

/// Whether it says that there is no map, what goes on and what one more loss would do, and what to do.
pub fn of_silent_map(finding: &Value) -> bool {
    let cause = text(&finding["cause"]);
    cause.contains("map does not answer")
        && cause.contains("I/O goes on where no copy is gone")
        && finding["severity"] == "at-risk"
        && risks(finding).iter().any(|risk| risk.starts_with("one more loss of "))
        && !text(&finding["advice"]).is_empty()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn risks(finding: &Value) -> Vec<&str> {
    let risks = finding["at_risk"].as_array().map_or(&[][..], Vec::as_slice);
    risks.iter().map(|risk| text(&risk["text"])).filter(|text| !text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_order_says_all_but_a_risk() {
        let order = json!({
            "severity": "ok", "cause": "a device is being drained", "at_risk": [], "advice": "to leave it as it is:",
            "command": "cairn device undrain 7",
            "doing": {"kind": "drain", "text": "what is on it is copied elsewhere", "ends": "in about 9 s"},
        });
        assert!(of_order(&order, "drain") && !of_order(&order, "lost") && !of_node(&order, 7));
        for key in ["cause", "advice", "command", "doing"] {
            let mut less = order.clone();
            less[key] = json!("");
            assert!(!of_order(&less, "drain"), "{less}");
        }
    }

    #[test]
    fn a_finding_says_why_what_is_at_risk_what_is_done_until_when_and_what_to_run() {
        let risk = json!([{"text": "one more loss of node-1 stops volume a"}]);
        let full = json!({
            "severity": "at-risk", "cause": "node-2 is away", "at_risk": risk, "advice": "start it again:",
            "command": "cairn node run --config /etc/cairn/node.toml",
            "doing": {"kind": "wait", "text": "nothing is copied yet", "ends": "when it is back"},
        });
        assert_eq!(lacks(&full).count(), 0);
        let doing = |text: &str, ends: &str| json!({"kind": "wait", "text": text, "ends": ends});
        for (key, value) in [
            ("cause", json!("")),
            ("at_risk", json!([])),
            ("at_risk", json!([{"text": ""}])),
            ("at_risk", json!([{"text": "one more loss of node-1 stops volume a"}, {"text": ""}])),
            ("doing", doing("", "when it is back")),
            ("doing", doing("nothing is copied yet", "")),
            ("doing", doing("nothing is copied yet", "unknown yet")),
            ("advice", json!("")),
            ("command", json!("")),
            ("command", json!("start it")),
        ] {
            let mut less = full.clone();
            less[key] = value;
            assert_eq!(lacks(&less).count(), 1, "{less}");
        }
        // No word of a cause stands for any of the others, and neither does one of these for another.
        let cause =
            json!({"severity": "stopped", "cause": "9 of 12 groups do not serve: it has failed, 0 of 3 copies"});
        assert_eq!(lacks(&cause).count(), 5);
    }
}
