//! The binaries `celeris` and `celeris-bench` as processes: commands, and nodes that are killed,
//! limited, stopped by signals, or served by a replaced binary, whose files are damaged, or whose
//! output and metrics are read.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod backup;
mod bad_command;
mod bad_trainer;
mod bench;
mod checks;
mod command_line;
mod config;
mod corrupt_log;
mod data_formats;
mod demo_restart;
mod deploy;
mod documents;
mod dsjson;
mod evaluate;
mod evaluate_protocols;
mod extreme_versions;
mod graceful_stop;
mod import_objects;
mod import_resume;
mod ingest;
mod kill_amendments;
mod kill_in_retrain;
mod kill_in_study;
mod kill_nine;
mod learning;
mod log_lines;
mod metrics;
mod newcomer;
mod one_state;
mod ope;
mod openapi_examples;
mod pipelines;
mod poisoned;
mod poisoned_version;
mod prediction_caching;
mod private_files;
mod sealed_decisions;
mod sealing;
mod sealing_amendments;
mod secured;
mod switching;
mod traces;
mod workers;
