"""Whether spans and metrics go to an OpenTelemetry collector, by the standard variables, and how they are sent.

Nothing is imported unless the variables ask for it (``OTEL_EXPORTER_OTLP_ENDPOINT`` and the like) and the extra
``otel`` is installed. A collector that is away fails nothing and holds nothing up; the end waits two seconds for it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from migverify import __version__
from migverify.errors import wheel_hint
from migverify.exposition import Metric, listed

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

CLOSING_SECONDS = 2.0
"""How long an end waits for what is still to be sent."""
TRACES, METRICS = "traces", "metrics"
_HTTP = "http/protobuf"
_log = logging.getLogger(__name__)

SendMetrics = Callable[[Iterable[Metric]], None]
"""Takes gauges as they are now."""
_Made = TypeVar("_Made")


class _Provider(Protocol):
    def shutdown(self) -> Any: ...


def is_wanted(environment: Mapping[str, str], signal: str) -> bool:
    """Whether the variables ask for ``TRACES`` or ``METRICS``: an endpoint or the exporter is named."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip()
    endpoints = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return exporter == "otlp" or (not exporter and any(environment.get(name) for name in endpoints))


def tracer_provider(environment: Mapping[str, str] = os.environ) -> TracerProvider | None:
    """Return what sends spans where the environment says; None where it asks for none, or where none can be sent."""

    def make() -> TracerProvider:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=_resource(environment), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return provider

    return _made(environment, TRACES, make)


@contextmanager
def sent_metrics(reader: MetricReader | None = None) -> Iterator[SendMetrics]:
    """Yield what sends gauges as the environment says: each ``OTEL_METRIC_EXPORT_INTERVAL`` and at the end.

    Parameters
    ----------
    reader
        Reads the gauges; None: one that sends them to a collector, where the environment names one.
    """
    if reader is None:
        provider = _made(os.environ, METRICS, lambda: _meter_provider(_sending_reader()))
    else:
        provider = _meter_provider(reader)
    if provider is None:
        yield lambda _: None
        return
    try:
        yield _Gauges(provider).send
    finally:
        shut_down(provider)


class _Gauges:
    """The gauges that were sent last, as instruments whose values a reader asks for.

    The SDK takes no NaN: a number that is not known has no sample.
    """

    def __init__(self, provider: MeterProvider) -> None:
        self._meter = provider.get_meter("migverify", __version__)
        self._known: set[str] = set()
        self._now: dict[str, Metric] = {}

    def send(self, metrics: Iterable[Metric]) -> None:
        """Take gauges in place of those before: a series that is not among them is gone."""
        now = {metric.name: metric for metric in listed(metrics)}
        self._now = now
        for name in now.keys() - self._known:
            self._known.add(name)
            self._meter.create_observable_gauge(name, [self._reads(name)], description=now[name].help)

    def _reads(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def read(_: CallbackOptions) -> Iterable[Observation]:
            samples = self._now[name].samples if name in self._now else ()
            known = ((labels, float(value)) for labels, value in samples)
            return [Observation(value, dict(labels)) for labels, value in known if math.isfinite(value)]

        return read


def shut_down(provider: _Provider) -> None:
    """Send what is left, and wait for that as long as ``CLOSING_SECONDS``."""
    # A flush tries again for as long as the exporter's own time limit, so nobody waits for its end.
    closing = threading.Thread(target=provider.shutdown, name="telemetry", daemon=True)
    closing.start()
    closing.join(CLOSING_SECONDS)


def _meter_provider(reader: MetricReader) -> MeterProvider:
    from opentelemetry.sdk.metrics import MeterProvider

    return MeterProvider([reader], _resource(os.environ), shutdown_on_exit=False)


def _sending_reader() -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(OTLPMetricExporter())


def _made(environment: Mapping[str, str], signal: str, make: Callable[[], _Made]) -> _Made | None:
    if not is_wanted(environment, signal):
        return None
    protocols = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environment[name] for name in protocols if environment.get(name)), _HTTP)
    if protocol != _HTTP:
        _log.warning("no %s are sent: %s is not supported, set OTEL_EXPORTER_OTLP_PROTOCOL=%s", signal, protocol, _HTTP)
        return None
    # It would say each failure with its address, and each variable that it refuses with a traceback, before it goes on
    # with its default; what is proved does not rest on it.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    try:
        provider = make()
    except ImportError:
        _log.warning("no %s are sent: the extra otel is not installed. %s", signal, wheel_hint("otel"))
        return None
    except Exception as error:  # noqa: BLE001 - a variable that the SDK refuses is no reason to prove nothing
        _log.warning("no %s are sent: %s", signal, type(error).__name__)
        return None
    return provider


def _resource(environment: Mapping[str, str]) -> Resource:
    from opentelemetry.sdk.resources import Resource

    named = "OTEL_SERVICE_NAME" in environment or "service.name" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {"service.name": "migverify"})
