"""What results look like: tables and bars in the terminal, and a page of figures. Plain data in, text out."""

from wordsway.records import number
from wordsway.report.terminal import Bar, map_table, plain_table, spread, trial_table, word_bars

__all__ = ["Bar", "map_table", "number", "plain_table", "spread", "trial_table", "word_bars"]
