//! Metrics of one name, with their labels.

use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use volume::latency::{self, bucket_bound};

/// Names and values of labels.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Families of metrics, in the order in which they were told.
#[derive(Default)]
pub(super) struct Families(Vec<MetricFamily>);

impl Families {
    /// A value that goes up and down; `of` tells each metric of the family.
    pub(super) fn gauge(&mut self, name: &str, help: &str, of: impl FnOnce(&mut dyn FnMut(Labels, f64))) {
        self.family(name, help, MetricType::GAUGE, |metrics| {
            of(&mut |labels, value| {
                let (mut metric, mut gauge) = (labelled(labels), Gauge::default());
                gauge.set_value(value);
                metric.set_gauge(gauge);
                metrics.push(metric);
            });
        });
    }

    /// A value that only goes up until the node starts anew.
    pub(super) fn counter(&mut self, name: &str, help: &str, of: impl FnOnce(&mut dyn FnMut(Labels, f64))) {
        assert!(name.ends_with("_total"), "{name} counts");
        self.family(name, help, MetricType::COUNTER, |metrics| {
            of(&mut |labels, value| {
                let (mut metric, mut counter) = (labelled(labels), Counter::default());
                counter.set_value(value);
                metric.set_counter(counter);
                metrics.push(metric);
            });
        });
    }

    /// Durations, in seconds.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        of: impl FnOnce(&mut dyn FnMut(Labels, &latency::Histogram)),
    ) {
        self.family(name, help, MetricType::HISTOGRAM, |metrics| {
            of(&mut |labels, durations| {
                let mut metric = labelled(labels);
                metric.set_histogram(histogram(durations));
                metrics.push(metric);
            });
        });
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType, of: impl FnOnce(&mut Vec<Metric>)) {
        let mut metrics = Vec::new();
        of(&mut metrics);
        if metrics.is_empty() {
            return; // a family of nothing is not written
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    /// All of them in Prometheus' text format.
    pub(super) fn text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.0).expect("families with a name and metrics")
    }
}

fn labelled(labels: Labels) -> Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

fn histogram(durations: &latency::Histogram) -> Histogram {
    let mut below = 0;
    let bucket = |(number, count): (usize, &u64)| {
        below += count;
        // The last has no bound: it is the whole count, which is told anyway.
        bucket_bound(number).map(|bound| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound.as_secs_f64());
            bucket.set_cumulative_count(below);
            bucket
        })
    };
    let buckets = durations.counts.iter().enumerate().filter_map(bucket).collect();
    let mut told = Histogram::default();
    told.set_bucket(buckets);
    told.set_sample_count(durations.count());
    told.set_sample_sum(durations.sum_ns as f64 / 1e9);
    told
}
