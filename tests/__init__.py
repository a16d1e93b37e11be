"""The suites, a folder a module, and the tests of the kit itself (`kit/`)."""
