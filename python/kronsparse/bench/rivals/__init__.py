"""Everyone who multiplies beside kronsparse."""
