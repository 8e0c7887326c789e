"""What all of the testbed raises."""


class TestbedError(RuntimeError):
    """The testbed could not do what was asked of it."""

    __test__ = False
