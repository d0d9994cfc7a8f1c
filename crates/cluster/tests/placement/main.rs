//! Placement: what it promises, over clusters drawn from seeds.

mod balance;
mod changes;
mod clusters;
mod duty;
mod laws;
mod limits;
mod sets;
mod working;
