//! Load generators and measurements
