"""`python -m stillery`, the same as the command `stillery`."""

from stillery.cli.main import main

if __name__ == "__main__":
    main()
