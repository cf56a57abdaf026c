"""The papers' tables: read from `results/reported`, laid out as in print, and beside one another."""

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
