"""What the verbs do, between the command line and the rooms below it."""
