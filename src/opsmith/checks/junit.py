"""Reports as JUnit XML, which CI systems read: one test suite per op, one test case per item."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from .report import Item, Report

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(reports: Iterable[Report]) -> str:
    """`<testsuites>`, with the message and reproduction of failures, the reason of skips, and times."""
    reports = list(reports)
    root = ElementTree.Element("testsuites", {"name": "opsmith check", **_counts(reports)})
    for report in reports:
        root.append(_suite(report))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _counts(reports: Sequence[Report]) -> dict[str, str]:
    counted = {
        "tests": sum(len(report.items) + len(report.unfinished) for report in reports),
        "failures": sum(len(report.failures) + len(report.uncovered) for report in reports),
        "errors": 0,
        "skipped": sum(len(report.skipped) - len(report.uncovered) + len(report.unfinished) for report in reports),
    }
    return {name: str(count) for name, count in counted.items()} | {"time": f"{sum(r.seconds for r in reports):.3f}"}


def _suite(report: Report) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", {"name": f"{report.op} ({report.where})", **_counts([report])})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in {"level": report.level, "seed": report.seed, **report.environment}.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(str(value))})
    for item in report.items:
        suite.append(_case(report, item))
    for name in report.unfinished:
        suite.append(_case(report, Item(name, "skipped", "the check was interrupted")))
    return suite


def _case(report: Report, item: Item) -> ElementTree.Element:
    place = "emulated" if report.emulated else report.device
    classname = f"{report.op.replace('::', '.')}.{place}"
    case = ElementTree.Element("testcase", classname=classname, name=item.name, time=f"{item.seconds:.3f}")
    message = _clean(item.message)
    if item.uncovered:
        ElementTree.SubElement(case, "failure", message=f"could not be checked: {message}", type="Uncovered")
    elif item.status == "skipped":
        ElementTree.SubElement(case, "skipped", message=message)
    elif item.status == "failed":
        failure = ElementTree.SubElement(case, "failure", message=message.split("\n")[0], type="Failed")
        failure.text = f"{message}\n\nTo reproduce:\n\n{_clean(item.reproduction)}\n"
    elif message:
        ElementTree.SubElement(case, "system-out").text = message
    return case


def _clean(text: str) -> str:
    """Replaces characters that XML does not allow: a kernel's message may contain any."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
