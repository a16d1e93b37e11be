"""The worker's side: what runs in the processes that learner code runs in."""
