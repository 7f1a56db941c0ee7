"""Render a report as JUnit XML for CI systems.

A failed SHOULD is a skipped test with its reason, because only a MUST fails a build or changes the exit code.
"""

import re
import xml.etree.ElementTree as ET

from app.conformance.check import Finding, Level, Verdict
from app.conformance.output.descriptions import describe_readers, evidence
from app.conformance.output.plain import to_plain
from app.conformance.runner import ConformanceReport

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_report(report: ConformanceReport) -> bytes:
    """Return one test suite with one test case for each check."""
    failed = report.count(Verdict.FAILED, Level.MUST)
    skipped = len(report.findings) - failed - report.count(Verdict.PASSED)
    counts = {"tests": str(len(report.findings)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": f"{report.protocol} {_clean(report.target.url)}", **counts})
    _properties(suite, report)
    for finding in report.findings:
        _case(suite, report, finding)
    return ET.tostring(suites, encoding="utf-8", xml_declaration=True)


def _properties(suite: ET.Element, report: ConformanceReport) -> None:
    values = to_plain(report)
    properties = ET.SubElement(suite, "properties")
    for name in ("schema", "charioteer", "url", "model", "task_type", "requests"):
        if values[name] is not None:
            ET.SubElement(properties, "property", {"name": name, "value": _clean(str(values[name]))})
    for need, result in values["features"].items():
        ET.SubElement(properties, "property", {"name": need, "value": "works" if result["works"] else "would not work"})


def _case(suite: ET.Element, report: ConformanceReport, finding: Finding) -> None:
    check = finding.check
    name = f"{check.id} {check.sentence}"
    case = ET.SubElement(suite, "testcase", {"classname": report.protocol, "name": name, "time": "0"})
    if finding.verdict is Verdict.PASSED:
        return
    if finding.verdict is Verdict.FAILED and check.level is Level.MUST:
        failure = ET.SubElement(case, "failure", {"type": check.level, "message": _clean(finding.reason)})
        lines = (check.sentence, check.source, finding.reason, describe_readers(finding, report.needs))
        exchanges = "\n\n".join(map(evidence, finding.exchanges))
        failure.text = _clean("\n".join(line for line in (*lines, "", exchanges) if line))
        return
    reason = f"{check.level} {finding.verdict}: {finding.reason}"
    ET.SubElement(
        case, "skipped", {"message": _clean(" ".join([reason, describe_readers(finding, report.needs)]).strip())}
    )


def _clean(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
