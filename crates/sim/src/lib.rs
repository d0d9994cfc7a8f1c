//! Seed runner: workloads, histories, checkers
