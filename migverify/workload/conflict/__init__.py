"""Why two transactions met on TiDB although the code shows no concurrency: messages and logs in, an explanation out."""
