"""Rows of data frames as lines of observations."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Columns:
    """The columns of a frame."""

    user: str
    item: str
    label: str
    timestamp: str | None
    weight: str | None
    context: tuple[str, ...]

    def names(self) -> list[str]:
        given = [self.user, self.item, self.label, self.timestamp, self.weight, *self.context]
        return [name for name in given if name is not None]


#: Rows that are converted at a time.
ROWS_AT_ONCE = 50_000


def lines(frame: Any, columns: Columns, id_prefix: str) -> Iterator[bytes]:
    """A line for each row, with the id `PREFIX-PLACE`."""
    place = 0
    for values in _columns_of(frame, columns):
        user, item, label = (values[name] for name in (columns.user, columns.item, columns.label))
        times = _times(values[columns.timestamp]) if columns.timestamp else None
        weights = values[columns.weight] if columns.weight else None
        contexts = [values[name] for name in columns.context]
        encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
        for row in range(len(user)):
            body: dict[str, Any] = {
                "user": _id(user[row]),
                "item": _id(item[row]),
                "label": label[row],
                "observation_id": f"{id_prefix}-{place}",
            }
            if times is not None:
                body["timestamp"] = times[row]
            if weights is not None:
                body["weight"] = weights[row]
            if contexts:
                fields = {name: values[row] for name, values in zip(columns.context, contexts, strict=True)}
                body["context"] = {name: value for name, value in fields.items() if not _is_missing(value)}
            yield encode(body).encode()
            place += 1


def _columns_of(frame: Any, columns: Columns) -> Iterator[dict[str, Sequence[Any]]]:
    """The columns as lists, some rows at a time."""
    names = columns.names()
    missing = [name for name in names if name not in _names(frame)]
    if missing:
        raise KeyError(f"the frame has no column {', '.join(missing)}; it has {', '.join(_names(frame))}")
    rows = frame.num_rows if hasattr(frame, "num_rows") else len(frame)
    for begin in range(0, rows, ROWS_AT_ONCE):
        if hasattr(frame, "to_pylist"):
            part = frame.select(names).slice(begin, ROWS_AT_ONCE)
            yield {name: part.column(name).to_pylist() for name in names}
        else:
            part = frame.iloc[begin : begin + ROWS_AT_ONCE]
            yield {name: part[name].tolist() for name in names}


def _names(frame: Any) -> list[str]:
    return [str(name) for name in getattr(frame, "column_names", None) or frame.columns]


def _id(value: Any) -> Any:
    """Ids of whole numbers are read as floats where a column has gaps."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _times(values: Sequence[Any]) -> list[Any]:
    """Times as the API takes them: Unix milliseconds, or texts."""
    return [round(value.timestamp() * 1000) if hasattr(value, "timestamp") else value for value in values]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
