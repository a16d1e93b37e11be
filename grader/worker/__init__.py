"""Where learner code runs: processes that the grader starts, limits and can kill.

    run       the grader's side: one module's tests, over as many workers as it takes
    zygote    a process that has imported pytest, numpy and hypothesis once, and forks workers
    inside    a worker: binds the modules, imports them, runs the suite
    plugin    a worker's pytest plugin: one event a test
    evidence  a worker's account of a failure
    confine   what of the file system a worker may change
    limits    what a worker may use
    processes what the system tells about them
"""
