"""Shadow replay: the reads of a log that grows, asked on both sides while they are young."""
