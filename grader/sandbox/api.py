"""What the rest of the grader uses of the workers: a `WorkerPool`, and a `Run` of a module in
it."""

from grader.sandbox.run import Outcome, Run
from grader.sandbox.trial_run import TrialRun, Tried
from grader.sandbox.worker_handle import Worker
from grader.sandbox.worker_pool import WorkerPool

__all__ = ["Outcome", "Run", "TrialRun", "Tried", "Worker", "WorkerPool"]
