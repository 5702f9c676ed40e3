"""``python -m migverify``."""

from migverify.cli.main import main

if __name__ == "__main__":
    main()
