"""Rows of results files, and what follows from them."""
