"""How good tests are: judged on right programs first, then by the bugs that they catch.

    suites    a set of tests: a learner's folder, or a module's own suite
    programs  what they are tried on: right programs, controls, planted bugs, generated mutants
    trials    running tests on many programs of one module, in nests
    fairness  which tests may count, and why the others do not
    grade     the whole judgement, as data
"""
