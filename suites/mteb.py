"""The suite `mteb`: MTEB(eng, v2), and any benchmark or task of mteb by its name."""

from harness.core.types import SuiteEntry
from suites._mteb.source import list_offers, open_mteb_suite

SUITE = SuiteEntry(
    name="mteb",
    summary="MTEB(eng, v2), 41 tasks; mteb:NAME is any benchmark or task of mteb",
    open=open_mteb_suite,
    argument="benchmark or task",
    offers=list_offers,
)
