//! Backups of the node: a client makes them of copies that the node holds.

use std::io;
use std::time::SystemTime;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::asking::Asking;
use crate::backups::{HELD_MAX, Held, IDLE_MAX, Made};
use crate::cluster::{PACE, written_body};
use crate::description::NotFound;
use crate::error::ApiError;
use crate::extract::Body;
use crate::routes::cluster;
use crate::schema::backups::{
    BackupCluster, BackupCopy, BackupFile, Backups, FinishedBackup, MadeBackup, RunningBackup,
};
use crate::state::Node;

/// Bytes of the text that says where a backup is.
const TO_BYTES_MAX: usize = 1024;

/// Bytes of the id of a store: what tells two stores apart, and reveals nothing of its key.
const STORE_ID_BYTES: usize = 8;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .routes(routes!(list_backups, begin_backup))
        .routes(routes!(finish_backup, abandon_backup))
        .routes(routes!(get_backup_file))
}

fn held(node: &Node, id: &str) -> Result<std::sync::Arc<Held>, ApiError> {
    node.backups.get(id).ok_or_else(|| {
        ApiError::not_found(format!(
            "no copy is held for backup {id}; one that nobody asks for is removed after {} seconds",
            IDLE_MAX.as_secs()
        ))
    })
}

/// Lists the last backups of this node, which were noted when they were complete, and those being made.
#[utoipa::path(get, path = "/v1/backups", tag = "node", responses((status = 200, body = Backups)))]
async fn list_backups(State(node): State<Node>) -> Json<Backups> {
    let backups = node.backups.made().into_iter().map(MadeBackup::from).collect();
    Json(Backups { backups, running: node.backups.held().iter().map(|held| RunningBackup::from(&**held)).collect() })
}

/// Makes a copy of the data directory as of now, with everything that was acknowledged before, and holds it for a client
/// that fetches its files. `celeris backup` does all that.
#[utoipa::path(post, path = "/v1/backups", tag = "node", responses((status = 201, body = BackupCopy)))]
async fn begin_backup(
    State(node): State<Node>,
    Asking(principal): Asking,
) -> Result<(StatusCode, Json<BackupCopy>), ApiError> {
    cluster::await_whole(&node).await?;
    let busy = || ApiError::unavailable(format!("{HELD_MAX} backups of this node are being made already"));
    let permit = node.backups.permit().ok_or_else(busy)?;
    let principal = principal.map(|principal| principal.name().to_owned());
    let making = node.clone();
    // Not ended by a client that goes away, and so with the permit.
    let made = tokio::task::spawn_blocking(move || {
        making.backups.hold((permit, principal), |folder| making.manager.copy_for_backup(folder))
    });
    let (held, copy) = made.await.map_err(ApiError::internal)??;
    let cluster = node.storage.cluster()?;
    let store = digest(&SHA256, &node.storage.hash_key()?);
    let store = store.as_ref().iter().take(STORE_ID_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let reply = BackupCopy {
        id: held.id.clone(),
        at: held.at.0,
        celeris: env!("CARGO_PKG_VERSION").to_owned(),
        store,
        cluster: cluster.map(|of| BackupCluster { name: of.name, incarnation: of.incarnation }),
        records: held.records,
        position: copy.position,
        versions: copy.versions,
        missing: copy.missing,
        files: held.files.iter().map(BackupFile::from).collect(),
        idle_seconds_max: IDLE_MAX.as_secs(),
    };
    Ok((StatusCode::CREATED, Json(reply)))
}

/// Returns a file of a copy.
#[utoipa::path(get, path = "/v1/backups/{backup}/files/{file}", tag = "node",
    params(("backup" = String, Path, description = "The id of the backup"),
        ("file" = String, Path, description = "The number of the file, from 0")),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream",
        description = "The bytes of the file"), (status = 404, response = NotFound)))]
async fn get_backup_file(
    State(node): State<Node>,
    Path((backup, file)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let held = held(&node, &backup)?;
    let unknown = || ApiError::not_found(format!("backup {backup} has no file of the number {file:?}"));
    let number: usize = file.parse().map_err(|_| unknown())?;
    let opened = tokio::task::spawn_blocking(move || held.open(number).map(|opened| (opened, held)));
    let ((mut opened, bytes), held) =
        opened.await.map_err(ApiError::internal)?.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => unknown(),
            _ => ApiError::internal(error),
        })?;
    let body = written_body(PACE, move |into| {
        let sent = io::copy(&mut opened, into).map(drop);
        // Held until here.
        drop(held);
        sent
    });
    let headers =
        [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (header::CONTENT_LENGTH, bytes.to_string())];
    Ok((headers, body).into_response())
}

/// Notes that a backup is complete, and removes its copy.
#[utoipa::path(post, path = "/v1/backups/{backup}", tag = "node", request_body = FinishedBackup,
    params(("backup" = String, Path, description = "The id of the backup")),
    responses((status = 200, body = MadeBackup), (status = 404, response = NotFound)))]
async fn finish_backup(
    State(node): State<Node>,
    Path(backup): Path<String>,
    Body(FinishedBackup { to, bytes, sent_bytes }): Body<FinishedBackup>,
) -> Result<Json<MadeBackup>, ApiError> {
    if to.is_empty() || to.len() > TO_BYTES_MAX || to.contains(char::is_control) {
        return Err(ApiError::invalid(format!("to: expected 1 to {TO_BYTES_MAX} bytes without control characters")));
    }
    let held = held(&node, &backup)?;
    let made = Made {
        id: held.id.clone(),
        at: held.at,
        finished: SystemTime::now().into(),
        principal: held.principal.clone(),
        to,
        records: held.records,
        bytes,
        sent_bytes,
    };
    drop(held);
    let (noting, noted) = (node.clone(), made.clone());
    tokio::task::spawn_blocking(move || noting.backups.note(noted)).await.map_err(ApiError::internal)?;
    Ok(Json(made.into()))
}

/// Removes the copy of a backup that is given up.
#[utoipa::path(delete, path = "/v1/backups/{backup}", tag = "node",
    params(("backup" = String, Path, description = "The id of the backup")),
    responses((status = 204, description = "The copy is removed"), (status = 404, response = NotFound)))]
async fn abandon_backup(State(node): State<Node>, Path(backup): Path<String>) -> Result<StatusCode, ApiError> {
    held(&node, &backup)?;
    tokio::task::spawn_blocking(move || drop(node.backups.release(&backup))).await.map_err(ApiError::internal)?;
    Ok(StatusCode::NO_CONTENT)
}
