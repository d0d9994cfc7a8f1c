//! What fuzzing found worth keeping, through the functions that are fuzzed (`make fuzz`).

#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::path::Path;

#[test]
fn every_corpus_does_no_harm() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, run) in targets::TARGETS {
        let entries = std::fs::read_dir(corpora.join(name)).unwrap_or_else(|error| panic!("corpus {name}: {error}"));
        let mut count = 0;
        for entry in entries {
            let path = entry.expect("a directory that can be read").path();
            run(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
            count += 1;
        }
        println!("{name}: {count} inputs");
        assert!(count > 0, "the corpus of {name} is empty");
    }
}
