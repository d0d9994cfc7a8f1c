//! Errors as HTTP answers, all of one shape.

use super::types::{ErrorBody, ErrorDetail};
use crate::control::ControlError;
use crate::node_name::UnknownNodeName;
use crate::volume_spec::SpecError;
use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::borrow::Cow;
use volume::KeyError;

/// An error and its HTTP status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    code: &'static str,
    message: String,
    hint: Cow<'static, str>,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, code, message: message.into(), hint: hint.into() }
    }

    /// The same with other advice, if it is this error.
    pub(super) fn advise(self, code: &str, hint: impl Into<Cow<'static, str>>) -> Self {
        if self.code == code { Self { hint: hint.into(), ..self } } else { self }
    }

    pub(super) fn bad_request(message: impl Into<String>, hint: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message, hint)
    }

    pub(super) fn no_such_path(path: &str) -> Self {
        let message = format!("there is nothing at {path}");
        Self::new(StatusCode::NOT_FOUND, "not_found", message, "what there is stands in /v1/openapi.json")
    }

    pub(super) fn not_ready(reasons: &[String]) -> Self {
        let message = format!("not all of it serves: {}", reasons.join("; "));
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message, "`cairn status` says what to do")
    }

    pub(super) fn method_not_allowed(method: &str, path: &str) -> Self {
        let message = format!("{path} does not take {method}");
        let hint = "what it takes stands in /v1/openapi.json";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message, hint)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = ErrorDetail { code: self.code.to_owned(), message: self.message, hint: self.hint.into_owned() };
        (self.status, Json(ErrorBody { error })).into_response()
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let (status, code, hint) = match &error {
            ControlError::Exists { .. } => (
                StatusCode::CONFLICT,
                "volume_exists",
                "choose another name, or give that one another with `cairn volume rename`",
            ),
            ControlError::NotFound(_) => {
                (StatusCode::NOT_FOUND, "volume_not_found", "`cairn volume ls` shows the volumes there are")
            }
            ControlError::NotInTrash(_) => {
                (StatusCode::NOT_FOUND, "not_in_trash", "`cairn trash ls` shows what lies there")
            }
            ControlError::NoSnapshot(_) => {
                (StatusCode::NOT_FOUND, "snapshot_not_found", "`cairn snapshot ls VOLUME` shows those there are")
            }
            ControlError::SnapshotExists(_) => (
                StatusCode::CONFLICT,
                "snapshot_exists",
                "choose another name, or delete that one first with `cairn snapshot delete`",
            ),
            ControlError::HasSnapshots(_) => (
                StatusCode::CONFLICT,
                "has_snapshots",
                "delete them with `cairn snapshot delete VOLUME@NAME`, then the volume",
            ),
            ControlError::BadHost(_) => (StatusCode::BAD_REQUEST, "bad_host", "or `any`, which stands for every host"),
            ControlError::Hosts(_) => (StatusCode::CONFLICT, "hosts", "`cairn host ls` shows who may use what"),
            ControlError::WrongSecret(_) => (
                StatusCode::FORBIDDEN,
                "wrong_secret",
                "give the key file or passphrase that it was made with, or last got from `cairn volume rekey`",
            ),
            ControlError::NotEncrypted(_) => (
                StatusCode::CONFLICT,
                "not_encrypted",
                "it needs no key; a volume is encrypted from the start (`cairn volume create --encrypt`), or never",
            ),
            ControlError::NoPool(_) => {
                (StatusCode::NOT_FOUND, "pool_not_found", "`cairn pool ls` shows those there are")
            }
            ControlError::Smaller { .. } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "smaller",
                "volumes only grow: what is discarded takes no space, whatever the size",
            ),
            ControlError::Refused(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "refused", "change what you asked for, or make room for it")
            }
            ControlError::Unavailable(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "`cairn status` says how the cluster is")
            }
        };
        Self::new(status, code, error.to_string(), hint)
    }
}

impl From<SpecError> for ApiError {
    fn from(error: SpecError) -> Self {
        // The sentences of SpecError say both what is wrong and what may stand there.
        let text = error.to_string();
        let message = text.split_once(": ").map_or(text.as_str(), |(message, _)| message);
        let hint = match &error {
            SpecError::Name(_) | SpecError::SnapshotName(_) => {
                "use 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or a digit"
            }
            SpecError::SnapshotPath(_) => "write VOLUME@NAME",
            SpecError::Size(_) => "write a whole number of bytes",
            SpecError::SizeOutOfBounds(_) => "choose a size from 1048576 (1M) to 70368744177664 (64T) bytes",
            SpecError::SizeNotWholeBlocks(_) => "choose a multiple of 4096 bytes",
            SpecError::BlockSize(_) => "choose 512 or 4096",
            SpecError::Shape(_) => "write NAME:SIZE",
        };
        Self::bad_request(message, hint)
    }
}

impl From<UnknownNodeName> for ApiError {
    fn from(error: UnknownNodeName) -> Self {
        Self::bad_request(error.to_string(), "write node-N, as the list of nodes does")
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        Self::bad_request(error.to_string(), "choose a longer or a shorter one")
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        let message = rejection.body_text().replace('\n', " ");
        let hint = "send JSON with the header content-type: application/json; its shape stands in /v1/openapi.json";
        Self::new(rejection.status(), "bad_request", message, hint)
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        let message = rejection.body_text().replace('\n', " ");
        Self::new(rejection.status(), "bad_request", message, "write a name in plain ASCII letters, an id as a number")
    }
}
