"""The papers' tables: read from `results/reported`, laid out as in print, and beside one another."""

from leaderboard.reported.layout import Measured, paper_table
from leaderboard.reported.notes import warnings
from leaderboard.reported.printed import Backbone, Paper, PaperTable, Printed, plain, title
from leaderboard.reported.reading import FIELDS, MODEL_FIELDS, backbones, odd_numbers, papers, records, wrong
from leaderboard.reported.side_by_side import Conflict, conflicts, printed_suites, side_by_side

__all__ = [
    "FIELDS",
    "MODEL_FIELDS",
    "Backbone",
    "Conflict",
    "Measured",
    "Paper",
    "PaperTable",
    "Printed",
    "backbones",
    "conflicts",
    "odd_numbers",
    "paper_table",
    "papers",
    "plain",
    "printed_suites",
    "records",
    "side_by_side",
    "title",
    "warnings",
    "wrong",
]
