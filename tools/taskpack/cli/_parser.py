"""The parser of every command line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from taskpack.errors import ProfileError


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line like any other fault."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage.

        Raises:
            ProfileError: Always.
        """
        raise ProfileError(
            message,
            where=self.prog,
            why="the command takes its words as its help shows them",
            fix=f"{self.prog} --help",
        )
