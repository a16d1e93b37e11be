"""How good tests are: judged on correct programs first, then by the bugs that they catch.

    test_suite           a set of tests: a learner's folder, or a module's own suite
    candidates           what they are tried on: correct programs, controls, planted bugs, mutants
    suite_runner         running tests on many programs of one module, in suite servers
    validity             which tests may count, and why the others do not
    kill_search          which bugs they catch
    function_patch       a mutant as one function's new code
    generated_mutants    mutants that mutmut makes, and the files that keep them; `mutmut_adapter`
    grade                the whole judgement; `report` is its data, `own_tests_score` what a check
                         says of it
    tdd                  red on the stub, green on the learner's code
"""
