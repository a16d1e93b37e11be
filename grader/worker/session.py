"""What the rest of the grader uses of the workers: a `Nursery`, and a `Run` of a module in it."""

from grader.worker.heard import Worker
from grader.worker.nursery import Nursery
from grader.worker.run import Outcome, Run
from grader.worker.trialrun import TrialRun, Tried

__all__ = ["Nursery", "Outcome", "Run", "TrialRun", "Tried", "Worker"]
