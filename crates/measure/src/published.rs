//! Figures that others have published, from `data/published-figures.json`: other machines, other settings. They are context for
//! whoever reads a result, and are never compared with one.

use serde::Deserialize;

const FIGURES: &str = include_str!("../data/published-figures.json");

/// One figure.
#[derive(Clone, Debug, Deserialize)]
pub struct Figure {
    /// What was published.
    pub source: String,
    /// When.
    pub year: u32,
    /// Where.
    pub url_or_title: String,
    /// What was measured.
    pub system: String,
    /// Its version, if it is told.
    pub version: Option<String>,
    /// On what.
    pub hardware: String,
    /// Storage nodes.
    pub nodes: Option<u32>,
    /// Copies of each block.
    pub replicas: Option<u32>,
    /// The load.
    pub workload: Workload,
    /// `iops`, `mib_s`, `mean_us`, `ratio`, …
    pub metric: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// What else must be known of it.
    pub note: String,
}

/// A published load, as far as it is told.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Workload {
    /// In the source's words.
    pub pattern: Option<String>,
    /// `4k`.
    pub block_size: Option<String>,
    /// Outstanding I/Os per job.
    pub queue_depth: Option<u32>,
    /// Jobs.
    pub jobs: Option<u32>,
    /// Share of reads.
    pub read_percent: Option<u8>,
    /// Share of random places.
    pub random_percent: Option<u8>,
    /// Clients.
    pub clients: Option<u32>,
    /// Volumes.
    pub volumes: Option<u32>,
}

/// All of them.
///
/// # Panics
/// Never: a test reads the file.
pub fn figures() -> Vec<Figure> {
    serde_json::from_str(FIGURES).expect("the data file is as its test found it")
}

/// Those of the same block size and share of reads as a case, whatever the rest.
pub fn near(case: &crate::profile::Case) -> Vec<Figure> {
    let size = match case.block_size_bytes {
        bytes if bytes >= 1 << 20 => format!("{}m", bytes >> 20),
        bytes => format!("{}k", bytes >> 10),
    };
    let is_near = |figure: &Figure| {
        let load = &figure.workload;
        load.block_size.as_deref().map(str::to_lowercase).as_deref() == Some(&size)
            && load.read_percent == Some(case.read_percent)
            && (load.random_percent == Some(0)) == (case.random_percent == 0)
            && load.queue_depth.is_none_or(|depth| depth == case.depth)
            && load.jobs.is_none_or(|jobs| jobs == case.jobs)
    };
    figures().into_iter().filter(is_near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn the_data_file_is_read_whole() {
        let figures = figures();
        assert!(figures.len() > 400);
        assert!(figures.iter().all(|figure| figure.value.is_finite() && !figure.source.is_empty()));
    }

    #[test]
    fn every_mix_has_context() {
        let mix = Profile::named("mix").unwrap().cases(false);
        assert!(!near(&mix[0]).is_empty());
        assert!(near(&mix[0]).iter().all(|figure| figure.workload.read_percent == Some(100)));
    }
}
