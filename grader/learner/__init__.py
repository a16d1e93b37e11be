"""The learner's files: the workspace, its snapshots, safe writes."""
