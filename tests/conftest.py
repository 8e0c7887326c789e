"""How all tests run hypothesis: a busy machine is no finding, and first calls compile."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "rtsched",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("rtsched")
