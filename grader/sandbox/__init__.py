"""Where learner code runs: processes that the grader starts, limits and can kill.

The grader's side:

    run                  one module's tests, over as many workers as it takes; finds a hang
    trial_run            tests on one of many programs, such as a learner's own on a planted bug
    worker_pool          where workers come from: one fork server at a time
    forkserver_client    the grader's hold on a fork server
    worker_handle        one worker: its events, output, trace, end
    exit_reasons         what an end without a word says about the program
    allowance            the time that a test may take
    processors           how many workers may run at once
    test_names           the names of a learner's tests
    api                  what the rest of the grader uses

`inside` is the worker's side. Both sides: `channel`, the events between them; `messages`, their
shapes; `limits`, what a worker may use; `landlock`, what of the file system it may change;
`processes`, what the system tells about processes.
"""
