"""How something is measured on this machine: devices, clocks, meters, checks, and runs of many problems."""
