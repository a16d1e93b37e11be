"""The metrics text: what a scraper reads is what was meant, whatever stands in a label."""

import math
import sys

import pytest

from grader import ROOT
from tests.kit.support.exposition import read

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.metrics import Family, Histogram, Sample, exposition


def test_a_family_reads_back() -> None:
    text = exposition([Family("a_total", "counter", "All of it.", [Sample(3)]),
                       Family("b", "gauge", "By state.", [Sample(0.5, {"state": "x", "n": "1"}),
                                                          Sample(2, {"state": "y", "n": "1"})])])
    assert text == ("# HELP a_total All of it.\n# TYPE a_total counter\na_total 3\n"
                    "# HELP b By state.\n# TYPE b gauge\n"
                    'b{state="x",n="1"} 0.5\nb{state="y",n="1"} 2\n')
    found = read(text)
    assert found["a_total"].value("a_total") == 3
    assert found["b"].value("b", state="y", n="1") == 2


WORDS = ['quo"te', "back\\slash", "line\nend", "\\n", 'ümlaut, {x="y"} ']


@pytest.mark.parametrize("word", WORDS)
def test_what_is_special_in_a_label_is_escaped(word: str) -> None:
    found = read(exposition([Family("a", "gauge", f"Of {word}", [Sample(1, {"of": word})])]))
    assert found["a"].value("a", of=word) == 1


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram([1.0, 0.1])
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    found = read(exposition([Family("h", "histogram", "Times.", histogram.samples())]))["h"]
    assert [found.value("h_bucket", le=le) for le in ("0.1", "1.0", "+Inf")] == [2, 3, 4]
    assert found.value("h_count") == 4
    assert math.isclose(found.value("h_sum"), 7.65)


@pytest.mark.parametrize("text", [
    "# HELP a b\n# TYPE a gauge\na 1", "# TYPE a gauge\na 1\n", "# HELP a b\n# TYPE a gauge\n",
    "# HELP a b\n# TYPE a gauge\na 1\na 2\n", '# HELP a b\n# TYPE a gauge\na{x="\\q"} 1\n',
    "# HELP a b\n# TYPE a counter\na 1\n", "# HELP a b\n# TYPE a gauge\nb 1\n",
    "# HELP a b\n# TYPE a gauge\na one\n",
])
def test_the_reader_refuses_what_a_scraper_would(text: str) -> None:
    with pytest.raises((AssertionError, KeyError, ValueError)):
        read(text)
