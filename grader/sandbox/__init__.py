"""Where learner code runs: processes that the grader starts, limits and can kill.

The grader's side:

    run        one module's tests, over as many workers as it takes
    trialrun   tests on one of many programs, such as a learner's own on a planted bug
    nursery    where workers come from: one zygote at a time
    spawner    the grader's hold on a zygote
    heard      what is heard of a worker: events, output, trace, end
    endings    what an end without a word says about the program

The worker's side:

    zygote     a process that has imported pytest, numpy and hypothesis once, and forks workers
    nest       a zygote that has prepared one set of tests for many programs
    brood      a zygote that has imported program and tests, for mutants of single functions
    trade      what these three do differently
    inside     a worker: binds the modules, imports them, runs the suite
    plugin     a worker's pytest plugin: one event a test
    trial      the same for tests that are tried on programs
    tests      a learner's own tests: how they are imported, and what they may not read
    calls      which functions a test calls
    script     a bench or a demo in a worker: one event a figure
    evidence   a worker's account of a failure
    confine    what of the file system a worker may change
    limits     what a worker may use

Both sides: `channel`, the events between them; `texts`, what learner code wrote, made fit to be
shown; `processes`, what the system tells about processes.
"""
