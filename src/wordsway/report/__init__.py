"""Results as tables and bars in a terminal, as pages, and as files."""
