"""Which problems are measured: one problem, suites of them, chains for a layer."""
