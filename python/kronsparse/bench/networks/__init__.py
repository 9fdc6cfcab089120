"""The models that `models` and `peft` time, and what takes the place of their layers."""
