//! Placement: what it promises, over clusters drawn from seeds.

mod balance;
mod changes;
mod clusters;
mod dealt;
mod duty;
mod laws;
mod limits;
mod minimum;
mod sets;
mod splits;
mod working;
