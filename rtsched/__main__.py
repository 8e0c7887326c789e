"""`python -m rtsched` is the command `rtsched`."""

from rtsched.cli import main

if __name__ == "__main__":
    main(prog_name="rtsched")
