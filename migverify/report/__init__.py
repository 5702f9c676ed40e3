"""Views of stored results. A report computes no verdict: it shows what the store holds, and what it lacks."""
