"""A run proved before it starts: checks, pipeline, memory, disk, and layouts to choose from."""
