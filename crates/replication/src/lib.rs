//! A placement group: order, prepare, commit
