"""The benchmark: `kronsparse-bench`, or `python -m kronsparse.bench`.

- `run`: times suites of problems, ours beside PyTorch, to a results file
- `chains`: times whole chains beside their factors one by one and the dense layer
- `models`: times models and their parts beside their dense twins
- `report`: a page with tables and plots, from results files
- `compare`: what got faster or slower between two results files
- `advise`: which chains to choose for a layer
- `numbers`: the tables of Markdown files, filled from results files

See docs/benchmark.md for what is measured and how.
"""
