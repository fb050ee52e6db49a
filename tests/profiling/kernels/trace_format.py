"""Checks traces against "Trace Event Format" (Google, the document of Chrome's tracing).

The events are those that Kineto and this package write: complete events (X), counters (C),
metadata (M), flows (s, t, f), instants (i).
"""

from collections.abc import Mapping
from numbers import Real
from typing import Any

PHASES = {"X", "C", "M", "s", "t", "f", "i"}
METADATA = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}


def check(document: Mapping[str, Any]) -> None:
    """Fail with the first event that is not valid (JSON object format, list ``traceEvents``)."""
    assert isinstance(document["traceEvents"], list)
    assert document.get("displayTimeUnit", "ms") in ("ms", "ns")
    for event in document["traceEvents"]:
        assert event["ph"] in PHASES, event
        assert isinstance(event["name"], str), event
        assert isinstance(event["pid"], int | str), event
        assert isinstance(event["ts"], Real), event
        assert not isinstance(event["ts"], bool), event
        CHECKS[event["ph"]](event)


def _complete(event: Mapping[str, Any]) -> None:
    assert isinstance(event["dur"], Real), event
    assert event["dur"] >= 0, event
    assert "tid" in event, event


def _counter(event: Mapping[str, Any]) -> None:
    """Checks that the values of a counter are numbers."""
    assert event["args"], event
    assert all(isinstance(value, Real) for value in event["args"].values()), event


def _metadata(event: Mapping[str, Any]) -> None:
    if event["name"] in METADATA and event["args"]:
        assert METADATA[event["name"]] in event["args"], event


def _flow(event: Mapping[str, Any]) -> None:
    assert "id" in event, event


def _instant(event: Mapping[str, Any]) -> None:
    assert event.get("s", "t") in ("g", "p", "t"), event


CHECKS = {
    "X": _complete,
    "C": _counter,
    "M": _metadata,
    "s": _flow,
    "t": _flow,
    "f": _flow,
    "i": _instant,
}
