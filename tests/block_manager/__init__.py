"""The suite of `block_manager`."""
