//! Behavior of nodes over HTTP. Nodes run in the process of the tests, except where a test kills or
//! limits a node or reads its metrics. Scenarios that are about that are in `processes`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod access;
mod audiences;
mod bad_input;
mod catalog;
mod cluster_lines;
mod cluster_routing;
mod cold_items;
mod connections;
mod context;
mod decisions;
mod drift;
mod empty_lists;
mod engines;
mod explaining;
mod export;
mod first_events;
mod forgetting;
mod future_times;
mod identities;
mod importing;
mod labels;
mod listings;
mod many_lines;
mod newcomers_mistakes;
mod occupied_threads;
mod one_process;
mod openapi;
mod options;
mod out_of_service;
mod parts;
mod personalizer;
mod policies;
mod policy_evaluation;
mod read_your_writes;
mod recommend;
mod registering;
mod retrain;
mod retrain_losses;
mod reward_figures;
mod rewards;
mod selection;
mod versions;
mod web_pages;
mod why;
