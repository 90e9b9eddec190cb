//! The command as a whole: real processes, HTTPS, kube-rs and, where there is one, kubectl.

mod answers;
mod bad_input;
mod cases;
mod demo;
mod durability;
mod explained;
mod extender;
mod flow;
mod kubectl;
mod node_work;
mod process;
mod recording;
mod report;
mod second_scheduler;
mod transcripts;
