//! Workload builders shared by the criterion benches and the tests.
