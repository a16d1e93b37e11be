"""The suite of the simulator."""
