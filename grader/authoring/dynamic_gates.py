"""The gates on what programs do: each looks at one part of a module's `Trials`."""

from grader.authoring import contract_page
from grader.authoring.finding import Finding
from grader.authoring.suite_results import Trials, unsteady
from grader.course.planted_bugs import mutants_of
from grader.grading import failure_signatures
from grader.grading.report import Failure, ModuleResult, Status, Verdict

Effect = frozenset[tuple[str, ...]]
_NONE = "no failure"
_MACHINE_SHARE = 0.8


def of_module(trials: Trials) -> list[Finding]:
    """Return what is wrong with what a module's programs do."""
    return [*stub(trials), *right(trials), *caught(trials), *idle(trials),
            *unseen(trials), *alike(trials), *known(trials), *machines(trials),
            *contract_page.freedoms(trials)]


def stub(trials: Trials) -> list[Finding]:
    """The stub fails every test, each by a function of its own that is not written yet."""
    own = {f"{f.shown} is not written yet" for f in trials.module.fills}
    return [Finding(trials.module.name, f"{t.name} does not wait for a function of the stub: "
                    + (f"it says {t.failure.what!r}" if t.failure else "it passes"),
                    "Let it call what the learner writes before it judges anything")
            for t in trials.stub.tests
            if t.verdict is not Verdict.TODO or t.failure is None or t.failure.what not in own]


def right(trials: Trials) -> list[Finding]:
    """Right programs pass, whatever their design."""
    found = []
    for who, result in trials.right.items():
        failing = _failing(result)
        if failing:
            found += [Finding(trials.module.name, f"{who}, a right program, fails {test}: {what}",
                              "If the program is right, the test asks for more than the contract")
                      for test, what in failing.items()]
        elif result.status is not Status.PASSED:
            found.append(Finding(trials.module.name, f"{who} could not be judged: "
                                 f"{_reason(result)}", "Mend it first"))
    return found


def caught(trials: Trials) -> list[Finding]:
    """Each planted bug fails every test that its row names."""
    found = []
    for mutant in mutants_of(trials.module):
        result = trials.bugs.get(mutant.id)
        if result is None:
            continue
        if result.status is Status.BROKEN:
            found.append(Finding(trials.module.name, f"{mutant.id} cannot be imported: "
                                 f"{_reason(result)}", "Mend its `replace`: a bug must run"))
            continue
        failing = {t.name for t in result.tests if t.verdict is Verdict.FAILED}
        if missed := [test for test in mutant.caught_by
                      if test not in failing and any(t.name == test for t in result.tests)]:
            others = ", ".join(sorted(failing)) or "none does"
            found.append(Finding(trials.module.name, f"{mutant.id} passes {', '.join(missed)}, "
                                 "which its row says catches it",
                                 f"Mend the test or the row; of the others these fail: {others}"))
    return found


def machines(trials: Trials) -> list[Finding]:
    """The random machines alone catch most planted bugs about the module's subject."""
    if not any(test.machine for test in trials.module.tests):
        return [Finding(trials.module.name, "no test is a random machine",
                        "Write one that compares every answer with a plain model, and say "
                        "`machine = true` in its row")]
    missed = sorted(bug for bug, result in trials.machines.items()
                    if all(t.verdict is Verdict.PASSED for t in result.tests))
    caught = len(trials.machines) - len(missed)
    if caught >= _MACHINE_SHARE * len(trials.machines):
        return []
    return [Finding(trials.module.name, f"the random machines catch {caught} of "
                    f"{len(trials.machines)} planted bugs, and must catch "
                    f"{_MACHINE_SHARE:.0%}", f"Widen them; they miss {', '.join(missed)}")]


def idle(trials: Trials) -> list[Finding]:
    """Each test fails on some planted bug, or nobody knows that it can. (Not random ones, nor those
    of the modules that a program stands for.)"""
    failing = {test for bug in trials.bugs for test in trials.failures(bug)}
    return [Finding(trials.module.name, f"no planted bug fails {test.name}",
                    "Plant one that does, or take the test out")
            for test in failure_signatures.deterministic_tests(trials.module)
            if test.name not in failing and trials.module.holds(test)]


def unseen(trials: Trials) -> list[Finding]:
    """Of a program's bugs those are called unseen, and no others, that only its own suite sees. A
    test of its own may take the place of one that it shares, and calls that; so it tells nothing
    of a bug that is called unseen, and nor does what is not `certain`. But to be seen, it is
    enough that a bug ends the process."""
    shared = {test.name for module in trials.module.shared for test in module.tests}
    own = {test.name for test in trials.module.tests if trials.module.holds(test)}
    found = []
    for mutant in mutants_of(trials.module):
        failures = trials.failures(mutant.id) if mutant.id in trials.bugs else {}
        failing = set(failures)
        seeing = set(failure_signatures.reproducible(trials.module, failures)) & shared - own
        if mutant.unseen and seeing:
            found.append(Finding(trials.module.name, f"{mutant.id} is called unseen, and fails "
                                 f"{', '.join(sorted(seeing))}", "Take `unseen` out of its row"))
        if trials.module.shared and failing and not mutant.unseen and not failing & shared:
            found.append(Finding(trials.module.name, f"{mutant.id} fails no test in Python",
                                 "Say in its row why that is, `unseen = \"…\"`, or let one of "
                                 "the modules that are shared have such a test"))
    return found


def alike(trials: Trials) -> list[Finding]:
    """No two bugs have the same effect on the suite, but those whose rows say so."""
    deterministic_tests = {t.name for t in failure_signatures.deterministic_tests(trials.module)}
    by_effect: dict[Effect, list[str]] = {}
    for bug in trials.bugs:
        failures = failure_signatures.reproducible(trials.module, trials.failures(bug))
        by_effect.setdefault(_effect(failures, deterministic_tests), []).append(bug)
    same = {bug: set(bugs) - {bug} for bugs in by_effect.values() for bug in bugs}
    said = {m.id: set(m.alike) for m in mutants_of(trials.module)}
    for bug, others in list(said.items()):
        for other in others:
            said.setdefault(other, set()).add(bug)
    found = []
    for bug, others in same.items():
        if more := sorted(x for x in others - said[bug] if x > bug):
            found.append(Finding(trials.module.name, f"no test but random ones tells {bug} from "
                                 f"{', '.join(more)}", "Take one out, sharpen a test, or say "
                                 f"`alike = [\"{bug}\"]` in the other's row"))
        if less := sorted(x for x in said[bug] - others if x > bug and x in trials.bugs):
            found.append(Finding(trials.module.name, f"{bug} and {', '.join(less)} are called "
                                 "alike, and a test tells them apart", "Take `alike` out"))
    return found


def known(trials: Trials) -> list[Finding]:
    """`kills.json` says what the bugs do now, the unsteady ones excepted."""
    path, held = failure_signatures.file_of(trials.module), failure_signatures.load(trials.module)
    if not path.exists() or path.read_text("utf-8") != failure_signatures.text_of(held):
        return [_stale(trials, "is out of date")]
    changing = unsteady(trials.module)
    was, now = (_signs(x.without(changing)) for x in (held, trials.kills()))
    return [_stale(trials, f"is out of date: of {bug} in {test} it says "
                   f"{was.get((bug, test), _NONE)!r}, now it is {now.get((bug, test), _NONE)!r}")
            for bug, test in sorted(was | now) if was.get((bug, test)) != now.get((bug, test))]


def _stale(trials: Trials, what: str) -> Finding:
    name = trials.module.name
    return Finding(name, f"course/modules/{name}/kills.json {what}",
                   f"`ol author kills {name}` writes it anew; read the difference")


def _signs(known: failure_signatures.Kills) -> dict[tuple[str, str], str]:
    """Return how each bug fails each test, by both."""
    return {(bug, test): signature for test, signs in known.rows.items()
            for signature, bugs in signs.items() for bug in bugs}


def _effect(failures: dict[str, Failure], deterministic_tests: set[str]) -> Effect:
    """Return all that the steady tests tell of a bug."""
    return frozenset((test, f.cause, f.what, f.expected or "", f.got or "", str(f.bytes))
                     for test, f in failures.items() if test in deterministic_tests)


def _failing(result: ModuleResult) -> dict[str, str]:
    return {t.name: t.failure.what for t in result.tests
            if t.verdict is not Verdict.PASSED and t.failure and result.failure is None}


def _reason(result: ModuleResult) -> str:
    return result.failure.what if result.failure else result.sentence or result.status.value
