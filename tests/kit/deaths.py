"""A death in the middle of a step, in the process of the test."""


class ProcessDied(BaseException):
    """Stands for kill -9: nothing that handles errors sees it."""
