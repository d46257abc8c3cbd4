"""The sections of a fleet report behind its rates."""

from pipeline.core.fleet.answers import FleetReport
from pipeline.core.fleet.components import CATEGORIES
from pipeline.fleet import cause_sections, job_sections, unit_sections
from pipeline.fleet.section import Section


def sections_of(report: FleetReport) -> list[Section]:
    """Those that have anything to say."""
    found = (
        unit_sections.trends(report),
        *unit_sections.survival(report),
        unit_sections.repair_times(report),
        unit_sections.repeats(report),
        job_sections.jobs(report),
        job_sections.goodput(report),
        unit_sections.lemons(report),
        *(cause_sections.costs(report, category) for category in CATEGORIES),
        cause_sections.shares(report),
        cause_sections.propagation(report),
        cause_sections.sensitivity(report),
        cause_sections.quality(report),
    )
    return [section for section in found if section is not None]
