"""The worker's side: what runs in the processes that learner code runs in.

    forkserver           a process that has imported pytest, numpy and hypothesis once, and forks
    suite_server         a fork server that has prepared one set of tests for many programs
    patch_server         a fork server that has imported a program and tests, for mutants of
    functions server_role          what these three do differently worker_main          a worker:
    binds the modules, imports them, runs the suite pytest_plugin        a worker's pytest plugin:
    one event a test trial_plugin         the same for tests that are tried on programs
    test_importer        a learner's own tests: how they are imported, and what they may not read
    script_main          a bench or a demo in a worker: one event a figure failure_evidence     a
    worker's account of a failure call_tracer          which functions a test calls exec_confined
    a compiler, limited and confined
"""
