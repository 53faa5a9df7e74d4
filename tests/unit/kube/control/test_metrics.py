"""The text format: what Prometheus' own parser reads is what was meant."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from livevirt.kube.control.metrics import Family, Histogram, Sample, text

GAUGE = Family("a_gauge", "gauge", "A gauge.", ("name",))
STAMP = Family("a_timestamp_seconds", "counter", "A counter\nwithout _total.")
TOOK = Family("took_seconds", "histogram", "A histogram.", ("step",))


def read(found: list[Sample | Histogram]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text(found))
        for sample in family.samples
    }


@pytest.mark.parametrize("value", ['quo"te', "back\\slash", "new\nline", "", "ünïcode {}=,"])
def test_given_any_label_value_then_it_is_read_back_as_it_was(value: str) -> None:
    assert read([Sample(GAUGE, (value,), 1.5)]) == {("a_gauge", (("name", value),)): 1.5}


def test_given_a_counter_without_total_then_its_name_stays_as_it_is() -> None:
    written = text([Sample(STAMP, (), 1794814055.0)])
    assert "# TYPE a_timestamp_seconds counter\na_timestamp_seconds 1794814055\n" in written
    assert written.startswith("# HELP a_timestamp_seconds A counter\\nwithout _total.\n")


def test_given_samples_in_any_order_then_those_of_a_family_stand_together() -> None:
    found = [Sample(GAUGE, ("a",), 1), Sample(STAMP, (), 2), Sample(GAUGE, ("b",), 3)]
    written = text(found)
    assert written.count("# TYPE a_gauge gauge") == 1
    assert written.index('{name="b"}') < written.index("# TYPE a_timestamp_seconds")


def test_given_durations_then_buckets_count_all_up_to_their_bound() -> None:
    histogram = Histogram(TOOK, (0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0, -3.0):  # a clock that was set back
        histogram.observe(("a",), seconds)
    step = ("step", "a")
    assert read([histogram]) == {
        ("took_seconds_bucket", (("le", "0.1"), step)): 3,
        ("took_seconds_bucket", (("le", "1"), step)): 4,
        ("took_seconds_bucket", (("le", "+Inf"), step)): 5,
        ("took_seconds_sum", (step,)): pytest.approx(7.65),
        ("took_seconds_count", (step,)): 5,
    }


def test_given_the_wrong_number_of_labels_then_nothing_is_written() -> None:
    with pytest.raises(ValueError, match="zip"):
        text([Sample(GAUGE, ("a", "b"), 1)])
