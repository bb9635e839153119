"""Run a task's rendered scripts end to end on a CPU, with a narrow copy of its model."""
