"""What a verdict is and how one is reached: a check, its report, its advice."""
