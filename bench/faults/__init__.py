"""A benchmark of comparison tools: pairs of tables whose differences are known, a judge, and an adapter a tool."""
