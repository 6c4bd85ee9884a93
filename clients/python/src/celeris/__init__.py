"""Client of Celeris: predictions, rankings and recommendations that learn from every observation."""

from ._async_client import AsyncClient, AsyncDecision, AsyncModel
from ._bodies import Rejected, Summary
from ._client import Client, Decision, Model
from .errors import (
    ApiError,
    CelerisError,
    ConnectionFailed,
    Conflict,
    InvalidRequest,
    NotAllowed,
    NotFound,
    RateLimited,
    Unavailable,
)

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncDecision",
    "AsyncModel",
    "CelerisError",
    "Client",
    "Conflict",
    "ConnectionFailed",
    "Decision",
    "InvalidRequest",
    "Model",
    "NotAllowed",
    "NotFound",
    "RateLimited",
    "Rejected",
    "Summary",
    "Unavailable",
]
