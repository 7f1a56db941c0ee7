"""A report as JUnit XML, which CI systems show.

A SHOULD that fails is a skipped test with its reason: only a MUST fails a build, as with the exit code.
"""

import re
import xml.etree.ElementTree as ET

from app.conformance.clause import Finding, Level, Verdict
from app.conformance.holding import Report

__all__ = ("junit_report",)

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_report(report: Report) -> bytes:
    """One test suite, one test case a clause."""
    failed = report.counted(Verdict.FAILED, Level.MUST)
    skipped = len(report.findings) - failed - report.counted(Verdict.PASSED)
    counts = {"tests": str(len(report.findings)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": f"{report.protocol} {_clean(report.target.url)}", **counts})
    for finding in report.findings:
        _case(suite, report.protocol, finding)
    return ET.tostring(suites, encoding="utf-8", xml_declaration=True)


def _case(suite: ET.Element, protocol: str, finding: Finding) -> None:
    clause = finding.clause
    case = ET.SubElement(
        suite, "testcase", {"classname": protocol, "name": f"{clause.id} {clause.sentence}", "time": "0"}
    )
    if finding.verdict is Verdict.PASSED:
        return
    if finding.verdict is Verdict.FAILED and clause.level is Level.MUST:
        failure = ET.SubElement(case, "failure", {"type": clause.level, "message": _clean(finding.reason)})
        failure.text = _clean(f"{clause.sentence}\n{clause.source}\n{finding.reason}")
        return
    ET.SubElement(case, "skipped", {"message": _clean(f"{clause.level} {finding.verdict}: {finding.reason}")})


def _clean(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
