"""What a machine must have to run a task, and why a run ended."""
