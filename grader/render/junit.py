"""A report as JUnit XML, for continuous integration. What was not judged is an error there, never
a skip that a reader may take for a pass."""

import xml.etree.ElementTree as ET

from grader.grading.report import Failure, ModuleResult, Report, Verdict
from grader.render.wording import byte_rows, step_rows


def document(report: Report) -> bytes:
    """Return the XML, in UTF-8."""
    root = ET.Element("testsuites", name="ol check")
    for module in report.modules:
        if module.name in report.asked:
            _suite(root, module)
    ET.indent(root)
    data: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _suite(root: ET.Element, module: ModuleResult) -> None:
    suite = ET.SubElement(root, "testsuite", name=module.name, time=f"{module.seconds:.3f}")
    counts = {"tests": 0, "failures": 0, "errors": 0}
    for test in module.tests:
        case = ET.SubElement(suite, "testcase", classname=module.name, name=test.name,
                             time=f"{test.seconds:.3f}")
        counts["tests"] += 1
        if test.verdict is not Verdict.PASSED:
            kind = "error" if test.verdict is Verdict.BLOCKED else "failure"
            counts[kind + "s"] += 1
            _told(case, kind, test.failure)
        if test.printed:
            ET.SubElement(case, "system-out").text = _clean(test.printed)
    if not module.tests:
        case = ET.SubElement(suite, "testcase", classname=module.name, name="(whole module)")
        ET.SubElement(case, "error", message=_clean(module.sentence), type=module.status.value)
        counts["tests"], counts["errors"] = 1, 1
    for name, count in counts.items():
        suite.set(name, str(count))


def _told(case: ET.Element, kind: str, failure: Failure | None) -> None:
    if failure is None:
        return
    rows = [failure.what]
    rows += [f"expected: {failure.expected}"] if failure.expected is not None else []
    rows += [f"got: {failure.got}"] if failure.got is not None else []
    rows += byte_rows(failure)
    rows += [f"{number:>4}  {text}" for number, text in step_rows(failure)]
    rows += [f"{x.file}:{x.line}, in {x.function}: {x.text}" for x in failure.code]
    told = ET.SubElement(case, kind, message=_clean(failure.what), type=failure.cause)
    told.text = _clean("\n".join(rows))


def _clean(text: str) -> str:
    """Drop what XML 1.0 cannot carry, such as control characters that a program printed."""
    return "".join(c for c in text if c in "\t\n\r" or " " <= c <= "\ud7ff"
                   or "\ue000" <= c <= "\ufffd" or c >= "\U00010000")
