"""Reports: records of requests in, figures out, as a table, JSON, CSV or one HTML page.

Load tests, simulations and comparisons make the same :class:`Record`, so what they report means
the same.
"""

from headway.report.as_json import CSV_COLUMNS, latencies_to_json, to_json, write_csv
from headway.report.comparison import (
    Compared,
    Comparison,
    comparison_as_text,
    comparison_to_json,
    write_comparison_csv,
)
from headway.report.comparison_page import comparison_page
from headway.report.figures import Distribution, Figures, Latencies, distribution, figures, meets
from headway.report.page import document, page, table
from headway.report.record import Outcome, Record
from headway.report.report import RampStep, Report, ramp_step, report_on
from headway.report.text import aligned, as_text

__all__ = [
    "CSV_COLUMNS",
    "Compared",
    "Comparison",
    "Distribution",
    "Figures",
    "Latencies",
    "Outcome",
    "RampStep",
    "Record",
    "Report",
    "aligned",
    "as_text",
    "comparison_as_text",
    "comparison_page",
    "comparison_to_json",
    "distribution",
    "document",
    "figures",
    "latencies_to_json",
    "meets",
    "page",
    "ramp_step",
    "report_on",
    "table",
    "to_json",
    "write_comparison_csv",
    "write_csv",
]
