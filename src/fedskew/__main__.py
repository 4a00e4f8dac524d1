"""``python -m fedskew`` is the command ``fedskew``."""

from fedskew.cli.command import main

if __name__ == "__main__":
    main()
