"""Render a report as JUnit XML for CI systems.

A failed SHOULD is a skipped test with its reason, because only a MUST fails a build or changes the exit code.
"""

import re
import xml.etree.ElementTree as ET

from app.conformance.clause import Finding, Level, Verdict
from app.conformance.holding import Report
from app.conformance.output.plain import plain
from app.conformance.output.words import evidence, readers_of

__all__ = ("junit_report",)

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_report(report: Report) -> bytes:
    """Return one test suite with one test case for each clause."""
    failed = report.counted(Verdict.FAILED, Level.MUST)
    skipped = len(report.findings) - failed - report.counted(Verdict.PASSED)
    counts = {"tests": str(len(report.findings)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": f"{report.protocol} {_clean(report.target.url)}", **counts})
    _properties(suite, report)
    for finding in report.findings:
        _case(suite, report, finding)
    return ET.tostring(suites, encoding="utf-8", xml_declaration=True)


def _properties(suite: ET.Element, report: Report) -> None:
    values = plain(report)
    properties = ET.SubElement(suite, "properties")
    for name in ("schema", "charioteer", "url", "model", "task_type", "requests"):
        if values[name] is not None:
            ET.SubElement(properties, "property", {"name": name, "value": _clean(str(values[name]))})
    for need, found in values["features"].items():
        ET.SubElement(properties, "property", {"name": need, "value": "works" if found["works"] else "would not work"})


def _case(suite: ET.Element, report: Report, finding: Finding) -> None:
    clause = finding.clause
    name = f"{clause.id} {clause.sentence}"
    case = ET.SubElement(suite, "testcase", {"classname": report.protocol, "name": name, "time": "0"})
    if finding.verdict is Verdict.PASSED:
        return
    if finding.verdict is Verdict.FAILED and clause.level is Level.MUST:
        failure = ET.SubElement(case, "failure", {"type": clause.level, "message": _clean(finding.reason)})
        lines = (clause.sentence, clause.source, finding.reason, readers_of(finding, report.needs))
        shown = "\n\n".join(map(evidence, finding.exchanges))
        failure.text = _clean("\n".join(line for line in (*lines, "", shown) if line))
        return
    reason = f"{clause.level} {finding.verdict}: {finding.reason}"
    ET.SubElement(case, "skipped", {"message": _clean(" ".join([reason, readers_of(finding, report.needs)]).strip())})


def _clean(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
