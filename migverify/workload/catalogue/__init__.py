"""What is known to differ between MySQL and TiDB, as data: how it shows, what it means, where it holds."""
