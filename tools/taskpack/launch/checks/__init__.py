"""Checks of one machine; each gives lines and stops at nothing."""
