//! What a status that is not green must say: each finding by itself, and those of one failure.

use serde_json::Value;

/// Words of a cause that say what is out of service, or how things are where no volume lies: how many copies
/// are left of groups, and how full a device is.
const SERVICE: [&str; 10] = [
    "serve",
    "is given up",
    "failed",
    "damaged",
    " copies",
    " % full",
    "not been heard of",
    "carries out orders",
    "does not say how it is",
    "reaches volume",
];

/// What copies something may not know yet when it ends.
const COPYING: [&str; 3] = ["copy", "drain", "lost"];

/// What a finding that is not green leaves open: why, what is at risk or out of service, what is done and when that ends; or where
/// nothing is done, what to do.
pub fn lacks(finding: &Value) -> impl Iterator<Item = &'static str> {
    let (cause, doing) = (text(&finding["cause"]), &finding["doing"]);
    let names_service = finding["severity"] != "at-risk" && SERVICE.iter().any(|words| cause.contains(words));
    let (is_done, ends) = (!text(&doing["text"]).is_empty(), text(&doing["ends"]));
    let may_be_unknown = COPYING.iter().any(|kind| doing["kind"] == *kind);
    let has_remedy = !text(&finding["advice"]).is_empty() || !text(&finding["command"]).is_empty();
    let missing = [
        (cause.is_empty(), "a cause"),
        (!names_service && risks(finding).is_empty(), "what is at risk or out of service"),
        (is_done && (ends.is_empty() || ends == "unknown yet" && !may_be_unknown && !has_remedy), "when it ends"),
        (!is_done && !has_remedy, "what is being or to be done"),
    ];
    missing.into_iter().filter_map(|(is_missing, what)| is_missing.then_some(what))
}

/// Whether it says in these words what is wrong with a device of a node, of which volumes or nodes something is at risk or out of
/// service, and what to run or to do.
pub fn of_device(finding: &Value, node: usize, words: &str) -> bool {
    let cause = text(&finding["cause"]);
    cause.contains(&format!("node-{node}/device-"))
        && cause.contains(words)
        && (finding["severity"] == "at-risk" || finding["severity"] == "stopped")
        && risks(finding).iter().any(|risk| risk.contains("volume") || risk.contains("node-"))
        && text(&finding["command"]).starts_with("cairn ")
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
    fn a_finding_says_why_what_is_at_risk_and_until_when_or_what_to_do() {
        let risk = json!([{"text": "one more loss of node-1 stops volume a"}]);
        let full = json!({
            "severity": "at-risk", "cause": "node-2 is away", "at_risk": risk, "advice": "start it again", "command": "",
            "doing": {"kind": "wait", "text": "nothing is copied yet", "ends": "when it is back"},
        });
        assert_eq!(lacks(&full).count(), 0);
        for (key, value) in [
            ("cause", json!("")),
            ("at_risk", json!([])),
            ("doing", json!({"kind": "wait", "text": "nothing is copied yet", "ends": ""})),
        ] {
            let mut less = full.clone();
            less[key] = value;
            assert_eq!(lacks(&less).count(), 1, "{key}");
        }
        let mut idle = full;
        idle["doing"] = json!(null);
        assert_eq!(lacks(&idle).count(), 0);
        idle["advice"] = json!("");
        assert_eq!(lacks(&idle).collect::<Vec<_>>(), ["what is being or to be done"]);
    }
}
