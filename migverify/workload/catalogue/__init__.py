"""What is known to differ between MySQL and TiDB, as data: how it shows, what it means, where it holds."""

from migverify.workload.catalogue.errors import error_class, retryable
from migverify.workload.catalogue.load import load
from migverify.workload.catalogue.waivers import load_waivers

__all__ = ["error_class", "load", "load_waivers", "retryable"]
