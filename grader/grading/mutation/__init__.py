"""How good tests are: judged on right programs first, then by the bugs that they catch.

    suites    a set of tests: a learner's folder, or a module's own suite
    programs  what they are tried on: right programs, controls, planted bugs, generated mutants
    trials    running tests on many programs of one module, in nests
    fairness  which tests may count, and why the others do not
    hunt      which bugs they catch
    grafts    a mutant as one function's new code
    generated, mutate   mutants that mutmut makes, and the files that keep them
    grade     the whole judgement; `report` is its data, `standing` what a check says of it
    tdd       red on the stub, green on the learner's code
"""
