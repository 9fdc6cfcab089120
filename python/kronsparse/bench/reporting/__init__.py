"""Results as tables, sentences and pictures."""
