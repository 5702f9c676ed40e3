"""Road 2: what was written? Reads the source's binlog, and says which rows a verification must look at again."""
