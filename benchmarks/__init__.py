"""Every speed claim, ours against the published algorithm, in one run: ``python -m benchmarks``."""
