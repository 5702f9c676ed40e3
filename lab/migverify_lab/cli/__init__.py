"""Commands of ``migverify lab``."""
