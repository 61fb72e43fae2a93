"""A local page to explore texts: the server behind ``wordsway serve``."""
