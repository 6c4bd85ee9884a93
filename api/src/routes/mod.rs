//! HTTP handlers: one file for each resource, each with a `router()`. Names and shapes are the
//! contract with clients.

pub mod attributes;
pub mod backups;
pub mod catalog;
pub mod cluster;
pub mod decisions;
pub mod evaluate_policy;
pub mod events;
pub mod exploration;
pub mod health;
pub mod ingests;
pub mod items;
pub mod jobs;
pub mod keys;
pub mod metrics;
pub mod models;
pub mod objects;
pub mod observations;
pub mod observe;
pub mod page;
pub mod personalizer;
pub mod pipelines;
pub mod predict;
pub mod quality;
pub mod recommend;
pub mod rewards;
pub mod selections;
pub mod similar;
pub mod studies;
pub mod topk;
pub mod trials;
pub mod users;
pub mod versions;
pub mod why;
