"""Our histogram writes what that of the library writes, whatever is observed."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as LibraryHistogram
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from headway.metrics.histogram import Histogram
from headway.metrics.registry import SEQUENCE_BUCKETS, TIME_BUCKETS, OwnRegistry

NAME, MEANING = "headway_waits_seconds", 'Waits, "all" of them.'

values = st.one_of(
    st.sampled_from([*TIME_BUCKETS, *SEQUENCE_BUCKETS, 0, -0.5, 1e300, float("inf")]),
    st.floats(-1, 5000, allow_nan=False),
)
labels = st.sampled_from(["interactive", "batch", 'odd "name"\n', "ähnlich"])


def both(label_names: tuple[str, ...], bounds: tuple[float, ...]):
    own, library = OwnRegistry(), OwnRegistry()
    return (
        (own, Histogram(own, NAME, MEANING, label_names, bounds)),
        (library, LibraryHistogram(NAME, MEANING, label_names, registry=library, buckets=bounds)),
    )


def same_text(own: CollectorRegistry, library: CollectorRegistry) -> None:
    assert generate_latest(own) == generate_latest(library)
    assert generate_openmetrics(own) == generate_openmetrics(library)


@given(st.lists(values))
def test_without_labels(observed: list[float]) -> None:
    (own, ours), (library, theirs) = both((), SEQUENCE_BUCKETS)
    same_text(own, library)  # a series without values is there from the beginning
    series = ours.labels()
    for value in observed:
        series.observe(value)
        theirs.observe(value)
    same_text(own, library)


@given(st.lists(st.tuples(labels, labels, values)))
def test_with_labels(observed: list[tuple[str, str, float]]) -> None:
    (own, ours), (library, theirs) = both(("class", "outcome"), TIME_BUCKETS)
    same_text(own, library)
    for first, second, value in observed:
        ours.labels(first, second).observe(value)
        theirs.labels(first, second).observe(value)
    same_text(own, library)
